//! Settling: the store decides the verdict from what it holds; here is only said why the turn is over.

use bex_proto::session::{FailureReason, Phase};
use bex_store::leases::Lease;
use bex_store::settle::{Cause, Legacy, SandboxAfter, Settle, Settled};
use bex_store::{StoreError, turns::TurnRow};
use bex_telemetry::{Attribute, Span};

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
        let failure = failure(&ending);
        let settle = Settle {
            turn: turn.turn,
            generation: turn.generation,
            cause: ending.cause,
            legacy: ending.legacy,
            sandbox: ending.sandbox,
            failure,
        };
        let span = Span::of(&lease.session);
        let settled = self.deps.db.settle(lease, &settle).await?;
        match settled {
            Settled::Now {
                verdict,
                reason,
                phase,
            } => {
                self.deps.metrics.settled(verdict, reason);
                let word = reason.map_or("none", |reason| reason.as_str());
                let attributes: [Attribute<'_>; 4] = [
                    ("bex.session", &lease.session),
                    ("bex.turn", &turn.turn),
                    ("bex.verdict", &verdict),
                    ("bex.reason", &word),
                ];
                span.end("settle", &attributes);
                let failure = failure.filter(|_| phase == Phase::Failed);
                tracing::info!(
                    session = %lease.session, turn = %turn.turn, trace_id = %span.context().trace, %verdict, reason = reason.map(|r| r.as_str()), %phase,
                    failure = failure.map(FailureReason::as_str), cause = ?ending.cause, "turn settled"
                );
            }
            Settled::Already(_) | Settled::WrongGeneration | Settled::Stale | Settled::NotFound => {
                tracing::debug!(session = %lease.session, turn = %turn.turn, ?settled, "the turn was settled elsewhere");
            }
        }
        Ok(())
    }
}

/// Why the session failed, used only when its phase becomes `failed`: a canceled one never does.
fn failure(ending: &Ending) -> Option<FailureReason> {
    match (ending.cause, ending.turn_end) {
        (Cause::Canceled, _) => None,
        (Cause::Deadline, _) => Some(FailureReason::TurnDeadline),
        (Cause::StoreFailed, _) => Some(FailureReason::StoreFailed),
        (Cause::DriverEnded | Cause::Lost, TurnEndKnown::Yes) => Some(FailureReason::AgentFailed),
        (Cause::DriverEnded, TurnEndKnown::No) if ending.legacy.is_some() => {
            Some(FailureReason::AgentFailed)
        }
        (Cause::DriverEnded, TurnEndKnown::No) => Some(FailureReason::LogUnreadable),
        (Cause::Lost, TurnEndKnown::No) => Some(FailureReason::SandboxLost),
    }
}
