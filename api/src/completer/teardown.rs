//! Removing sandboxes that nobody needs: those that are to stop, and idle ones whose grace is over. `idle→stopping` is a
//! compare-and-set that the turns verb may win; then the sandbox stays.

use std::time::Duration;

use bex_proto::Chain;
use bex_proto::limits;
use bex_proto::session::Phase;
use bex_store::StoreError;
use bex_store::leases::Lease;
use bex_store::sandboxes::{SandboxRow, SandboxState};
use bex_store::sessions::SessionRow;
use bex_store::turns::TurnRow;
use jiff::Timestamp;
use tokio::time::timeout;

use super::Completer;
use crate::clock::{age, backoff};

/// One removal: the sandbox's own grace and then some.
const LIMIT: Duration = Duration::from_secs(limits::SANDBOX_GRACE.as_secs() + 30);

impl Completer {
    pub(super) async fn teardown(&self, lease: &Lease) -> Result<(), StoreError> {
        let db = &self.deps.db;
        let living = db.living_sandboxes_of(&lease.session).await?;
        if living.is_empty() {
            return Ok(());
        }
        let Some(session) = db.session(&lease.session).await? else {
            return Ok(());
        };
        let open = db.open_turn(&lease.session).await?;
        let now = db.now().await?;
        for sandbox in living {
            if !self.is_due(&session, open.as_ref(), &sandbox, now) {
                continue;
            }
            if db.begin_stopping(lease, sandbox.generation).await? {
                self.remove(lease, &sandbox).await?;
            }
        }
        Ok(())
    }

    fn is_due(
        &self,
        session: &SessionRow,
        open: Option<&TurnRow>,
        sandbox: &SandboxRow,
        now: Timestamp,
    ) -> bool {
        // what an open turn may still be read from is never removed
        if open
            .is_some_and(|t| t.generation == sandbox.generation && t.delivery_started_at.is_some())
        {
            return false;
        }
        match sandbox.state {
            SandboxState::Stopping => sandbox.teardown_after.is_none_or(|after| after <= now),
            SandboxState::Idle => {
                sandbox.legacy
                    || session.phase == Phase::Canceled
                    || session.archived_at.is_some()
                    || age(now, sandbox.idle_since) >= self.deps.timings.idle_grace
            }
            SandboxState::Creating | SandboxState::Turn | SandboxState::Gone => false,
        }
    }

    async fn remove(&self, lease: &Lease, sandbox: &SandboxRow) -> Result<(), StoreError> {
        let db = &self.deps.db;
        let (session, generation) = (&lease.session, sandbox.generation);
        match timeout(LIMIT, self.deps.lifecycle.delete(&sandbox.into())).await {
            Ok(Ok(_deleted)) => {
                if db.mark_gone(lease, generation).await? {
                    tracing::info!(%session, %generation, "sandbox removed");
                }
                return Ok(());
            }
            Ok(Err(error)) => {
                tracing::warn!(%session, %generation, attempts = sandbox.teardown_attempts, error = %Chain(&error), "a sandbox could not be removed");
            }
            Err(_) => {
                tracing::warn!(%session, %generation, attempts = sandbox.teardown_attempts, "removing a sandbox took too long");
            }
        }
        let delay = backoff(limits::TEARDOWN_BACKOFF, sandbox.teardown_attempts);
        db.retry_teardown(lease, generation, delay).await.map(drop)
    }
}
