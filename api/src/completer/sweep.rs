//! The orphan sweep: sandboxes without a living row are removed, rows whose sandbox is gone are looked at soon. Bounded
//! work a round; what is left is found by the next.

use std::collections::HashSet;
use std::time::Duration;

use bex_proto::Chain;
use bex_proto::{Generation, SessionId};
use bex_store::StoreError;
use bex_store::sandboxes::SandboxState;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::CompleterDeps;
use crate::metrics::TickResult;
use crate::sandbox::Look;

/// How often.
const EVERY: Duration = Duration::from_secs(60);
/// Orphans removed in one sweep.
const REMOVALS: usize = 32;
/// Rows looked at in one sweep.
const ROWS: u32 = 200;
/// One removal.
const REMOVAL_LIMIT: Duration = Duration::from_secs(90);

type Life = (SessionId, Generation);

/// What one sweep remembers for the next.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Seen once without a row; removed when seen again, so that no single wrong answer of the store removes anything.
    suspects: HashSet<Life>,
    /// Where the page of rows goes on.
    after: Option<Life>,
}

pub(super) async fn run(deps: CompleterDeps, cancel: CancellationToken) {
    let mut every = interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sweep = Sweep::default();
    while cancel.run_until_cancelled(every.tick()).await.is_some() {
        let swept = async {
            sweep.orphans(&deps).await?;
            sweep.rows(&deps).await
        };
        match cancel.run_until_cancelled(swept).await {
            Some(Ok(())) => deps.metrics.swept(TickResult::Ok),
            Some(Err(error)) => {
                deps.metrics.swept(TickResult::Error);
                tracing::warn!(error = %Chain(&error), "the orphan sweep failed");
            }
            None => {}
        }
    }
}

impl Sweep {
    /// Removes sandboxes that no living row names.
    pub(super) async fn orphans(&mut self, deps: &CompleterDeps) -> Result<(), StoreError> {
        let found = match deps.lifecycle.list().await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "sandboxes could not be listed");
                return Ok(());
            }
        };
        let (mut suspects, mut removed) = (HashSet::new(), 0);
        for sandbox in found {
            let life = (sandbox.session.clone(), sandbox.generation);
            let row = deps.db.sandbox(&life.0, life.1).await?;
            if row.is_some_and(|row| row.state != SandboxState::Gone) {
                continue;
            }
            if !self.suspects.contains(&life) || removed == REMOVALS {
                suspects.insert(life);
                continue;
            }
            removed += 1;
            match timeout(REMOVAL_LIMIT, deps.lifecycle.delete(&sandbox)).await {
                Ok(Ok(_deleted)) => {
                    deps.metrics.orphan_removed();
                    tracing::warn!(session = %life.0, generation = %life.1, "removed a sandbox that no row names");
                }
                Ok(Err(error)) => {
                    tracing::warn!(session = %life.0, generation = %life.1, error = %Chain(&error), "an orphan could not be removed");
                    suspects.insert(life);
                }
                Err(_) => {
                    suspects.insert(life);
                }
            }
        }
        self.suspects = suspects;
        Ok(())
    }

    /// Makes sessions due whose speaking sandbox is gone: the round then finds it out and settles.
    async fn rows(&mut self, deps: &CompleterDeps) -> Result<(), StoreError> {
        let after = self.after.take();
        let page = deps
            .db
            .living_sandboxes(after.as_ref().map(|(s, g)| (s, *g)), ROWS)
            .await?;
        for row in &page {
            let speaking = matches!(row.state, SandboxState::Turn | SandboxState::Stopping);
            if speaking && deps.lifecycle.look(&row.into()).await == Look::Gone {
                deps.db.make_due(&row.session).await?;
            }
        }
        self.after = page.last().map(|row| (row.session.clone(), row.generation));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
