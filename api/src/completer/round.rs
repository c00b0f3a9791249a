//! One round of one session.

use std::time::Duration;

use bex_proto::driver::TurnState;
use bex_proto::limits;
use bex_proto::session::Phase;
use bex_proto::{SessionId, TurnNo};
use bex_store::leases::{Lease, Round};
use bex_store::sandboxes::SandboxRow;
use bex_store::sessions::SessionRow;
use bex_store::settle::{Cause, Rejudged, SandboxAfter};
use bex_store::{StoreError, turns::TurnRow};
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::decide::{Action, Again, Driver, Known, Log, Seen, Windows, decide, is_unclear};
use super::harvest::{Harvest, HarvestFault, Source};
use super::log::{Expected, Form};
use super::settle::Ending;
use super::{Completer, RoundEnd, jittered};
use crate::exec_client::{ExecFailure, ExecTarget};
use crate::sandbox::Look;

/// After a stop: how long the driver has for its turn-end within one round.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// How often the log is looked at meanwhile.
const STOP_LOOK: Duration = Duration::from_millis(200);
/// Rounds in a row in which the store refused the same log before the turn is settled without the rest.
const REFUSED_ROUNDS: u32 = 5;
/// Reads of an older driver's log after its end was seen, until nothing new comes.
const LEGACY_READS: usize = 4;

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RoundFault {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the harvest failed")]
    Refused(#[source] bex_store::transcript::AppendError),
}

/// A turn under work.
pub(super) struct Work<'a> {
    pub lease: &'a Lease,
    pub session: &'a SessionRow,
    pub turn: &'a TurnRow,
    pub sandbox: &'a SandboxRow,
    pub now: Timestamp,
}

impl Completer {
    pub(super) async fn round(&self, lease: &Lease) -> Result<RoundEnd, RoundFault> {
        let db = &self.deps.db;
        let done = |next| {
            Ok(RoundEnd {
                next: jittered(next),
                round: Round::Done,
            })
        };
        let Some(session) = db.session(&lease.session).await? else {
            return done(self.deps.timings.completer_tick);
        };
        let mut next = self.deps.timings.completer_tick;
        if let Some(turn) = db.open_turn(&lease.session).await?
            && (turn.delivery_started_at.is_some() || session.phase == Phase::Canceling)
        {
            next = self.turn(lease, &session, &turn).await?;
        }
        for turn in db.turns_to_rejudge(&lease.session).await? {
            if db.rejudge(lease, turn).await? == Rejudged::Healed {
                tracing::info!(session = %lease.session, %turn, "a truncated turn is complete now");
            }
        }
        self.teardown(lease).await?;
        if next.is_zero() {
            Ok(RoundEnd {
                next,
                round: Round::Done,
            })
        } else {
            done(next)
        }
    }

    /// Works on the open turn; answers when to look again.
    async fn turn(
        &self,
        lease: &Lease,
        session: &SessionRow,
        turn: &TurnRow,
    ) -> Result<Duration, RoundFault> {
        let sandbox = self
            .deps
            .db
            .sandbox(&lease.session, turn.generation)
            .await?;
        let now = self.deps.db.now().await?;
        let Some(sandbox) = sandbox.filter(|_| turn.delivery_started_at.is_some()) else {
            // never delivered, and canceling: nothing was said
            let ending = Ending {
                cause: Cause::Canceled,
                sandbox: SandboxAfter::Stopping,
                legacy: None,
            };
            self.settle(lease, turn, ending).await?;
            return Ok(Duration::ZERO);
        };
        let work = Work {
            lease,
            session,
            turn,
            sandbox: &sandbox,
            now,
        };
        let (seen, harvest) = match self.target(&work) {
            Some(target) => self.look(&work, &target).await?,
            None => (self.look_at_unready(&work).await, None),
        };
        let Some(seen) = seen else {
            return Ok(self.delay(Again::NextTick, Duration::ZERO));
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
            Action::Wait(again) => Ok(self.delay(again, known.silent)),
            Action::Stop => {
                self.stop(&work).await;
                Ok(self.delay(Again::NextTick, Duration::ZERO))
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
                self.settle(
                    lease,
                    turn,
                    Ending {
                        cause,
                        sandbox,
                        legacy,
                    },
                )
                .await?;
                Ok(Duration::ZERO)
            }
        }
    }

    fn delay(&self, again: Again, silent: Duration) -> Duration {
        let tick = self.deps.timings.completer_tick;
        match again {
            Again::AtOnce => Duration::ZERO,
            Again::NextTick if silent >= limits::COMPLETER_SILENT_AFTER => {
                tick.max(limits::COMPLETER_SLOW_TICK)
            }
            Again::NextTick | Again::Unclear => tick,
        }
    }

    /// The sandbox as tickets name it; `None` before it was ever ready.
    pub(super) fn target(&self, work: &Work<'_>) -> Option<ExecTarget> {
        target_of(work.session, work.sandbox)
    }

    pub(super) fn source<'a>(&'a self, work: &Work<'_>, target: &'a ExecTarget) -> Source<'a> {
        let form = if work.sandbox.legacy {
            Form::Legacy
        } else {
            Form::Current
        };
        let expected = Expected {
            turn: work.turn.turn,
            generation: work.turn.generation,
            form,
        };
        Source {
            db: &self.deps.db,
            rpc: self.deps.rpc.as_ref(),
            target,
            expected,
        }
    }

    /// Harvests. No `Seen` means that somebody else moved the turn.
    async fn look(
        &self,
        work: &Work<'_>,
        target: &ExecTarget,
    ) -> Result<(Option<Seen>, Option<Harvest>), RoundFault> {
        let source = self.source(work, target);
        let mut harvested = source.harvest().await;
        for _ in 0..LEGACY_READS {
            // an older driver ends without a last line: read until nothing new comes after its end was seen
            match &harvested {
                Ok(harvest)
                    if work.sandbox.legacy
                        && harvest.stored > 0
                        && matches!(harvest.driver(&source.expected), Driver::Over(_)) =>
                {
                    harvested = source.harvest().await;
                }
                _ => break,
            }
        }
        match harvested {
            Ok(harvest) => {
                let seen = Seen::Read {
                    driver: harvest.driver(&source.expected),
                    log: harvest.log,
                };
                Ok((Some(seen), Some(harvest)))
            }
            Err(HarvestFault::Exec(ExecFailure::Terminated)) => Ok((Some(Seen::Gone), None)),
            Err(HarvestFault::Exec(ExecFailure::Unreachable | ExecFailure::Refused(_))) => {
                tracing::info!(session = %work.lease.session, turn = %work.turn.turn, "the gateway can not be asked");
                let look = self
                    .deps
                    .lifecycle
                    .look(&super::teardown::name_of(work.sandbox))
                    .await;
                let seen = match look {
                    Look::Running => Seen::Running,
                    Look::Gone => Seen::Gone,
                    Look::Unknown => Seen::Unreadable,
                };
                Ok((Some(seen), None))
            }
            Err(HarvestFault::Exec(failure)) => {
                tracing::info!(session = %work.lease.session, turn = %work.turn.turn, %failure, "status and log could not be read");
                Ok((Some(Seen::Unreadable), None))
            }
            Err(HarvestFault::Moved) => Ok((None, None)),
            Err(HarvestFault::Store(error)) => Err(error.into()),
            Err(HarvestFault::Refused(error)) if work.lease.failures < REFUSED_ROUNDS => {
                Err(RoundFault::Refused(error))
            }
            Err(HarvestFault::Refused(error)) => {
                tracing::error!(session = %work.lease.session, turn = %work.turn.turn, %error, "the log can not be stored; the turn is settled without the rest");
                let ending = Ending {
                    cause: Cause::StoreFailed,
                    sandbox: SandboxAfter::Stopping,
                    legacy: None,
                };
                self.settle(work.lease, work.turn, ending).await?;
                Ok((None, None))
            }
        }
    }

    /// A sandbox that was given its turn at creation and never became ready. While the dispatcher is at it, the turn is
    /// the dispatcher's.
    async fn look_at_unready(&self, work: &Work<'_>) -> Option<Seen> {
        match work.session.phase {
            Phase::Creating | Phase::Redispatching => return None,
            // it may just be being made: it is removed by name after the settle
            Phase::Canceling => return Some(Seen::Unreadable),
            Phase::Running | Phase::Completed | Phase::Failed | Phase::Canceled => {}
        }
        match self
            .deps
            .lifecycle
            .look(&super::teardown::name_of(work.sandbox))
            .await
        {
            Look::Gone => Some(Seen::Gone),
            Look::Running | Look::Unknown => Some(Seen::Unreadable),
        }
    }

    async fn known(
        &self,
        work: &Work<'_>,
        seen: Seen,
        harvest: Option<&Harvest>,
    ) -> Result<Known, StoreError> {
        let (session, turn) = (&work.lease.session, work.turn);
        let form = if work.sandbox.legacy {
            Form::Legacy
        } else {
            Form::Current
        };
        let clear = match seen {
            Seen::Gone | Seen::Running => true,
            Seen::Unreadable => false,
            Seen::Read { log, .. } if form == Form::Legacy => log != Log::Foreign,
            Seen::Read { driver, log } => !is_unclear(driver, log),
        };
        let unclear = if clear {
            self.clocks.clear(session);
            Duration::ZERO
        } else {
            self.clocks.unclear(session, turn.turn)
        };
        // the harvest of this round moved the row
        let fresh = match harvest {
            Some(harvest) if harvest.stored > 0 || harvest.log == Log::Ended => {
                self.deps.db.turn(session, turn.turn).await?
            }
            _ => None,
        };
        let row = fresh.as_ref().unwrap_or(turn);
        let last = [row.last_part_at, row.delivered_at, row.delivery_started_at]
            .into_iter()
            .flatten()
            .max();
        Ok(Known {
            form,
            turn_end: row.expected_parts.is_some(),
            canceling: (work.session.phase == Phase::Canceling)
                .then(|| age(work.now, work.session.cancel_requested_at)),
            stop_requested: row.stop_requested_at.is_some(),
            silent: age(work.now, last),
            unclear,
        })
    }

    async fn stop(&self, work: &Work<'_>) -> Option<ExecFailure> {
        let target = self.target(work)?;
        let failure = self.deps.rpc.stop(&target, work.turn.turn).await.err()?;
        tracing::info!(session = %work.lease.session, turn = %work.turn.turn, %failure, "the driver could not be asked to stop");
        Some(failure)
    }

    /// Stops the turn so that its log gets its end, reads the rest, settles. A canceled session whose log can not be read
    /// just now is tried again until its time is over.
    async fn stop_then_settle(
        &self,
        work: &Work<'_>,
        cause: Cause,
    ) -> Result<Duration, RoundFault> {
        let failure = self.stop(work).await;
        let deadline = Instant::now() + STOP_WAIT;
        let mut sandbox = SandboxAfter::Stopping;
        if let Some(target) = self.target(work) {
            let source = self.source(work, &target);
            loop {
                match source.harvest().await {
                    Ok(harvest) if harvest.log == Log::Ended => break,
                    Ok(_) if Instant::now() >= deadline => break,
                    Ok(_) => sleep(STOP_LOOK).await,
                    Err(HarvestFault::Exec(ExecFailure::Terminated)) => {
                        sandbox = SandboxAfter::Gone;
                        break;
                    }
                    Err(HarvestFault::Moved) => return Ok(Duration::ZERO),
                    Err(HarvestFault::Store(error)) => return Err(error.into()),
                    Err(HarvestFault::Exec(_)) if cause == Cause::Canceled => {
                        return Ok(self.delay(Again::Unclear, Duration::ZERO));
                    }
                    Err(HarvestFault::Exec(_) | HarvestFault::Refused(_)) => break,
                }
            }
        }
        if failure == Some(ExecFailure::Terminated) {
            sandbox = SandboxAfter::Gone;
        }
        self.settle(
            work.lease,
            work.turn,
            Ending {
                cause,
                sandbox,
                legacy: None,
            },
        )
        .await?;
        Ok(Duration::ZERO)
    }

    async fn legacy_end(
        &self,
        work: &Work<'_>,
        state: TurnState,
        harvest: Option<&Harvest>,
    ) -> Result<bex_store::settle::Legacy, StoreError> {
        let (session, turn): (&SessionId, TurnNo) = (&work.lease.session, work.turn.turn);
        let contiguous = self.deps.db.contiguous_end(session, turn).await?;
        let whole = harvest.is_some_and(|h| {
            h.log == Log::ReadOn
                && h.status
                    .as_ref()
                    .is_some_and(|status| !status.evidence_truncated())
        });
        Ok(bex_store::settle::Legacy {
            state,
            parts: contiguous.0,
            whole,
        })
    }
}

/// The sandbox as tickets name it; `None` before it was ever ready.
fn target_of(session: &SessionRow, sandbox: &SandboxRow) -> Option<ExecTarget> {
    Some(ExecTarget {
        workspace: session.workspace.clone(),
        session: session.id.clone(),
        generation: sandbox.generation,
        namespace: sandbox.namespace.clone(),
        pod: sandbox.pod.clone(),
        pod_uid: sandbox.pod_uid.clone()?,
        container: sandbox.container.clone(),
    })
}

pub(super) fn age(now: Timestamp, since: Option<Timestamp>) -> Duration {
    since.map_or(Duration::ZERO, |since| {
        Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
    })
}
