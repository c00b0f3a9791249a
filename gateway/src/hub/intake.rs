//! What a tee takes from its tail and when it is through: its rules without its tasks. The shell feeds moments and outcomes
//! of appends; [`Batcher`] decides what is appended together.

use bex_proto::PartIndex;
use bex_proto::limits;
use tokio::time::Instant;

use super::batcher::{Batch, Batcher};
use super::tail::{Tail, TailRead};
use super::tee::TeeEnd;

/// Parts pulled from the tail at once.
const PULL_PARTS: usize = limits::TEE_BATCH_PARTS;

/// What the tail still has for the tee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supply {
    /// Nothing now.
    Waiting,
    /// More than there is room for.
    NoRoom,
    /// Nothing ever again.
    Ended,
    /// It lost parts that were not taken.
    Overtaken,
}

/// A tee's position in its tail, and what it holds.
#[derive(Debug, Default)]
pub struct Intake {
    batcher: Batcher,
    /// The next index to take; `None` until the source has begun.
    at: Option<PartIndex>,
}

impl Intake {
    /// Takes from the tail what there is room for. What the tail will not add to is not kept waiting for company.
    pub fn take(&mut self, tail: &Tail, now: Instant) -> Supply {
        let supply = self.take_what_fits(tail, now);
        if matches!(supply, Supply::Ended | Supply::Overtaken) {
            self.batcher.flush();
        }
        supply
    }

    fn take_what_fits(&mut self, tail: &Tail, now: Instant) -> Supply {
        let Some(mut at) = self.at.or_else(|| tail.base()) else {
            return if tail.end().is_some() {
                Supply::Ended
            } else {
                Supply::Waiting
            };
        };
        let supply = loop {
            match tail.read(at, PULL_PARTS) {
                TailRead::Parts(parts) => {
                    let mut room = true;
                    for part in parts {
                        room = self.batcher.has_room(&part);
                        if !room {
                            break;
                        }
                        at = part.id.index.next();
                        self.batcher.take(part, now);
                    }
                    if !room {
                        break Supply::NoRoom;
                    }
                }
                TailRead::Jump { to } => at = to,
                TailRead::Behind { .. } => break Supply::Overtaken,
                TailRead::Wait => break Supply::Waiting,
                TailRead::Ended(_) => break Supply::Ended,
            }
        };
        self.at = Some(at);
        supply
    }

    /// The next index to take, once the source has begun.
    pub fn at(&self) -> Option<PartIndex> {
        self.at
    }

    /// See [`Batcher::due`].
    pub fn due(&self) -> Option<Instant> {
        self.batcher.due()
    }

    /// What was taken has waited for company long enough.
    pub fn flush(&mut self) {
        self.batcher.flush();
    }

    /// See [`Batcher::next_batch`].
    pub fn next_batch(&mut self) -> Option<Batch> {
        self.batcher.next_batch()
    }

    /// See [`Batcher::appended`].
    pub fn appended(&mut self) {
        self.batcher.appended();
    }

    /// Whether the tee is through: the tail gives nothing more, and everything taken is stored.
    pub fn end(&self, supply: Supply) -> Option<TeeEnd> {
        match supply {
            Supply::Ended if self.batcher.is_idle() => Some(TeeEnd::Flushed),
            Supply::Overtaken if self.batcher.is_idle() => Some(TeeEnd::Overtaken),
            _ => None,
        }
    }
}
