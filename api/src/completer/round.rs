//! One round of one session.

mod look;
mod stop;

use std::time::Duration;

use bex_proto::limits;
use bex_proto::session::{DeliveryMode, Phase};
use bex_store::StoreError;
use bex_store::leases::{Lease, Round};
use bex_store::sandboxes::SandboxRow;
use bex_store::sessions::SessionRow;
use bex_store::settle::{Cause, Rejudged, SandboxAfter};
use bex_store::turns::TurnRow;
use jiff::Timestamp;
use tokio::time::Instant;

use super::decide::{Action, Again, Windows, decide};
use super::harvest::{Harvest, ParserFault, Source};
use super::log::{Expected, Form};
use super::settle::{Ending, TurnEndKnown};
use super::{Completer, RoundEnd, jittered};
use crate::exec_client::ExecTarget;

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RoundFault {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the store refuses the log")]
    Refused(#[source] bex_store::transcript::AppendError),
    #[error(transparent)]
    Parser(ParserFault),
}

/// There is more to do.
const AT_ONCE: RoundEnd = RoundEnd {
    next: Duration::ZERO,
    round: Round::Done,
};

/// A turn under work.
struct Work<'a> {
    lease: &'a Lease,
    session: &'a SessionRow,
    turn: &'a TurnRow,
    sandbox: &'a SandboxRow,
    /// By the store's clock, when this round began with the turn.
    now: Timestamp,
    /// The same moment by this process's.
    began: Instant,
}

impl Work<'_> {
    /// The dispatcher has not concluded the delivery: it alone moves the session to `running`, and a killed one is followed
    /// by another. What is said meanwhile is harvested, but nothing is settled.
    fn is_with_dispatcher(&self) -> bool {
        self.turn.delivery_mode == DeliveryMode::Pending && self.session.phase != Phase::Canceling
    }

    fn form(&self) -> Form {
        if self.sandbox.legacy {
            Form::Legacy
        } else {
            Form::Current
        }
    }

    fn target(&self) -> Option<ExecTarget> {
        ExecTarget::of(self.session, self.sandbox)
    }

    fn source<'a>(&self, completer: &'a Completer, target: &'a ExecTarget) -> Source<'a> {
        let (turn, generation) = (self.turn.turn, self.turn.generation);
        let expected = Expected {
            turn,
            generation,
            form: self.form(),
        };
        Source {
            db: completer.deps.db.as_ref(),
            rpc: completer.deps.rpc.as_ref(),
            windows: &completer.windows,
            target,
            expected,
        }
    }
}

impl Completer {
    pub(super) async fn round(&self, lease: &Lease) -> Result<RoundEnd, RoundFault> {
        let db = &self.deps.db;
        let mut end = self.again(Again::NextTick, Duration::ZERO);
        let Some(session) = db.session(&lease.session).await? else {
            return Ok(end);
        };
        if let Some(turn) = db.open_turn(&lease.session).await?
            && (turn.delivery_started_at.is_some() || session.phase == Phase::Canceling)
        {
            end = self.turn(lease, &session, &turn).await?;
        }
        for turn in db.turns_to_rejudge(&lease.session).await? {
            if db.rejudge(lease, turn).await? == Rejudged::Healed {
                self.deps.metrics.healed();
                tracing::info!(session = %lease.session, %turn, "a truncated turn is complete now");
            }
        }
        self.teardown(lease).await?;
        Ok(RoundEnd {
            next: jittered(end.next, lease),
            ..end
        })
    }

    /// Works on the open turn; answers when to look again.
    async fn turn(
        &self,
        lease: &Lease,
        session: &SessionRow,
        turn: &TurnRow,
    ) -> Result<RoundEnd, RoundFault> {
        let sandbox = self
            .deps
            .db
            .sandbox(&lease.session, turn.generation)
            .await?;
        let (now, began) = (self.deps.db.now().await?, Instant::now());
        let Some(sandbox) = sandbox.filter(|_| turn.delivery_started_at.is_some()) else {
            // never delivered, and canceling: nothing was said
            let ending = Ending {
                cause: Cause::Canceled,
                sandbox: SandboxAfter::Stopping,
                legacy: None,
                turn_end: TurnEndKnown::No,
            };
            self.settle(lease, turn, ending).await?;
            return Ok(AT_ONCE);
        };
        let work = Work {
            lease,
            session,
            turn,
            sandbox: &sandbox,
            now,
            began,
        };
        let (seen, harvest) = match work.target() {
            Some(target) => self.look(&work, &target).await?,
            None => (self.look_at_unready(&work).await, None),
        };
        let Some(seen) = seen.filter(|_| !work.is_with_dispatcher()) else {
            return Ok(self.again(Again::NextTick, Duration::ZERO));
        };
        let known = self.known(&work, seen, harvest.as_ref()).await?;
        let windows = Windows {
            unreadable: self.deps.timings.status_unreadable,
            turn_deadline: self.deps.timings.turn_deadline,
            cancel: limits::CANCEL_HARVEST,
        };
        let action = decide(seen, &known, &windows);
        tracing::debug!(session = %lease.session, turn = %turn.turn, ?seen, ?action, "looked at a turn");
        match action {
            Action::Wait(again) => Ok(self.again(again, known.silent)),
            Action::Stop => {
                self.stop(&work).await;
                Ok(self.again(Again::NextTick, Duration::ZERO))
            }
            Action::StopThenSettle { cause } => self.stop_then_settle(&work, cause).await,
            Action::Settle {
                cause,
                sandbox,
                legacy,
            } => {
                let legacy = match legacy {
                    Some(state) => Some(self.legacy_end(&work, state, harvest.as_ref()).await?),
                    None => None,
                };
                self.keep_agent_session(&work, harvest.as_ref()).await?;
                let turn_end = TurnEndKnown::from(&known);
                self.settle(
                    lease,
                    turn,
                    Ending {
                        cause,
                        sandbox,
                        legacy,
                        turn_end,
                    },
                )
                .await?;
                Ok(AT_ONCE)
            }
        }
    }

    /// Keeps the agent's own session, where the status names one that can be kept.
    async fn keep_agent_session(
        &self,
        work: &Work<'_>,
        harvest: Option<&Harvest>,
    ) -> Result<(), StoreError> {
        let (turn, generation) = (work.turn.turn, work.turn.generation);
        let status = harvest.and_then(|harvest| harvest.status.as_ref());
        let status = status
            .filter(|status| status.turn == Some(turn) && status.generation == Some(generation));
        let name = status.and_then(|status| status.agent_session_id.as_deref());
        let is_plain =
            |name: &&str| name.len() <= limits::WORD_BYTES && !name.chars().any(char::is_control);
        let Some(name) = name.filter(is_plain) else {
            return Ok(());
        };
        let session = &work.lease.session;
        self.deps
            .db
            .keep_agent_session(session, generation, name)
            .await
    }

    fn again(&self, again: Again, silent: Duration) -> RoundEnd {
        let tick = self.deps.timings.completer_tick;
        let (next, round) = match again {
            Again::AtOnce => return AT_ONCE,
            Again::NextTick if silent >= limits::COMPLETER_SILENT_AFTER => {
                (tick.max(limits::COMPLETER_SLOW_TICK), Round::Done)
            }
            Again::NextTick => (tick, Round::Done),
            Again::Unclear => (tick, Round::Unclear),
        };
        RoundEnd { next, round }
    }
}
