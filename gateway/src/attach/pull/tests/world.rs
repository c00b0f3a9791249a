//! One turn's world in steps, without time or tasks: a driver that speaks and misbehaves, sources that are lost and begun
//! again, tees with an append under way, a harvest, a settle. What decides is the product's own: numbering, tail, intake, and
//! the hub's rule of what is begun again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;

use bex_proto::TurnNo;
use bex_proto::sse::{DONE, Event};
use bytes::Bytes;

use super::super::*;
use crate::hub::batcher::Batch;
use crate::hub::intake::{Intake, Supply};
use crate::hub::numbering::{Form, Numbering, Placed};
use crate::hub::tail::tests::part;
use crate::hub::tail::{RingLimits, Tail};
use crate::hub::tee::TeeEnd;

/// More parts than any schedule speaks.
const PARTS: u32 = 1024;
/// Every part there may be.
pub(super) static SPOKEN: LazyLock<Vec<Arc<Part>>> =
    LazyLock::new(|| (0..PARTS).map(|index| part(1, index)).collect());

/// As the driver sends them.
static EVENTS: LazyLock<Vec<Event>> = LazyLock::new(|| {
    let event = |part: &Arc<Part>| Event::Data {
        id: Some(Bytes::from(part.id.to_string())),
        data: part.bytes.clone(),
    };
    SPOKEN.iter().map(event).collect()
});

/// Where the driver said a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Aloud,
    /// Its stream jumps over it.
    InLogOnly,
}

/// Whether the source that is there at the end hears of it, or stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastWord {
    Heard,
    Unheard,
}

/// How an append ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Append {
    Stored,
    /// It came too late to be believed.
    StoredUnknown,
    Lost,
}

/// One source with its tee, as the hub makes them together.
pub(super) struct Source {
    pub(super) tail: Tail,
    connection: Option<Connection>,
    /// What the tail was given.
    heard: Vec<u32>,
    intake: Intake,
    supply: Supply,
    appending: Option<Batch>,
    appended_to: u32,
    tee: Option<TeeEnd>,
}

/// What the driver has sent and the source has not read.
struct Connection {
    numbering: Numbering,
    wire: VecDeque<Event>,
}

pub(super) struct World {
    limits: RingLimits,
    pub(super) sources: Vec<Source>,
    /// The hub's entry for who speaks now.
    current: Option<usize>,
    pub(super) generation: u32,
    pub(super) delivered: bool,
    said: Vec<Said>,
    /// The driver said `[DONE]` or is gone.
    ended: Option<SourceEnd>,
    pub(super) stored: BTreeMap<u32, Arc<Part>>,
    /// What the turn's row says now.
    pub(super) known: Known,
    pub(super) now: Instant,
    /// Nothing happened by which a part may be missing for good.
    pub(super) lossless: bool,
}

impl World {
    pub(super) fn new(stored: u32, tail_parts: usize, delivered: bool) -> Self {
        let first = if delivered { stored } else { 0 };
        Self {
            limits: RingLimits {
                bytes: 1 << 20,
                parts: tail_parts,
            },
            sources: Vec::new(),
            current: None,
            generation: 1,
            delivered,
            said: vec![Said::Aloud; first as usize],
            ended: None,
            stored: (0..first)
                .map(|i| (i, Arc::clone(&SPOKEN[i as usize])))
                .collect(),
            known: Known::default(),
            now: Instant::now(),
            lossless: true,
        }
    }

    // --- the driver

    pub(super) fn speak(&mut self, parts: u32, said: Said) {
        if !self.delivered || self.ended.is_some() {
            return;
        }
        for _ in 0..parts {
            let index = self.said.len() as u32;
            self.said.push(said);
            if said == Said::Aloud {
                self.send(event(index));
            } else {
                self.lossless = false;
            }
        }
    }

    fn send(&mut self, event: Event) {
        let current = self.current.map(|n| &mut self.sources[n]);
        if let Some(connection) = current.and_then(|source| source.connection.as_mut()) {
            connection.wire.push_back(event);
        }
    }

    /// A driver that says something again, or two things in the wrong order.
    pub(super) fn garble(&mut self, back: u32) {
        let said = self.said.len() as u32;
        if said > 0 && self.said[said.saturating_sub(back + 1) as usize] == Said::Aloud {
            self.send(event(said.saturating_sub(back + 1)));
        }
        let current = self.current.map(|n| &mut self.sources[n]);
        if let Some(connection) = current.and_then(|source| source.connection.as_mut())
            && let [.., before, last] = connection.wire.make_contiguous()
            && back.is_multiple_of(2)
            && last != &done()
        {
            std::mem::swap(before, last);
            self.lossless = false;
        }
    }

    pub(super) fn say_done(&mut self) {
        if self.delivered && self.ended.is_none() {
            self.ended = Some(SourceEnd::Done);
            self.send(done());
        }
    }

    pub(super) fn vanish(&mut self) {
        if self.ended.replace(SourceEnd::Gone) != Some(SourceEnd::Gone) {
            self.hang_up();
        }
    }

    pub(super) fn deliver(&mut self) {
        self.delivered |= self.ended.is_none();
    }

    /// The sandbox was lost before it was given the turn; another one is made.
    pub(super) fn redispatch(&mut self) {
        if self.delivered || self.ended.is_some() {
            return;
        }
        self.generation += 1;
        if let Some(current) = self.current.take() {
            self.sources[current].tail.finish(SourceEnd::Gone);
        }
    }

    // --- the hub

    pub(super) fn join(&mut self) -> usize {
        if let Some(current) = self.current {
            let end = self.sources[current].tail.end();
            if !end.is_some_and(SourceEnd::may_be_begun_again) {
                return current;
            }
        }
        self.sources.push(Source {
            tail: Tail::with_limits(self.limits),
            connection: None,
            heard: Vec::new(),
            intake: Intake::default(),
            supply: Supply::Waiting,
            appending: None,
            appended_to: 0,
            tee: None,
        });
        *self.current.insert(self.sources.len() - 1)
    }

    /// Begins where the store ends, or dials again where the tail does. The driver may repeat some.
    pub(super) fn connect(&mut self, repeated: u32) {
        let Some(source) = self.current.map(|n| &mut self.sources[n]) else {
            return;
        };
        if source.connection.is_some() || source.tail.end().is_some() {
            return;
        }
        let settled_under_it = !self.known.settled.is_open() && source.tail.next().is_some();
        if self.ended == Some(SourceEnd::Gone) || settled_under_it {
            return source.tail.finish(SourceEnd::Gone);
        }
        if source.tail.next().is_none() {
            let end = (0..).find(|i| !self.stored.contains_key(i)).unwrap_or(0);
            source.tail.begin(PartIndex(end));
            source.appended_to = end;
        }
        let from = source.tail.next().expect("it has begun");
        let aloud = (from.0.saturating_sub(repeated)..self.said.len() as u32)
            .filter(|index| self.said[*index as usize] == Said::Aloud);
        let mut wire: VecDeque<Event> = aloud.map(event).collect();
        wire.extend((self.ended == Some(SourceEnd::Done)).then(done));
        source.connection = Some(Connection {
            numbering: Numbering::new(TurnNo(1), Form::Numbered, from),
            wire,
        });
    }

    pub(super) fn hear(&mut self, events: u32) {
        let Some(source) = self.current.map(|n| &mut self.sources[n]) else {
            return;
        };
        for _ in 0..events {
            let Some(connection) = &mut source.connection else {
                return;
            };
            let Some(event) = connection.wire.pop_front() else {
                return;
            };
            match connection.numbering.place(event) {
                Placed::Part(part) => {
                    assert_eq!(part.bytes, SPOKEN[part.id.index.0 as usize].bytes);
                    source.heard.push(part.id.index.0);
                    source.tail.push([part]);
                }
                Placed::Dropped => {}
                Placed::Done => {
                    source.tail.finish(SourceEnd::Done);
                    source.connection = None;
                }
                Placed::Unnumbered => panic!("every event has an id"),
            }
        }
    }

    pub(super) fn hang_up(&mut self) {
        if let Some(current) = self.current {
            self.sources[current].connection = None;
        }
    }

    /// It could not be dialled for too long.
    pub(super) fn lose(&mut self) {
        if let Some(current) = self.current {
            self.hang_up();
            self.sources[current].tail.finish(SourceEnd::Lost);
        }
    }

    /// The process ends, and another one takes over. Killed, it stores nothing more.
    pub(super) fn drain(&mut self, killed: bool) {
        self.hang_up();
        for source in &mut self.sources {
            source.tail.finish(SourceEnd::Drained);
            if killed && source.tee.is_none() {
                source.tee = Some(TeeEnd::Failed);
            }
        }
        self.current = None;
    }

    /// What is over leaves the hub's map.
    pub(super) fn reap(&mut self) {
        self.current.take_if(|n| {
            let source = &self.sources[*n];
            source.tail.end().is_some() && source.tee.is_some()
        });
    }

    // --- tees

    pub(super) fn tee_takes(&mut self, n: usize) {
        let now = self.now;
        let Some(source) = self.sources.get_mut(n).filter(|s| s.tee.is_none()) else {
            return;
        };
        source.supply = source.intake.take(&source.tail, now);
        if source.appending.is_none() {
            source.appending = source.intake.next_batch();
        }
        source.tee = source.intake.end(source.supply);
        if source.tee == Some(TeeEnd::Flushed) {
            let quota = self.known.quota_from.map_or(u32::MAX, |mark| mark.0);
            let lost = source
                .heard
                .iter()
                .find(|i| **i < quota && !self.stored.contains_key(i));
            assert_eq!(lost, None, "flushed, but not stored");
        }
    }

    pub(super) fn tee_is_due(&mut self, n: usize) {
        if let Some(source) = self.sources.get_mut(n)
            && source.intake.due().is_some()
        {
            source.intake.flush();
        }
    }

    pub(super) fn append_ends(&mut self, n: usize, how: Append) {
        let Some(source) = self.sources.get_mut(n).filter(|s| s.tee.is_none()) else {
            return;
        };
        let Some(batch) = source.appending.take() else {
            return;
        };
        for part in &batch {
            assert!(
                part.id.index.0 >= source.appended_to,
                "appended out of order"
            );
            source.appended_to = part.id.index.0 + 1;
        }
        let quota = self.known.quota_from.map_or(u32::MAX, |mark| mark.0);
        if how == Append::Stored {
            source.intake.appended();
            source.tee = (source.appended_to > quota).then_some(TeeEnd::Quota);
        } else {
            source.tee = Some(TeeEnd::Failed);
        }
        if how != Append::Lost {
            batch.iter().for_each(|part| self.store(part.id.index.0));
        }
    }

    // --- the store and the completer

    fn store(&mut self, index: u32) {
        if self.known.quota_from.is_none_or(|mark| index < mark.0) {
            self.stored
                .insert(index, Arc::clone(&SPOKEN[index as usize]));
        }
    }

    pub(super) fn harvest(&mut self, from: u32, parts: u32) {
        let logged = self.known.dropped.map_or(u32::MAX, |(first, _)| first.0);
        let end = (from.saturating_add(parts))
            .min(self.said.len() as u32)
            .min(logged);
        (from..end).for_each(|index| self.store(index));
    }

    pub(super) fn reach_quota(&mut self) {
        let mark = self.stored.last_key_value().map_or(0, |(last, _)| last + 1);
        self.known.quota_from.get_or_insert(PartIndex(mark));
        self.lossless = false;
    }

    pub(super) fn fill_log(&mut self) {
        let first = PartIndex(self.said.len() as u32);
        self.known
            .dropped
            .get_or_insert((first, PartIndex(u32::MAX - 1)));
        self.lossless = false;
    }

    pub(super) fn settle(&mut self) {
        if self.ended.is_some() && self.known.settled.is_open() {
            let whole = self.stored.len() == self.said.len();
            self.lossless &= whole;
            self.known.settled = if whole {
                Settled::Whole
            } else {
                Settled::Truncated(TruncationReason::StoreFailed)
            };
        }
    }

    pub(super) fn read_store(&self, at: PartIndex) -> StoreRead {
        let mut behind = self.stored.range(at.0..).peekable();
        let next = behind.peek().map(|(index, _)| PartIndex(**index));
        let run = behind.zip(at.0..).take_while(|((i, _), n)| **i == *n);
        let parts = run.map(|((_, part), _)| Arc::clone(part)).take(3).collect();
        StoreRead { parts, next }
    }

    /// Everything that still can be is heard, stored and settled.
    pub(super) fn come_to_an_end(&mut self, last_word: LastWord) {
        if self.delivered {
            self.say_done();
        } else {
            self.vanish();
        }
        if last_word == LastWord::Heard {
            self.connect(0);
            self.hear(2 * PARTS);
        }
        for n in 0..self.sources.len() {
            let mut steps = 0..PARTS;
            while self.sources[n].tail.end().is_some() && self.sources[n].tee.is_none() {
                assert!(steps.next().is_some(), "a tee never ends");
                self.tee_takes(n);
                self.append_ends(n, Append::Stored);
            }
        }
        self.harvest(0, PARTS);
        self.settle();
    }
}

fn event(index: u32) -> Event {
    EVENTS[index as usize].clone()
}

fn done() -> Event {
    Event::Data {
        id: None,
        data: Bytes::from_static(DONE.as_bytes()),
    }
}
