//! Grants: made with the driver's key, for one operation, once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bex_proto::driver::DriverKey;
use bex_proto::limits;
use bex_proto::ticket::{DriverGrant, DriverOp, TicketFault};
use jiff::Timestamp;

use crate::bounds::SPENT_GRANTS;

/// Checks grants and remembers the spent ones.
pub struct Grants {
    key: DriverKey,
    /// First second whose grants are good.
    not_before: i64,
    spent: Mutex<HashMap<String, i64>>,
}

/// Why a grant is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GrantFault {
    /// There is none.
    #[error("no grant")]
    Missing,
    /// See [`TicketFault`].
    #[error(transparent)]
    Ticket(#[from] TicketFault),
    /// For another operation.
    #[error("the grant is for another operation")]
    OtherOperation,
    /// For another turn or body.
    #[error("the grant is for another request")]
    OtherRequest,
    /// From before this process: it may have been spent then.
    #[error("the grant is older than this process")]
    BeforeStart,
    /// Used already.
    #[error("the grant was used")]
    Spent,
    /// Too many grants at once.
    #[error("too many grants")]
    TooMany,
}

impl Grants {
    /// Good for grants made with `key`. A process that had an earlier life refuses those that the earlier one may have seen:
    /// all up to and including the second in which it started.
    pub fn new(key: DriverKey, restarted: bool) -> Self {
        let started = Timestamp::now().as_second();
        Self {
            key,
            not_before: if restarted { started + 1 } else { i64::MIN },
            spent: Mutex::default(),
        }
    }

    /// Checks everything but the request's own content.
    ///
    /// # Errors
    /// See [`GrantFault`].
    pub fn check(&self, token: Option<&str>, op: DriverOp) -> Result<DriverGrant, GrantFault> {
        let now = Timestamp::now().as_second();
        let grant = DriverGrant::verify(token.ok_or(GrantFault::Missing)?, &self.key, now)?;
        if grant.op != op {
            return Err(GrantFault::OtherOperation);
        }
        if grant.iat < self.not_before {
            return Err(GrantFault::BeforeStart);
        }
        Ok(grant)
    }

    /// Uses a grant up.
    ///
    /// # Errors
    /// When it was used before.
    pub fn spend(&self, grant: &DriverGrant) -> Result<(), GrantFault> {
        let skew = limits::GRANT_SKEW.as_secs() as i64;
        let now = Timestamp::now().as_second();
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.contains_key(&grant.jti) {
            return Err(GrantFault::Spent);
        }
        if spent.len() >= SPENT_GRANTS {
            // one that no longer verifies need not be remembered
            spent.retain(|_, exp| exp.saturating_add(skew) >= now);
            if spent.len() >= SPENT_GRANTS {
                return Err(GrantFault::TooMany);
            }
        }
        spent.insert(grant.jti.clone(), grant.exp);
        Ok(())
    }
}
