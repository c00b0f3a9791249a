//! The newest events of a watched session, rendered, and shared by everybody who reads along.
//!
//! Nothing is queued per viewer and none can hold another: one that is too slow is told that it is [`Then::Behind`] and reads the store.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bex_proto::limits;
use bex_store::remote::{DurableTurn, Look, Standing};
use bytes::Bytes;
use tokio::sync::watch;

use super::frames;
use super::place::{Known, KnownTurn, Place, Step};

/// What is handed out at once.
const RUN_BYTES: usize = 64 * 1024;

/// Why nothing will come any more, though the session did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailEnd {
    /// The session was deleted.
    Gone,
    /// The store could not be read for too long.
    Store,
}

/// What a viewer does once it has sent what it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Come back.
    More,
    /// Wait for a change.
    Wait,
    /// Read the store: its place is not, or no longer, held here, or it is at a gap.
    Behind,
    /// That was everything.
    Done,
    /// See [`TailEnd`].
    Ended(TailEnd),
}

/// Something to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Of an event of the log.
    pub event: Option<u64>,
    /// Whole events of the wire.
    pub frame: Bytes,
}

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub struct TailLimits {
    /// Bytes of all frames.
    pub bytes: usize,
    /// Events, and turns.
    pub events: usize,
}

impl Default for TailLimits {
    fn default() -> Self {
        Self {
            bytes: limits::REMOTE_TAIL_BYTES,
            events: limits::REMOTE_TAIL_EVENTS,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Tail {
    ring: Mutex<Ring>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Ring {
    limits: TailLimits,
    /// As of the last look; `None` before the first.
    standing: Option<Standing>,
    events: VecDeque<(u64, Bytes)>,
    bytes: usize,
    /// From here on the events are these; below, they are the store's.
    floor: u64,
    /// Up to here, and not further.
    next: u64,
    turns: VecDeque<Turn>,
    /// As `floor` and `next`, of turns.
    turns_floor: u64,
    turns_next: u64,
    end: Option<TailEnd>,
}

#[derive(Debug)]
struct Turn {
    known: KnownTurn,
    frame: Bytes,
}

impl Default for Tail {
    fn default() -> Self {
        Self::with_limits(TailLimits::default())
    }
}

impl Tail {
    /// An empty tail with other bounds than the usual.
    pub fn with_limits(limits: TailLimits) -> Self {
        Self {
            ring: Mutex::new(Ring {
                limits,
                standing: None,
                events: VecDeque::new(),
                bytes: 0,
                floor: 0,
                next: 0,
                turns: VecDeque::new(),
                turns_floor: 0,
                turns_next: 0,
                end: None,
            }),
            changed: watch::Sender::new(()),
        }
    }

    /// From where the next look reads; `None` before the first, which reads no events.
    pub fn next(&self) -> Option<u64> {
        let ring = self.ring();
        ring.standing.map(|_| ring.next)
    }

    /// The number of the first turn that the next look reads, if `standing` says that there is one.
    pub fn next_turn(&self, standing: &Standing) -> Option<u64> {
        let ring = self.ring();
        let is_new = ring.standing.is_some() && ring.turns_next < standing.turn_count;
        is_new.then_some(ring.turns_next)
    }

    /// Adds what a look found from [`Tail::next`] on, and turns from [`Tail::next_turn`] on. Viewers are woken once for all.
    pub fn push(&self, look: &Look, turns: &[DurableTurn]) {
        let rendered: Vec<_> = look
            .events
            .iter()
            .map(|row| (row.index, frames::event(row)))
            .collect();
        self.ring().push(look, rendered, turns);
        self.changed.send_replace(());
    }

    /// Nothing comes any more. The first end holds.
    pub fn finish(&self, end: TailEnd) {
        self.ring().end.get_or_insert(end);
        self.changed.send_replace(());
    }

    /// Whether nothing comes any more.
    pub fn has_ended(&self) -> bool {
        self.ring().end.is_some()
    }

    /// Gives what comes next at `place`, some 64 KiB at most, and moves it.
    pub fn read(&self, place: &mut Place, shown: &mut Vec<Shown>) -> Then {
        self.ring().read(place, shown)
    }

    /// Wakes at every change after this call. Take it before reading, so that nothing is missed in between.
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // every method leaves the ring consistent, so a panic elsewhere does not spoil it
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn push(&mut self, look: &Look, rendered: Vec<(u64, Bytes)>, turns: &[DurableTurn]) {
        let standing = look.standing;
        if self.standing.replace(standing).is_none() {
            (self.floor, self.next) = (look.covered, look.covered);
            (self.turns_floor, self.turns_next) = (standing.turn_count, standing.turn_count);
            return;
        }
        for (index, frame) in rendered {
            self.bytes += frame.len();
            self.events.push_back((index, frame));
        }
        self.next = self.next.max(look.covered);
        while self.events.len() > self.limits.events || self.bytes > self.limits.bytes {
            let Some((index, frame)) = self.events.pop_front() else {
                break;
            };
            self.bytes -= frame.len();
            self.floor = index + 1;
        }
        if standing.turn_count < self.turns_next {
            // all turns are being made again from the log: with the same numbers, so that whoever was told of one is not told again
            self.turns.clear();
            (self.turns_floor, self.turns_next) = (standing.turn_count, standing.turn_count);
        }
        for turn in turns {
            self.turns_next = turn.number + 1;
            self.turns.push_back(Turn {
                known: KnownTurn {
                    number: turn.number,
                    last: turn.last,
                },
                frame: frames::turn(&turn.id),
            });
        }
        while self.turns.len() > self.limits.events {
            if let Some(turn) = self.turns.pop_front() {
                self.turns_floor = turn.known.number + 1;
            }
        }
    }

    fn read(&self, place: &mut Place, shown: &mut Vec<Shown>) -> Then {
        if let Some(end) = self.end {
            return Then::Ended(end);
        }
        let Some(standing) = self.standing else {
            return Then::Wait;
        };
        if place.next < self.floor || place.turn < self.turns_floor {
            return Then::Behind;
        }
        let mut event = self
            .events
            .partition_point(|(index, _)| *index < place.next);
        let mut turn = self
            .turns
            .partition_point(|turn| turn.known.number < place.turn);
        let mut bytes = 0;
        while bytes < RUN_BYTES {
            let (at, told) = (self.events.get(event), self.turns.get(turn));
            let step = place.step(&Known {
                standing,
                // what is held here is there, whatever became of it in the store
                purged: 0,
                covered: self.next,
                event: at.map(|(index, _)| *index),
                turn: told.map(|turn| turn.known),
            });
            let frame = match (step, at, told) {
                (Step::Event(_), Some((_, frame)), _) => {
                    event += 1;
                    frame.clone()
                }
                (Step::Turn(_), _, Some(told)) => {
                    turn += 1;
                    told.frame.clone()
                }
                (Step::Import(_), ..) => {
                    turn += 1;
                    Bytes::new()
                }
                // what came late may be there by now
                (Step::Gap(..), ..) => return Then::Behind,
                (Step::State(state), ..) => frames::state(state),
                (Step::Done, ..) => return Then::Done,
                // the next look brings what is not here yet
                _ => return Then::Wait,
            };
            place.take(step);
            if !frame.is_empty() {
                bytes += frame.len();
                let event = match step {
                    Step::Event(index) => Some(index),
                    _ => None,
                };
                shown.push(Shown { event, frame });
            }
        }
        Then::More
    }
}

#[cfg(test)]
mod tests {
    use bex_proto::remote::{OutputStream, RemoteState};
    use bex_store::remote::LogRow;

    use super::*;

    fn look(from: u64, events: std::ops::Range<u64>, turn_count: u64) -> Look {
        assert!(from <= events.start);
        let standing = Standing {
            state: RemoteState::Active,
            next_index: events.end,
            first_index: 0,
            seen_index: 0,
            turn_count,
        };
        let row = |index| LogRow {
            index,
            stream: OutputStream::Stdout,
            data: "x".repeat(100),
            complete: false,
            at: jiff::Timestamp::UNIX_EPOCH,
        };
        Look {
            standing,
            covered: events.end,
            events: events.map(row).collect(),
        }
    }

    fn turn(number: u64, last: u64) -> DurableTurn {
        DurableTurn {
            number,
            id: format!("trn-{number}"),
            last: Some(last),
        }
    }

    fn at(next: u64, turn: u64) -> Place {
        Place {
            next,
            turn,
            state: Some(RemoteState::Active),
        }
    }

    fn read(tail: &Tail, place: &mut Place) -> (Vec<Option<u64>>, Then) {
        let mut shown = Vec::new();
        let then = tail.read(place, &mut shown);
        (shown.into_iter().map(|shown| shown.event).collect(), then)
    }

    #[test]
    fn what_was_pushed_is_read_from_any_place_that_is_still_held() {
        let tail = Tail::with_limits(TailLimits {
            bytes: 1 << 20,
            events: 4,
        });
        let mut place = at(10, 0);
        assert_eq!(read(&tail, &mut place), (vec![], Then::Wait), "not begun");
        assert_eq!(tail.next(), None);
        tail.push(&look(10, 10..10, 0), &[]);
        assert_eq!((tail.next(), tail.has_ended()), (Some(10), false));
        assert_eq!(read(&tail, &mut at(9, 0)), (vec![], Then::Behind));
        assert_eq!(read(&tail, &mut place), (vec![], Then::Wait));
        let looked = look(10, 10..13, 1);
        assert_eq!(tail.next_turn(&looked.standing), Some(0));
        tail.push(&looked, &[turn(0, 11)]);
        let expected = vec![Some(10), Some(11), None, Some(12)];
        assert_eq!(read(&tail, &mut place), (expected, Then::Wait));
        assert_eq!(place, at(13, 1));
        // a gap of two, then more than is kept
        tail.push(&look(13, 15..19, 1), &[]);
        assert_eq!(read(&tail, &mut place), (vec![], Then::Behind), "a gap");
        let all = vec![Some(15), Some(16), Some(17), Some(18)];
        assert_eq!(read(&tail, &mut at(15, 1)), (all, Then::Wait));
        assert_eq!(read(&tail, &mut at(12, 1)), (vec![], Then::Behind));
        let all = vec![None, Some(15), Some(16), Some(17), Some(18)];
        assert_eq!(
            read(&tail, &mut at(15, 0)),
            (all, Then::Wait),
            "a turn that was not told comes first"
        );
        assert_eq!(
            read(&tail, &mut at(100, 1)),
            (vec![], Then::Wait),
            "ahead of it"
        );
        tail.finish(TailEnd::Gone);
        assert_eq!(
            read(&tail, &mut place),
            (vec![], Then::Ended(TailEnd::Gone))
        );
    }

    #[test]
    fn an_event_larger_than_the_tail_is_read_from_the_store() {
        let tail = Tail::with_limits(TailLimits {
            bytes: 150,
            events: 4,
        });
        tail.push(&look(0, 0..0, 0), &[]);
        tail.push(&look(0, 0..2, 0), &[]);
        assert_eq!(read(&tail, &mut at(0, 0)), (vec![], Then::Behind));
        assert_eq!(read(&tail, &mut at(2, 0)), (vec![], Then::Wait));
    }

    #[test]
    fn turns_made_again_are_not_told_again() {
        let tail = Tail::default();
        tail.push(&look(0, 0..5, 3), &[]);
        assert_eq!(read(&tail, &mut at(5, 2)), (vec![], Then::Behind));
        let again = look(5, 5..5, 0);
        assert_eq!(tail.next_turn(&again.standing), None);
        tail.push(&again, &[]);
        let whole = look(5, 5..5, 4);
        assert_eq!(tail.next_turn(&whole.standing), Some(0));
        tail.push(&whole, &[0, 1, 2, 3].map(|n| turn(n, n)));
        assert_eq!(read(&tail, &mut at(5, 3)), (vec![None], Then::Wait));
    }
}
