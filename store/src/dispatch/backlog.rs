//! How much waits in the outbox, for metrics.

use std::time::Duration;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::get;

/// Turns that wait for their driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// How many, in all workspaces.
    pub turns: u64,
    /// How long the oldest has waited; zero when none does.
    pub oldest: Duration,
}

impl Db {
    /// The outbox as it stands. It holds live work only, so counting it is cheap.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn dispatch_backlog(&self) -> Result<Backlog, StoreError> {
        let row = self
            .query_one(
                "dispatch_backlog",
                "SELECT count(*) AS turns, coalesce(extract(epoch FROM now() - min(t.created_at)), 0)::float8 AS oldest
                   FROM dispatches d JOIN turns t ON t.session_id = d.session_id AND t.turn = d.turn",
                &[],
            )
            .await?;
        let (turns, oldest): (i64, f64) = (get(&row, "turns")?, get(&row, "oldest")?);
        Ok(Backlog {
            turns: u64::try_from(turns).unwrap_or_default(),
            oldest: Duration::try_from_secs_f64(oldest).unwrap_or_default(),
        })
    }
}
