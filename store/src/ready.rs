//! Whether a process may be sent work, as far as its database and the rights of its account decide. Asked by probes, however often they
//! come, the database is looked at once in [`READY_EVERY`].
//!
//! What is looked at: the database answers, the role still has every grant of the preflight, the schema is this release's, and,
//! until all of it was well once, the driver ring holds the key of every living sandbox and no right in the cluster was denied. So a ring
//! that lost a key, or a namespace without its roles, stops a roll-out at its first process; a process that was ready is not taken away
//! for either, as only those sandboxes are out of its reach.

use std::collections::BTreeSet;
use std::time::Duration;

use bex_proto::Chain;
use bex_proto::ticket::KeyRing;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};

use crate::error::StoreError;
use crate::migrate::{SchemaError, check_schema};
use crate::pool::Db;
use crate::roles::{Role, preflight};

/// How long an answer stands: a probe's usual period is longer, a crowd of probes shares it.
pub const READY_EVERY: Duration = Duration::from_secs(5);
/// Time for the database's answer: below the usual probe's own second or two of patience.
pub const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a process may not be sent work. Its text may be shown to whoever probes: it holds no value of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    /// No answer, or not in time.
    #[error("database: no answer")]
    Database,
    /// The schema is an older release's.
    #[error("schema: version {found}, {needed} is needed")]
    Schema {
        /// What is there.
        found: i32,
        /// What is needed.
        needed: i32,
    },
    /// Grants that were there at the start.
    #[error("grants: {} missing", .0.join(", "))]
    Grants(Vec<String>),
    /// Ids of driver keys that living sandboxes need.
    #[error("key ring: {} missing", .0.join(", "))]
    DriverKeys(Vec<String>),
    /// The cluster has not been asked yet; that takes seconds at most.
    #[error("cluster rights: not asked for yet")]
    RightsUnasked,
    /// What the cluster denies, somewhere. Where is for the log: namespaces are tenants'.
    #[error("cluster rights: {} missing", .0.join(", "))]
    Rights(Vec<String>),
}

/// What a process's account may do in the cluster, as far as it was told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ClusterRights {
    /// The first round of questions is under way.
    #[default]
    Unasked,
    /// Everything that is needed.
    Given,
    /// Nobody said; that is no denial.
    Unknown,
    /// Denied: verb and resource of each.
    Lacking(Vec<String>),
}

/// See the module's text.
#[derive(Debug)]
pub struct Readiness {
    db: Db,
    role: Role,
    driver_kids: BTreeSet<String>,
    rights: Option<watch::Receiver<ClusterRights>>,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// When it was looked at, and what was seen.
    seen: Option<(Instant, Result<(), Unready>)>,
    /// Whether all was well once.
    was_ready: bool,
}

impl Readiness {
    /// Looks at nothing yet.
    pub fn new(db: Db, role: Role, driver_keys: &KeyRing) -> Self {
        Self {
            db,
            role,
            driver_kids: driver_keys.kids().map(str::to_owned).collect(),
            rights: None,
            last: Mutex::default(),
        }
    }

    /// Not ready either while these are denied, as long as it was never ready.
    #[must_use]
    pub fn with_rights(mut self, rights: Option<watch::Receiver<ClusterRights>>) -> Self {
        self.rights = rights;
        self
    }

    /// What was seen less than [`READY_EVERY`] ago, else what is seen now. Answers within [`READY_TIMEOUT`] of the look that it shares.
    ///
    /// # Errors
    /// See [`Unready`]; the cause is logged once a look.
    pub async fn check(&self) -> Result<(), Unready> {
        // held while looking: who comes meanwhile shares the answer
        let mut last = self.last.lock().await;
        self.database(&mut last).await?;
        if !last.was_ready {
            self.may()?;
            last.was_ready = true;
        }
        Ok(())
    }

    /// What the cluster's answer means. It costs nothing to look at, so it is never kept.
    fn may(&self) -> Result<(), Unready> {
        let Some(rights) = &self.rights else {
            return Ok(());
        };
        match &*rights.borrow() {
            ClusterRights::Given | ClusterRights::Unknown => Ok(()),
            ClusterRights::Unasked => Err(Unready::RightsUnasked),
            ClusterRights::Lacking(denied) => Err(Unready::Rights(denied.clone())),
        }
    }

    async fn database(&self, last: &mut Last) -> Result<(), Unready> {
        if let Some((at, seen)) = &last.seen
            && at.elapsed() < READY_EVERY
        {
            return seen.clone();
        }
        let seen = match timeout(READY_TIMEOUT, self.look(last.was_ready)).await {
            Ok(seen) => seen,
            Err(_) => {
                tracing::warn!("not ready: the database does not answer in time");
                Err(Unready::Database)
            }
        };
        last.seen = Some((Instant::now(), seen.clone()));
        seen
    }

    async fn look(&self, was_ready: bool) -> Result<(), Unready> {
        let missing = preflight(&self.db, self.role).await.map_err(database)?;
        if !missing.is_empty() {
            tracing::error!(
                missing = missing.join(", "),
                "not ready: the database role lost grants"
            );
            return Err(Unready::Grants(missing));
        }
        match check_schema(&self.db).await {
            Ok(()) => {}
            Err(SchemaError::Store(error)) => return Err(database(error)),
            Err(SchemaError::TooOld { found, needed }) => {
                tracing::error!(found, needed, "not ready: the schema is older");
                return Err(Unready::Schema { found, needed });
            }
        }
        if was_ready {
            return Ok(());
        }
        let mut needed = self.db.driver_kids_in_use().await.map_err(database)?;
        needed.retain(|kid| !self.driver_kids.contains(kid));
        if needed.is_empty() {
            return Ok(());
        }
        tracing::error!(
            missing = needed.join(", "),
            "not ready: living sandboxes need driver keys that are not in the ring"
        );
        Err(Unready::DriverKeys(needed))
    }
}

fn database(error: StoreError) -> Unready {
    tracing::warn!(error = %Chain(&error), "not ready: the database does not answer");
    Unready::Database
}
