//! Settling: the store decides the verdict from what it holds; here is only said why the turn is over.

use bex_proto::session::Phase;
use bex_store::leases::Lease;
use bex_store::settle::{Cause, Legacy, SandboxAfter, Settle, Settled};
use bex_store::{StoreError, turns::TurnRow};

use super::Completer;
use super::decide::Known;

/// Why a turn is over and what becomes of its sandbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    pub cause: Cause,
    pub sandbox: SandboxAfter,
    pub legacy: Option<Legacy>,
    pub turn_end: TurnEndKnown,
}

/// Whether the driver's last record was read and is kept with the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnEndKnown {
    Yes,
    No,
}

impl From<&Known> for TurnEndKnown {
    fn from(known: &Known) -> Self {
        if known.turn_end { Self::Yes } else { Self::No }
    }
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
            failure: Some(failure(&ending)),
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
fn failure(ending: &Ending) -> &'static str {
    match (ending.cause, ending.turn_end) {
        (Cause::Deadline, _) => "turn_deadline",
        (Cause::StoreFailed, _) => "store_failed",
        (Cause::Canceled, _) => "canceled",
        (Cause::DriverEnded | Cause::Lost, TurnEndKnown::Yes) => "agent_failed",
        (Cause::DriverEnded, TurnEndKnown::No) if ending.legacy.is_some() => "agent_failed",
        (Cause::DriverEnded, TurnEndKnown::No) => "log_unreadable",
        (Cause::Lost, TurnEndKnown::No) => "sandbox_lost",
    }
}
