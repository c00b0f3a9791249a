//! Viewers of one turn, in any order of everything that can happen: each is shown each part once, in order, and ends.

use std::collections::BTreeSet;

use super::super::*;
use super::world::{Append, LastWord, SPOKEN, Said, World};

/// Parts taken from a tail at once.
const RUN: usize = 3;
/// Steps after which a viewer that can end has ended.
const ENOUGH: usize = 10_000;

/// What one viewer does, as its task does it.
struct Viewer {
    pull: Pull,
    /// The turn's row when it was last looked at.
    known: Known,
    generation: u32,
    live: Option<usize>,
    /// A read of the store under way.
    reading: Option<Reading>,
    /// The turn's speech was over, and flush and settle were waited for.
    waited: bool,
    state: State,
    /// The next index to be shown or told on this connection.
    due: u32,
    /// Parts up to it are not shown again.
    cursor: Option<u32>,
    hole: Option<(PartIndex, Instant)>,
    shown: BTreeSet<u32>,
    told: BTreeSet<u32>,
    waited_in_vain: bool,
}

/// What the store had when it was asked, and what the viewer knew before.
struct Reading {
    read: StoreRead,
    known: Known,
    /// The first part the tail had then.
    in_tail: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Watching,
    /// Told to resume, or its network dropped.
    Away,
    Ended(Ending),
}

/// Whether a viewer that comes back still has its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Back {
    WithCursor,
    Empty,
}

impl Viewer {
    fn new() -> Self {
        Self {
            pull: Pull::new(PartIndex(0)),
            known: Known::default(),
            generation: 0,
            live: None,
            reading: None,
            waited: false,
            state: State::Away,
            due: 0,
            cursor: None,
            hole: None,
            shown: BTreeSet::new(),
            told: BTreeSet::new(),
            waited_in_vain: false,
        }
    }

    fn come(&mut self, world: &mut World, back: Back) {
        if back == Back::Empty {
            self.shown.clear();
            self.told.clear();
        }
        self.cursor = self.shown.last().copied();
        let wanted = self.cursor.map_or(0, |cursor| cursor + 1);
        let start = if !world.known.settled.is_open() {
            wanted
        } else {
            // the guard learns what is open from what is stored
            let end = (0..).find(|i| !world.stored.contains_key(i));
            wanted.min(end.unwrap_or(0))
        };
        self.pull = Pull::new(PartIndex(start));
        self.due = start;
        (self.live, self.reading, self.hole) = (None, None, None);
        (self.waited, self.state) = (false, State::Watching);
        self.look(world);
    }

    fn leave(&mut self) {
        if self.state == State::Watching {
            (self.state, self.reading) = (State::Away, None);
        }
    }

    /// Reads the turn's row, and joins its source where there is one to join.
    fn look(&mut self, world: &mut World) {
        self.known = world.known;
        if self.generation != world.generation {
            self.generation = world.generation;
            self.live = None;
        }
        if self.live.is_none() && self.known.settled.is_open() {
            self.live = Some(world.join());
        }
    }

    /// Something woke it. While it reads the store it hears nothing.
    fn notice(&mut self, world: &mut World) {
        if self.state == State::Watching && self.reading.is_none() {
            self.look(world);
        }
    }

    /// One step; a read of the store takes two, and anything may happen between them.
    fn step(&mut self, world: &mut World) {
        if self.state != State::Watching {
            return;
        }
        let reading = match self.reading.take() {
            Some(reading) => reading,
            None => {
                let known = self.known;
                let tail = self.live.map(|n| &world.sources[n].tail);
                let tail = tail.filter(|tail| tail.next().is_some() || tail.end().is_some());
                let step = match tail {
                    Some(tail) => {
                        let read = tail.read_along(self.pull.at(), RUN);
                        self.pull.on_tail(read, &known)
                    }
                    None => self.pull.without_tail(),
                };
                if !matches!(step, Do::ReadStore) {
                    return self.act(step, world, None);
                }
                let at = self.pull.at();
                self.reading = Some(Reading {
                    read: world.read_store(at),
                    known,
                    in_tail: tail.and_then(|tail| first_at(tail, at)),
                });
                return;
            }
        };
        let step = self
            .pull
            .on_store(reading.read.clone(), &reading.known, world.now);
        self.act(step, world, Some(&reading));
    }

    fn act(&mut self, step: Do, world: &mut World, reading: Option<&Reading>) {
        match step {
            Do::Send(parts) => self.show(&parts),
            Do::Skip { from, to, reason } => {
                let reading = reading.expect("only the store says what is missing");
                self.tell(from.0, to.0, reason, reading, world);
            }
            Do::ReadStore => panic!("the store was just read"),
            Do::Wait => self.look(world),
            Do::Hole { until } => {
                let since = until - limits::HOLE_WAIT;
                assert!(since <= world.now && world.now < until);
                self.hole = Some((self.pull.at(), since));
                self.look(world);
            }
            Do::TurnEnd(Ending::Source(SourceEnd::Drained)) => self.leave(),
            Do::TurnEnd(Ending::Source(end)) => {
                let ended = self.live;
                self.look(world);
                if self.live != ended {
                    return;
                }
                if !world.delivered && self.known.settled.is_open() {
                    self.live = None;
                    return;
                }
                if end == SourceEnd::Lost {
                    if self.known.settled.is_open() {
                        self.leave();
                    }
                    return;
                }
                if std::mem::replace(&mut self.waited, true) {
                    self.end(Ending::Source(end), world);
                }
            }
            Do::TurnEnd(ending) => {
                let live = self.live.map(|n| &world.sources[n].tail);
                let may_heal = self.known.settled != Settled::Whole;
                if !self.waited && live.is_some_and(|t| may_heal || t.end().is_some()) {
                    self.waited = true;
                    return self.look(world);
                }
                let read = &reading.expect("the store says that it has no more").read;
                assert!(read.parts.is_empty() && read.next.is_none());
                self.end(ending, world);
            }
        }
    }

    fn show(&mut self, parts: &[Arc<Part>]) {
        assert!(!parts.is_empty());
        for part in parts {
            let index = part.id.index.0;
            assert_eq!(index, self.due, "in order, without a gap");
            assert_eq!(part.bytes, SPOKEN[index as usize].bytes);
            self.due += 1;
            if self.cursor.is_none_or(|cursor| index > cursor) {
                assert!(self.shown.insert(index), "{index} is shown twice");
            }
        }
        assert_eq!(self.pull.at().0, self.due);
    }

    fn tell(
        &mut self,
        from: u32,
        to: u32,
        reason: TruncationReason,
        reading: &Reading,
        world: &World,
    ) {
        assert!(from == self.due && from <= to, "{from}..={to}");
        assert!(reading.read.parts.is_empty());
        assert!(
            reading.read.next.is_none_or(|next| next.0 > to),
            "told as missing, but stored"
        );
        assert!(
            reading.in_tail.is_none_or(|first| first > to),
            "told as missing, but in the tail"
        );
        if reason == TruncationReason::StoreFailed && reading.known.settled.is_open() {
            let (at, since) = self.hole.expect("a hole is waited for");
            assert!(at.0 == from && world.now >= since + limits::HOLE_WAIT);
            self.waited_in_vain = true;
        }
        self.told.extend(from..=to);
        self.due = to + 1;
        assert_eq!(self.pull.at().0, self.due);
    }

    fn end(&mut self, ending: Ending, world: &World) {
        if let (Ending::Source(_), Some(live)) = (ending, self.live) {
            let heard = world.sources[live].tail.next();
            assert!(
                heard.is_none_or(|next| next.0 <= self.due),
                "what was heard is shown before the end"
            );
        }
        self.state = State::Ended(ending);
    }

    /// The turn is over and settled, and all that can be is stored: whoever comes back after having been told so has everything.
    fn come_to_an_end(&mut self, world: &mut World) {
        self.hear_the_end(world);
        self.come(world, Back::WithCursor);
        self.hear_the_end(world);
    }

    fn hear_the_end(&mut self, world: &mut World) {
        for _ in 0..ENOUGH {
            match self.state {
                State::Watching => self.step(world),
                State::Ended(Ending::Settled) => return,
                State::Away | State::Ended(_) => self.come(world, Back::WithCursor),
            }
            if let Some((_, since)) = self.hole {
                world.now = world.now.max(since + limits::HOLE_WAIT);
            }
        }
        panic!("a viewer never ends: {:?} at {}", self.state, self.due);
    }

    fn has_everything(&self, world: &World) {
        let end = world
            .stored
            .last_key_value()
            .map_or(0, |(last, _)| last + 1);
        let missing = (0..end).find(|i| !self.shown.contains(i) && !self.told.contains(i));
        assert_eq!(missing, None, "neither shown nor told");
        if world.lossless && !self.waited_in_vain {
            assert!(
                self.told.is_empty(),
                "nothing is missing, but {:?} was told",
                self.told
            );
        }
    }
}

/// The first part at or behind a position.
fn first_at(tail: &crate::hub::tail::Tail, at: PartIndex) -> Option<u32> {
    match tail.read(at, 1) {
        TailRead::Parts(_) => Some(at.0),
        TailRead::Jump { to } => Some(to.0),
        TailRead::Behind { floor } => first_at(tail, floor),
        TailRead::Wait | TailRead::Ended(_) => None,
    }
}

/// What a word's remainder chooses; the rest of it says with whom and how much.
const KINDS: u32 = 128;

/// One thing that happens.
fn happen(word: u32, world: &mut World, viewers: &mut [Viewer]) {
    let (what, with) = (word % KINDS, word >> 8);
    let few = with % 4 + 1;
    let source = (with as usize)
        .checked_rem(world.sources.len())
        .unwrap_or(0);
    let viewer = with as usize % viewers.len();
    match what {
        0..=14 => world.speak(few, Said::Aloud),
        15..=16 => world.speak(few, Said::InLogOnly),
        17..=19 => world.garble(with % 7),
        20..=29 => world.connect(with % 5),
        30..=45 => world.hear(few),
        46..=48 => world.hang_up(),
        49 => world.lose(),
        50 => {
            world.drain(with.is_multiple_of(2));
            viewers.iter_mut().for_each(Viewer::leave);
        }
        51..=53 => world.reap(),
        54..=65 => world.tee_takes(source),
        66..=69 => world.tee_is_due(source),
        70..=76 => world.append_ends(source, Append::Stored),
        77 => world.append_ends(source, Append::StoredUnknown),
        78 => world.append_ends(source, Append::Lost),
        79..=83 => world.harvest(with % 64, few * 4),
        84 if with.is_multiple_of(4) => world.reach_quota(),
        85 if with.is_multiple_of(4) => world.fill_log(),
        86 if with.is_multiple_of(2) => world.say_done(),
        87 if with.is_multiple_of(4) => world.vanish(),
        88 => world.settle(),
        89..=90 => world.deliver(),
        91 => world.redispatch(),
        92..=94 => world.now += std::time::Duration::from_secs(u64::from(with % 16)),
        95..=97 => viewers[viewer].notice(world),
        98 => viewers[viewer].leave(),
        99..=101 => {
            let back = if with.is_multiple_of(8) {
                Back::Empty
            } else {
                Back::WithCursor
            };
            if viewers[viewer].state != State::Watching {
                viewers[viewer].come(world, back);
            }
        }
        _ => viewers[viewer].step(world),
    }
}

/// A start and what happens then, all from one number.
#[derive(Debug, Clone)]
struct Schedule {
    stored: u32,
    tail_parts: usize,
    delivered: bool,
    last_word: LastWord,
    words: Vec<u32>,
}

impl Schedule {
    /// Words by SplitMix64: a property test's own generator would take longer than what is tested.
    fn of(seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x2545_F491_4F6C_DD1D);
        let mut word = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (mixed >> 32) as u32
        };
        Self {
            stored: word() % 5,
            tail_parts: 1 + word() as usize % 7,
            delivered: word() % 4 > 0,
            last_word: if word().is_multiple_of(4) {
                LastWord::Unheard
            } else {
                LastWord::Heard
            },
            words: (0..1 + word() % 100).map(|_| word()).collect(),
        }
    }

    fn play(&self) {
        let mut world = World::new(self.stored, self.tail_parts, self.delivered);
        let mut viewers = [Viewer::new(), Viewer::new(), Viewer::new()];
        viewers[0].come(&mut world, Back::Empty);
        for word in &self.words {
            happen(*word, &mut world, &mut viewers);
        }
        world.come_to_an_end(self.last_word);
        for viewer in &mut viewers {
            viewer.come_to_an_end(&mut world);
            viewer.has_everything(&world);
        }
    }

    fn fails(&self) -> bool {
        std::panic::catch_unwind(|| self.play()).is_err()
    }

    /// Leaves out whatever the failure does not need.
    fn shortened(mut self) -> Self {
        let mut length = self.words.len() / 2;
        while length > 0 {
            let mut from = 0;
            while from < self.words.len() {
                let mut shorter = self.clone();
                let to = (from + length).min(shorter.words.len());
                shorter.words.drain(from..to);
                if shorter.fails() {
                    self = shorter;
                } else {
                    from += length;
                }
            }
            length /= 2;
        }
        self
    }
}

/// A hundred times what the store's merge test is told: 10^5 schedules every day, 10^6 every night.
fn schedules() -> u64 {
    let cases = std::env::var("BEX_MERGE_CASES").ok();
    cases.and_then(|n| n.parse().ok()).unwrap_or(1000) * 100
}

#[test]
fn in_any_order_of_events_each_viewer_gets_each_part_once_and_ends() {
    for seed in 0..schedules() {
        let schedule = Schedule::of(seed);
        if schedule.fails() {
            let short = schedule.shortened();
            let what: Vec<u32> = short.words.iter().map(|word| word % KINDS).collect();
            println!("seed {seed}, shortened: {short:?}\nkinds: {what:?}");
            short.play();
            panic!("a failure that does not repeat");
        }
    }
}
