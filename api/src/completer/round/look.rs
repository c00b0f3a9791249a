//! Looking at a turn: harvest what is new, and say what was seen.

use std::time::Duration;

use bex_proto::Chain;
use bex_proto::driver::{Status, TurnState};
use bex_proto::session::Phase;
use bex_proto::{SessionId, TurnNo};
use bex_store::StoreError;
use bex_store::settle::{Cause, Legacy, SandboxAfter};
use bex_telemetry::{Attribute, Span};
use jiff::SignedDuration;

use super::super::Completer;
use super::super::decide::{Driver, Known, Log, Seen, is_unclear};
use super::super::harvest::{Harvest, HarvestFault, ParserFault, Source};
use super::super::log::Form;
use super::super::settle::{Ending, TurnEndKnown};
use super::{RoundFault, Work};
use crate::clock::age;
use crate::exec_client::{ExecFailure, ExecTarget};
use crate::sandbox::Look;

/// Rounds in a row in which the store refused the same log before the turn is settled without the rest.
const POISONED_ROUNDS: u32 = 5;
/// A driver whose clock is further ahead than this is not believed when it says that it spoke.
const CLOCKS_APART: SignedDuration = SignedDuration::from_secs(60);
/// Reads of an older driver's log after its end was seen, until nothing new comes.
const LEGACY_READS: usize = 4;

/// A harvest's span. A look that found nothing new is none: there is one every tick.
fn tell(span: Span, work: &Work<'_>, harvested: &Result<Harvest, HarvestFault>) {
    let (bytes, stored, result) = match harvested {
        Ok(harvest) if harvest.bytes == 0 => return,
        Ok(harvest) => (harvest.bytes, harvest.stored, "ok".to_owned()),
        Err(fault) => (0, 0, fault.to_string()),
    };
    let attributes: [Attribute<'_>; 5] = [
        ("bex.session", &work.lease.session),
        ("bex.turn", &work.turn.turn),
        ("bex.bytes", &bytes),
        ("bex.parts", &stored),
        ("bex.result", &result),
    ];
    span.end("harvest", &attributes);
}

impl Completer {
    /// Harvests. No `Seen` means that somebody else moved the turn.
    pub(super) async fn look(
        &self,
        work: &Work<'_>,
        target: &ExecTarget,
    ) -> Result<(Option<Seen>, Option<Harvest>), RoundFault> {
        let source = work.source(self, target);
        let mut harvested = self.harvest(work, &source).await;
        for _ in 0..LEGACY_READS {
            // an older driver ends without a last line: read until nothing new comes after its end was seen
            match &harvested {
                Ok(harvest)
                    if work.sandbox.legacy
                        && harvest.stored > 0
                        && matches!(harvest.driver(&source.expected), Driver::Over(_)) =>
                {
                    harvested = self.harvest(work, &source).await;
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
            Err(HarvestFault::Exec(
                failure @ (ExecFailure::Unreachable | ExecFailure::Refused(_)),
            )) => {
                log_unasked(work, failure);
                let look = self.deps.lifecycle.look(&work.sandbox.into()).await;
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
            Err(HarvestFault::Parser(fault))
                if fault == ParserFault::RuntimeEnds || work.lease.failures < POISONED_ROUNDS =>
            {
                Err(RoundFault::Parser(fault))
            }
            Err(HarvestFault::Parser(fault)) => {
                self.poisoned(work, Cause::DriverEnded, &fault).await
            }
            Err(HarvestFault::Refused(error)) if work.lease.failures < POISONED_ROUNDS => {
                Err(RoundFault::Refused(error))
            }
            Err(HarvestFault::Refused(error)) => {
                self.poisoned(work, Cause::StoreFailed, &error).await
            }
        }
    }

    /// The log was tried often enough: the turn gets the verdict that what is stored allows.
    async fn poisoned(
        &self,
        work: &Work<'_>,
        cause: Cause,
        error: &(dyn std::error::Error + Sync),
    ) -> Result<(Option<Seen>, Option<Harvest>), RoundFault> {
        tracing::error!(session = %work.lease.session, turn = %work.turn.turn, error = %Chain(error), "the log can not be stored; the turn is settled without the rest");
        let ending = Ending {
            cause,
            sandbox: SandboxAfter::Stopping,
            legacy: None,
            turn_end: TurnEndKnown::No,
        };
        self.settle(work.lease, work.turn, ending).await?;
        Ok((None, None))
    }

    /// One harvest, counted.
    pub(super) async fn harvest(
        &self,
        work: &Work<'_>,
        source: &Source<'_>,
    ) -> Result<Harvest, HarvestFault> {
        let span = Span::of(&work.lease.session);
        let harvested = span.hold(source.harvest()).await;
        match &harvested {
            Ok(harvest) => {
                let lag = harvest.oldest.map(|at| age(work.now, Some(at)));
                let metrics = &self.deps.metrics;
                metrics.harvested(harvest.bytes, harvest.stored, lag);
            }
            Err(_) => self.deps.metrics.harvest_failed(),
        }
        tell(span, work, &harvested);
        harvested
    }

    /// A sandbox that was given its turn at creation and never became ready.
    pub(super) async fn look_at_unready(&self, work: &Work<'_>) -> Option<Seen> {
        if work.session.phase == Phase::Canceling {
            // it may just be being made: it is removed by name after the settle
            return Some(Seen::Unreadable);
        }
        match self.deps.lifecycle.look(&work.sandbox.into()).await {
            Look::Gone => Some(Seen::Gone),
            Look::Running | Look::Unknown => Some(Seen::Unreadable),
        }
    }

    pub(super) async fn known(
        &self,
        work: &Work<'_>,
        seen: Seen,
        harvest: Option<&Harvest>,
    ) -> Result<Known, StoreError> {
        let (session, turn) = (&work.lease.session, work.turn);
        let form = work.form();
        let clear = match seen {
            Seen::Gone | Seen::Running => true,
            Seen::Unreadable => false,
            Seen::Read { log, .. } if form == Form::Legacy => log != Log::Foreign,
            Seen::Read { driver, log } => !is_unclear(driver, log),
        };
        // a window that began with an earlier turn is none of this one's
        let unclear = match work.lease.unclear_since {
            Some(_) if !clear => {
                let begun = turn.delivered_at.max(turn.delivery_started_at);
                let before = age(work.now, work.lease.unclear_since).min(age(work.now, begun));
                before + work.began.elapsed()
            }
            _ => Duration::ZERO,
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
        let mut silent = age(work.now, last);
        if silent >= self.deps.timings.turn_deadline {
            // a session that is full stores no part any more, but its log still grows
            let read = self
                .deps
                .db
                .harvested_at(session, turn.generation, turn.turn)
                .await?;
            silent = read.map_or(silent, |read| silent.min(age(work.now, Some(read))));
        }
        // a full log shows no part any more, but its driver says that it goes on
        let status = harvest.and_then(|harvest| harvest.status.as_ref());
        let status =
            status.filter(|s| s.turn == Some(turn.turn) && s.generation == Some(turn.generation));
        let spoken = status.and_then(Status::last_part_at);
        if let Some(at) = spoken.filter(|at| at.duration_since(work.now) <= CLOCKS_APART) {
            silent = silent.min(age(work.now, Some(at)));
        }
        Ok(Known {
            form,
            turn_end: row.expected_parts.is_some(),
            canceling: (work.session.phase == Phase::Canceling)
                .then(|| age(work.now, work.session.cancel_requested_at)),
            stop_requested: row.stop_requested_at.is_some(),
            silent,
            unclear,
        })
    }

    pub(super) async fn legacy_end(
        &self,
        work: &Work<'_>,
        state: TurnState,
        harvest: Option<&Harvest>,
    ) -> Result<Legacy, StoreError> {
        let (session, turn): (&SessionId, TurnNo) = (&work.lease.session, work.turn.turn);
        let contiguous = self.deps.db.contiguous_end(session, turn).await?;
        let whole = harvest.is_some_and(|h| {
            h.log == Log::ReadOn
                && h.status
                    .as_ref()
                    .is_some_and(|status| !status.evidence_truncated())
        });
        Ok(Legacy {
            state,
            parts: contiguous.0,
            whole,
        })
    }
}

/// Nothing was learned of the sandbox. A gateway that is away comes back, one that refuses this api's word does not.
fn log_unasked(work: &Work<'_>, failure: ExecFailure) {
    let (session, turn) = (&work.lease.session, work.turn.turn);
    match failure {
        ExecFailure::Refused(status) if status == 429 || status >= 500 => {
            tracing::warn!(%session, %turn, %failure, "the gateway can not be asked");
        }
        ExecFailure::Refused(_) => {
            tracing::error!(%session, %turn, %failure, "the gateway refuses to be asked");
        }
        _ => tracing::info!(%session, %turn, %failure, "the gateway can not be asked"),
    }
}
