//! Single use of tickets: a jti is burnt by inserting it.

use std::time::Duration;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{float8, int8, seconds, text};

/// Nonces of one sweep.
const SWEEP_BATCH: i64 = 10_000;

/// What burning a ticket did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Burn {
    /// It was fresh and is used now.
    Burnt,
    /// Somebody used it before.
    Used,
}

impl Db {
    /// Uses up a ticket's jti. `keep` is how long the ticket could still be presented (exp + skew, from now).
    ///
    /// # Errors
    /// Store trouble: the ticket must then be refused.
    pub async fn burn_nonce(&self, jti: &str, keep: Duration) -> Result<Burn, StoreError> {
        let rows = self
            .execute(
                "burn_nonce",
                // no conflict target: naming one would need SELECT, which the gateway does not have
                "INSERT INTO ticket_nonces (jti, expires_at) VALUES ($1, now() + $2 * interval '1 second')
                 ON CONFLICT DO NOTHING",
                &[text(&jti), float8(&seconds(keep))],
            )
            .await?;
        Ok(if rows == 1 { Burn::Burnt } else { Burn::Used })
    }

    /// Forgets expired nonces, one bounded batch; returns how many. The api runs it.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn sweep_nonces(&self) -> Result<u64, StoreError> {
        self.execute(
            "sweep_nonces",
            "DELETE FROM ticket_nonces WHERE jti IN
               (SELECT jti FROM ticket_nonces WHERE expires_at < now() ORDER BY expires_at LIMIT $1)",
            &[int8(&SWEEP_BATCH)],
        )
        .await
    }
}
