//! Settling: the store decides the verdict from what it holds; here is only said why the turn is over.

use bex_proto::session::Phase;
use bex_store::leases::Lease;
use bex_store::settle::{Cause, Legacy, SandboxAfter, Settle, Settled};
use bex_store::{StoreError, turns::TurnRow};

use super::Completer;

/// Why a turn is over and what becomes of its sandbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    pub cause: Cause,
    pub sandbox: SandboxAfter,
    pub legacy: Option<Legacy>,
}

impl Completer {
    /// Settles the turn, once; that somebody else did or that the lease was lost is no error.
    pub(super) async fn settle(
        &self,
        lease: &Lease,
        turn: &TurnRow,
        ending: Ending,
    ) -> Result<(), StoreError> {
        let settle = Settle {
            turn: turn.turn,
            generation: turn.generation,
            // the harvest recorded it when it met it
            turn_end: None,
            cause: ending.cause,
            legacy: ending.legacy,
            sandbox: ending.sandbox,
            failure: Some(failure(ending.cause, turn)),
        };
        let settled = self.deps.db.settle(lease, &settle).await?;
        self.clocks.clear(&lease.session);
        match settled {
            Settled::Now {
                verdict,
                reason,
                phase,
            } => {
                tracing::info!(
                    session = %lease.session, turn = %turn.turn, %verdict, reason = reason.map(|r| r.as_str()), %phase,
                    "turn settled"
                );
                if phase == Phase::Failed {
                    tracing::info!(session = %lease.session, turn = %turn.turn, cause = ?ending.cause, "session failed");
                }
            }
            Settled::Already(_) | Settled::WrongGeneration | Settled::Stale | Settled::NotFound => {
                tracing::debug!(session = %lease.session, turn = %turn.turn, ?settled, "the turn was settled elsewhere");
            }
        }
        Ok(())
    }
}

/// The session's failure code, used only when its phase becomes `failed`.
fn failure(cause: Cause, turn: &TurnRow) -> &'static str {
    match cause {
        Cause::Lost if turn.expected_parts.is_none() => "sandbox_lost",
        Cause::Deadline => "turn_deadline",
        Cause::StoreFailed => "store_failed",
        Cause::Canceled => "canceled",
        Cause::DriverEnded | Cause::Lost => "agent_failed",
    }
}
