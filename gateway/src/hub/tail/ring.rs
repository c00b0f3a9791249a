//! The bounded memory of a tail and its rules, without time or tasks.

use std::collections::VecDeque;
use std::sync::Arc;

use bex_proto::PartIndex;
use bex_proto::limits;
use bex_proto::transcript::Part;

use super::SourceEnd;

/// What a reader finds at its position.
#[derive(Debug, Clone)]
pub enum TailRead {
    /// A contiguous run that begins at the position.
    Parts(Vec<Arc<Part>>),
    /// The driver's ids jumped over the position; the next spoken part is `to`.
    Jump {
        /// First index behind the jump.
        to: PartIndex,
    },
    /// The position was evicted; the tail goes on from `floor`.
    Behind {
        /// The lowest position the tail can still answer for.
        floor: PartIndex,
    },
    /// Nothing there yet.
    Wait,
    /// Nothing there, and nothing will come.
    Ended(SourceEnd),
}

/// Where the fastest viewer is beside the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// It has everything.
    CaughtUp,
    /// It is close behind.
    Following,
    /// Half of the ring's room is not taken by it.
    Outrun,
}

/// How much a ring keeps.
#[derive(Debug, Clone, Copy)]
pub struct RingLimits {
    /// Bytes of all parts.
    pub bytes: usize,
    /// Number of parts.
    pub parts: usize,
}

impl Default for RingLimits {
    fn default() -> Self {
        Self {
            bytes: limits::TAIL_BYTES,
            parts: limits::TAIL_PARTS,
        }
    }
}

/// Parts of one turn in index order, oldest evicted first.
#[derive(Debug)]
pub struct Ring {
    limits: RingLimits,
    parts: VecDeque<Arc<Part>>,
    bytes: usize,
    /// Every spoken part at or above this index is here.
    floor: PartIndex,
    /// Where the source began; `None` until it knows.
    base: Option<PartIndex>,
    /// The next index expected from the driver.
    next: Option<PartIndex>,
    end: Option<SourceEnd>,
    /// Where the fastest viewer stands; `None` while there is none.
    lead: Option<PartIndex>,
    /// Bytes at and behind `lead`.
    unseen: usize,
}

impl Ring {
    /// An empty ring that does not know yet where its source begins.
    pub fn new(limits: RingLimits) -> Self {
        Self {
            limits,
            parts: VecDeque::new(),
            bytes: 0,
            floor: PartIndex(0),
            base: None,
            next: None,
            end: None,
            lead: None,
            unseen: 0,
        }
    }

    /// The source will give the parts from `base` on; what is before is the store's.
    pub fn begin(&mut self, base: PartIndex) {
        self.floor = base;
        self.base = Some(base);
        self.next = Some(base);
    }

    /// Where the source began.
    pub fn base(&self) -> Option<PartIndex> {
        self.base
    }

    /// The next index expected from the driver.
    pub fn next(&self) -> Option<PartIndex> {
        self.next
    }

    /// Adds the driver's next part. False when it is older than what came before: the identity is taken, the part is dropped.
    pub fn push(&mut self, part: Arc<Part>) -> bool {
        let index = part.id.index;
        if self.end.is_some() || self.next.is_none_or(|next| index < next) {
            return false;
        }
        self.bytes += part.bytes.len();
        // a viewer may be ahead of a source that began again
        if self.lead.is_none_or(|lead| index >= lead) {
            self.unseen += part.bytes.len();
        }
        self.parts.push_back(part);
        self.next = Some(index.next());
        while self.parts.len() > self.limits.parts || self.bytes > self.limits.bytes {
            let Some(oldest) = self.parts.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes.len();
            self.floor = oldest.id.index.next();
            if self.lead.is_none_or(|lead| oldest.id.index >= lead) {
                self.unseen -= oldest.bytes.len();
            }
        }
        true
    }

    /// A viewer stands at `at`: everything before it, it has.
    pub fn follow(&mut self, at: PartIndex) {
        let from = match self.lead {
            Some(lead) if at <= lead => return,
            Some(lead) => self.parts.partition_point(|part| part.id.index < lead),
            None => 0,
        };
        let seen = self
            .parts
            .range(from..)
            .take_while(|part| part.id.index < at);
        self.unseen -= seen.map(|part| part.bytes.len()).sum::<usize>();
        self.lead = Some(at);
    }

    /// Where the fastest viewer is beside the source. One without viewers outruns nobody.
    pub fn pace(&self) -> Pace {
        let Some(lead) = self.lead else {
            return Pace::CaughtUp;
        };
        let ahead = self.next.map_or(0, |next| next.0.saturating_sub(lead.0));
        if ahead == 0 {
            Pace::CaughtUp
        } else if self.unseen > self.limits.bytes / 2 || ahead as usize > self.limits.parts / 2 {
            Pace::Outrun
        } else {
            Pace::Following
        }
    }

    /// How the source ended, if it did.
    pub fn end(&self) -> Option<SourceEnd> {
        self.end
    }

    /// Nothing will be added any more. The first end stands.
    pub fn finish(&mut self, end: SourceEnd) {
        self.end.get_or_insert(end);
    }

    /// What stands at `at`: at most `max` parts.
    pub fn read(&self, at: PartIndex, max: usize) -> TailRead {
        if self.next.is_some() && at < self.floor {
            return TailRead::Behind { floor: self.floor };
        }
        let from = self.parts.partition_point(|part| part.id.index < at);
        let Some(first) = self.parts.get(from) else {
            return self.end.map_or(TailRead::Wait, TailRead::Ended);
        };
        if first.id.index > at {
            return TailRead::Jump { to: first.id.index };
        }
        let run = self
            .parts
            .range(from..)
            .take(max)
            .zip(at.0..)
            .take_while(|(part, index)| part.id.index.0 == *index)
            .map(|(part, _)| Arc::clone(part));
        TailRead::Parts(run.collect())
    }
}

#[cfg(test)]
mod tests;
