//! Where one viewer takes its next part from, and what it does when the part is nowhere: the rules, without time or tasks.
//!
//! A viewer stands at one index of one turn. It looks into the tail, where there is one, else into the store, and what it finds
//! decides what it does next:
//!
//! ```text
//!   tail: a run ──▶ Send        evicted, jumped over, or no tail ──▶ ReadStore
//!         nothing ──▶ Wait      nothing any more ──▶ ReadStore, then TurnEnd
//!   store: a run ──▶ Send       missing for good ──▶ Skip (told)
//!          missing perhaps ──▶ Hole (wake the harvest, ask again) ──after HOLE_WAIT──▶ Skip (told)
//! ```
//!
//! The position only grows, and every index is either sent or part of a told range: that is the whole proof that a viewer
//! sees each part once, in order.

use std::sync::Arc;

use bex_proto::PartIndex;
use bex_proto::limits;
use bex_proto::session::TruncationReason;
use bex_proto::transcript::Part;
use tokio::time::Instant;

use crate::hub::tail::{SourceEnd, TailRead};

/// What is known of the turn beside its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Known {
    /// Whether it is settled, and how.
    pub settled: Settled,
    /// The quota refuses this index and everything above.
    pub quota_from: Option<PartIndex>,
    /// First and last index that a full log dropped.
    pub dropped: Option<(PartIndex, PartIndex)>,
    /// What of it is shown.
    pub reach: Reach,
}

/// Whether a turn is settled, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Settled {
    /// More may come.
    #[default]
    Open,
    /// Everything that was spoken is stored.
    Whole,
    /// Something is missing.
    Truncated(TruncationReason),
}

impl Settled {
    /// Whether more may come.
    pub fn is_open(self) -> bool {
        self == Self::Open
    }

    /// Why a part that is not stored will never be; `None` while it may be.
    fn missing(self) -> Option<TruncationReason> {
        match self {
            Self::Open => None,
            // what was declared is all there; a part beside it was lost on its way to the store
            Self::Whole => Some(TruncationReason::StoreFailed),
            Self::Truncated(reason) => Some(reason),
        }
    }
}

/// What of a turn a viewer is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// Also what is spoken now.
    #[default]
    Live,
    /// Only what is stored.
    StoredOnly,
}

/// What the store has at the viewer's position.
#[derive(Debug, Clone, Default)]
pub struct StoreRead {
    /// A contiguous run that begins at the position.
    pub parts: Vec<Arc<Part>>,
    /// When the run is empty: the turn's first stored index behind the position.
    pub next: Option<PartIndex>,
}

/// What to do next.
#[derive(Debug, Clone)]
pub enum Do {
    /// Send these, in order. The position is behind them already.
    Send(Vec<Arc<Part>>),
    /// Read the store at the position and say what it has.
    ReadStore,
    /// Tell that `from..=to` is missing. The position is behind it already.
    Skip {
        /// First missing index.
        from: PartIndex,
        /// Last missing index.
        to: PartIndex,
        /// Why.
        reason: TruncationReason,
    },
    /// The next part is not spoken yet: wait for tail, notice or target.
    Wait,
    /// The next part was spoken and is in neither tail nor store: have it harvested, and ask again until then.
    Hole {
        /// When the waiting is over.
        until: Instant,
    },
    /// Nothing more comes in this turn.
    TurnEnd(Ending),
}

/// Why a turn has no more parts for this viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is settled and everything stored was sent.
    Settled,
    /// Its source ended.
    Source(SourceEnd),
    /// It is open, but the viewer may only see what is stored.
    ReplayOnly,
}

/// Why the store is asked.
#[derive(Debug, Clone, Copy)]
enum Ask {
    /// The tail goes on from here.
    Behind(PartIndex),
    /// The driver's ids jumped to here.
    Jump(PartIndex),
    /// There is no tail, or it has nothing and the turn is settled.
    Stored,
    /// The tail has ended this way; a harvest may have stored more than the source could use.
    After(SourceEnd),
}

/// One viewer's position in one turn.
#[derive(Debug)]
pub struct Pull {
    at: PartIndex,
    ask: Ask,
    hole: Option<(PartIndex, Instant)>,
}

impl Pull {
    /// A viewer whose next part is `at`.
    pub fn new(at: PartIndex) -> Self {
        Self {
            at,
            ask: Ask::Stored,
            hole: None,
        }
    }

    /// The next part's index.
    pub fn at(&self) -> PartIndex {
        self.at
    }

    /// Without a tail: the store decides.
    pub fn without_tail(&mut self) -> Do {
        self.ask = Ask::Stored;
        Do::ReadStore
    }

    /// What the tail has at the position.
    pub fn on_tail(&mut self, read: TailRead, known: &Known) -> Do {
        self.ask = match read {
            TailRead::Parts(parts) => return self.send(parts),
            TailRead::Behind { floor } => Ask::Behind(floor),
            TailRead::Jump { to } => Ask::Jump(to),
            TailRead::Wait if known.settled.is_open() => return Do::Wait,
            TailRead::Ended(SourceEnd::Drained) => {
                return Do::TurnEnd(Ending::Source(SourceEnd::Drained));
            }
            TailRead::Wait | TailRead::Ended(SourceEnd::Unnumbered) => Ask::Stored,
            TailRead::Ended(end) => Ask::After(end),
        };
        Do::ReadStore
    }

    /// What the store has at the position.
    pub fn on_store(&mut self, read: StoreRead, known: &Known, now: Instant) -> Do {
        if !read.parts.is_empty() {
            return self.send(read.parts);
        }
        let next = read.next.filter(|next| *next > self.at);
        match self.ask {
            Ask::Jump(to) => self.skip_to(to, next, TruncationReason::LogTruncated),
            Ask::Behind(floor) => match known.missing(self.at) {
                Some(reason) => self.skip_to(floor, next, reason),
                None => self.hole(floor, next, now),
            },
            Ask::Stored | Ask::After(_) => match (known.settled.missing(), next) {
                (Some(reason), Some(next)) => self.skip_to(next, None, reason),
                (Some(_), None) => Do::TurnEnd(Ending::Settled),
                // of an open turn nothing behind a hole is shown: it may still be filled
                (None, _) => match self.ask {
                    Ask::After(end) => Do::TurnEnd(Ending::Source(end)),
                    _ if known.reach == Reach::StoredOnly => Do::TurnEnd(Ending::ReplayOnly),
                    _ => Do::Wait,
                },
            },
        }
    }

    fn send(&mut self, parts: Vec<Arc<Part>>) -> Do {
        if let Some(last) = parts.last() {
            self.at = last.id.index.next();
        }
        self.hole = None;
        Do::Send(parts)
    }

    fn hole(&mut self, floor: PartIndex, next: Option<PartIndex>, now: Instant) -> Do {
        let since = match self.hole {
            Some((at, since)) if at == self.at => since,
            _ => {
                self.hole = Some((self.at, now));
                now
            }
        };
        let until = since + limits::HOLE_WAIT;
        if now < until {
            Do::Hole { until }
        } else {
            self.skip_to(floor, next, TruncationReason::StoreFailed)
        }
    }

    /// Goes on at `to`, or at what is stored before it.
    fn skip_to(&mut self, to: PartIndex, next: Option<PartIndex>, reason: TruncationReason) -> Do {
        let to = next.map_or(to, |next| next.min(to));
        let from = std::mem::replace(&mut self.at, to);
        self.hole = None;
        Do::Skip {
            from,
            to: PartIndex(to.0 - 1),
            reason,
        }
    }
}

impl Known {
    /// Why the part at `at` will never be stored, as far as anybody knows.
    fn missing(&self, at: PartIndex) -> Option<TruncationReason> {
        if self.quota_from.is_some_and(|mark| mark <= at) {
            Some(TruncationReason::SessionQuota)
        } else if self
            .dropped
            .is_some_and(|(first, last)| first <= at && at <= last)
        {
            Some(TruncationReason::LogTruncated)
        } else {
            self.settled.missing()
        }
    }
}

#[cfg(test)]
mod tests;
