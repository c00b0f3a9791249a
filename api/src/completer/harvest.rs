//! Reading a turn's log into the store: only what is new, proved before it is used, in batches that move the log's
//! recorded offset in the same transaction.

use std::panic::AssertUnwindSafe;

use bex_proto::driver::{DriverState, Status, TurnState};
use bex_proto::exec::LogWindow;
use bex_store::StoreError;
use bex_store::transcript::{Append, AppendError, AppendOutcome, HarvestStep};
use bytes::Bytes;
use jiff::Timestamp;
use tokio::task::JoinError;

use super::decide::{Driver, Log};
use super::log::{Batch, Expected, Form, LogEnd, LogReader};
use super::store::CompleterStore;
use crate::exec_client::{ExecFailure, ExecTarget, SandboxRpc, Windows, read_window};

/// Bytes that are parsed in less time than a thread takes to be woken for it.
const SOON_PARSED: usize = 64 * 1024;
/// Windows of one harvest. A whole turn log is one; what is left is read in the next round.
const WINDOWS: usize = 4;

/// Where a turn is harvested from.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The store.
    pub db: &'a dyn CompleterStore,
    /// The way into the sandbox.
    pub rpc: &'a dyn SandboxRpc,
    /// The process's memory for logs.
    pub windows: &'a Windows,
    /// The sandbox.
    pub target: &'a ExecTarget,
    /// The turn.
    pub expected: Expected,
}

/// What a harvest saw. Everything it read is stored.
#[derive(Debug, Clone)]
pub struct Harvest {
    /// status.json, when it was there and parsed.
    pub status: Option<Status>,
    /// How far the log was read.
    pub log: Log,
    /// Parts that were not stored before.
    pub stored: u32,
    /// Log bytes that were read into the store.
    pub bytes: u64,
    /// When the oldest of the new parts was spoken, by the driver's clock.
    pub oldest: Option<Timestamp>,
}

/// Why a harvest stopped. What was read before is stored.
#[derive(Debug, thiserror::Error)]
pub enum HarvestFault {
    /// The sandbox did not answer.
    #[error(transparent)]
    Exec(#[from] ExecFailure),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store refused a batch, and will refuse it again.
    #[error("the store refuses a batch of the log")]
    Refused(#[source] AppendError),
    /// The parser did not come back.
    #[error(transparent)]
    Parser(#[from] ParserFault),
    /// The turn is settled, another generation speaks it, or another harvest is ahead.
    #[error("the turn moved meanwhile")]
    Moved,
}

/// Why a log was not parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParserFault {
    /// The process ends.
    #[error("the process ended before the log was parsed")]
    RuntimeEnds,
    /// A fault of ours, which the same log will meet again.
    #[error("the parser panicked")]
    Panicked,
}

impl From<JoinError> for ParserFault {
    fn from(error: JoinError) -> Self {
        if error.is_panic() {
            Self::Panicked
        } else {
            Self::RuntimeEnds
        }
    }
}

/// Where reading goes on.
struct Position {
    log_id: Option<String>,
    offset: u64,
    tracking: Tracking,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tracking {
    /// The recorded offset moves along.
    Recorded,
    /// The log became shorter than what was recorded: it is read again from its start, and nothing is recorded.
    Reread,
}

impl Harvest {
    /// What the status says of the expected turn.
    pub fn driver(&self, expected: &Expected) -> Driver {
        let Some(status) = &self.status else {
            return Driver::NotBegun;
        };
        if expected.form == Form::Legacy {
            return match status.state {
                DriverState::Succeeded => Driver::Over(TurnState::Succeeded),
                DriverState::Failed => Driver::Over(TurnState::Failed),
                DriverState::Running | DriverState::Idle => Driver::Speaking,
            };
        }
        let turn = status
            .turn
            .filter(|_| status.generation == Some(expected.generation));
        match (status.state, turn) {
            (DriverState::Failed, _) => Driver::Over(TurnState::Failed),
            (_, None) => Driver::NotBegun,
            (_, Some(turn)) if turn < expected.turn => Driver::NotBegun,
            (DriverState::Running, Some(turn)) if turn == expected.turn => Driver::Speaking,
            (DriverState::Running | DriverState::Idle | DriverState::Succeeded, Some(_)) => {
                Driver::Done
            }
        }
    }
}

impl Source<'_> {
    /// Reads what is new.
    ///
    /// # Errors
    /// See [`HarvestFault`].
    pub async fn harvest(&self) -> Result<Harvest, HarvestFault> {
        let Expected {
            turn, generation, ..
        } = self.expected;
        let session = &self.target.session;
        let mut at = match self.db.last_harvest(session, generation, turn).await? {
            Some((log_id, offset)) => Position {
                log_id: Some(log_id),
                offset,
                tracking: Tracking::Recorded,
            },
            None => Position {
                log_id: None,
                offset: 0,
                tracking: Tracking::Recorded,
            },
        };
        let mut harvest = Harvest {
            status: None,
            log: Log::Absent,
            stored: 0,
            bytes: 0,
            oldest: None,
        };
        for _ in 0..WINDOWS {
            let window = read_window(self.rpc, self.windows, self.target, turn, at.offset).await?;
            // given back when its parts are stored
            let _held = window.held;
            harvest.status = window.status.as_deref().and_then(|text| self.status(text));
            let Some((log, bytes)) = window.log else {
                harvest.log = Log::Absent;
                return Ok(harvest);
            };
            if let Some(other) = self.relocated(&at, &log).await? {
                at = other;
                harvest.log = Log::More;
                continue;
            }
            at.log_id = Some(log.log_id.clone());
            let before = at.offset;
            harvest.log = self.store(&mut at, &log, bytes, &mut harvest).await?;
            if harvest.log != Log::More {
                return Ok(harvest);
            }
            if at.offset == before || at.offset >= log.size {
                harvest.log = Log::ReadOn;
                return Ok(harvest);
            }
        }
        Ok(harvest)
    }

    fn status(&self, text: &str) -> Option<Status> {
        match serde_json::from_str(text) {
            Ok(status) => Some(status),
            Err(error) => {
                tracing::warn!(session = %self.target.session, generation = %self.expected.generation, %error, "status.json does not parse");
                None
            }
        }
    }

    /// Where to read instead, when the window is not of the log that was read before, or of less of it.
    async fn relocated(
        &self,
        at: &Position,
        log: &LogWindow,
    ) -> Result<Option<Position>, StoreError> {
        let (session, generation) = (&self.target.session, self.expected.generation);
        if at.log_id.as_ref().is_some_and(|known| *known != log.log_id) {
            tracing::warn!(%session, %generation, "the log was replaced by another one");
            let offset = self
                .db
                .harvest_offset(session, generation, &log.log_id)
                .await?;
            let other = Position {
                log_id: Some(log.log_id.clone()),
                offset,
                tracking: Tracking::Recorded,
            };
            return Ok((other.offset != at.offset).then_some(other));
        }
        if log.size < at.offset {
            tracing::warn!(%session, %generation, "the log became shorter");
            return Ok(Some(Position {
                log_id: Some(log.log_id.clone()),
                offset: 0,
                tracking: Tracking::Reread,
            }));
        }
        Ok(None)
    }

    /// Stores one batch, and moves the recorded offset with it.
    async fn append(
        &self,
        at: &Position,
        log: &LogWindow,
        batch: &Batch,
        harvest: &mut Harvest,
    ) -> Result<(), HarvestFault> {
        let Expected {
            turn, generation, ..
        } = self.expected;
        let session = &self.target.session;
        let step = HarvestStep {
            log_id: &log.log_id,
            from: batch.from,
            to: batch.to,
        };
        let append = Append {
            session,
            turn,
            generation,
            parts: &batch.parts,
            marks: batch.marks,
            harvest: (at.tracking == Tracking::Recorded).then_some(step),
        };
        match self.db.append(append).await {
            Ok(AppendOutcome::Stored(counts)) => {
                harvest.stored += counts.stored;
                harvest.bytes += batch.to.saturating_sub(batch.from);
                if harvest.oldest.is_none() {
                    harvest.oldest = batch.parts.iter().find_map(|part| part.spoken_at);
                }
                if let Some(index) = counts.mismatch {
                    tracing::error!(%session, %turn, %index, "a stored part differs from the driver's log");
                }
                Ok(())
            }
            Ok(
                AppendOutcome::Complete
                | AppendOutcome::WrongGeneration
                | AppendOutcome::UnknownTurn
                | AppendOutcome::OffsetMoved,
            ) => Err(HarvestFault::Moved),
            Err(AppendError::Store(error)) if error.is_transient() => Err(error.into()),
            Err(error) => Err(HarvestFault::Refused(error)),
        }
    }

    /// Stores one window's parts. [`Log::More`] when nothing in it says that it is the last.
    async fn store(
        &self,
        at: &mut Position,
        log: &LogWindow,
        bytes: Bytes,
        harvest: &mut Harvest,
    ) -> Result<Log, HarvestFault> {
        let Expected { generation, .. } = self.expected;
        let session = &self.target.session;
        let reader = LogReader::new(self.expected, log, bytes);
        let (mut reader, mut next) = parse(reader).await?;
        while let Some(batch) = next {
            // the next batch is parsed while this one is stored
            let (parsed, ()) = tokio::try_join!(
                async { Ok(parse(reader).await?) },
                self.append(at, log, &batch, harvest)
            )?;
            at.offset = batch.to;
            (reader, next) = parsed;
        }
        Ok(match reader.end() {
            Some(LogEnd::TurnEnd(end)) => {
                // refused when one is known already: the first stands
                self.db.record_turn_end(session, generation, end).await?;
                Log::Ended
            }
            Some(LogEnd::Foreign) => Log::Foreign,
            Some(LogEnd::Torn) => Log::Torn,
            Some(LogEnd::WindowEnd) | None => Log::More,
        })
    }
}

/// The next batch, parsed where it holds up no other task: what is soon done on the spot, the rest elsewhere.
async fn parse(mut reader: LogReader) -> Result<(LogReader, Option<Batch>), ParserFault> {
    if reader.left() <= SOON_PARSED {
        return std::panic::catch_unwind(AssertUnwindSafe(move || {
            let batch = reader.next_batch();
            (reader, batch)
        }))
        .map_err(|_| ParserFault::Panicked);
    }
    tokio::task::spawn_blocking(move || {
        let batch = reader.next_batch();
        (reader, batch)
    })
    .await
    .map_err(ParserFault::from)
}

#[cfg(test)]
mod tests {
    use bex_proto::exec::WindowEnding;
    use bex_proto::{Generation, TurnNo};
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn a_runtime_that_ends_is_a_fault_and_no_panic() {
        let expected = Expected {
            turn: TurnNo(1),
            generation: Generation(1),
            form: Form::Current,
        };
        let window = LogWindow {
            generation: Some(Generation(1)),
            log_id: "log".into(),
            offset: 0,
            length: 0,
            size: 0,
            sha256: String::new(),
            ending: WindowEnding::Line,
        };
        let reader = LogReader::new(expected, &window, vec![b'x'; SOON_PARSED + 1].into());
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let _entered = handle.enter();
        let parsed = block_on(parse(reader));
        assert_eq!(parsed.err(), Some(ParserFault::RuntimeEnds));
    }
}
