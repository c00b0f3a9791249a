//! Any interleaving of what may happen to a log and of who reads it, with the real tail between them.

use std::collections::BTreeSet;

use bex_proto::remote::OutputStream;
use bex_store::remote::{DurableTurn, LogRow, Look};
use proptest::prelude::*;

use super::super::tail::{Shown, Tail, TailLimits, Then};
use super::*;

/// A session's log as the store has it.
struct World {
    events: BTreeSet<u64>,
    standing: Standing,
    /// Last events of the turns, in order; an import has none. They are durable as far as `turn_count` says.
    turns: Vec<Option<u64>>,
}

impl World {
    fn new() -> Self {
        Self {
            events: BTreeSet::new(),
            standing: Standing {
                state: RemoteState::Active,
                next_index: 0,
                first_index: 0,
                seen_index: 0,
                turn_count: 0,
            },
            turns: Vec::new(),
        }
    }

    /// Events after `missing` that were given up.
    fn append(&mut self, missing: u64, events: u64) {
        let from = self.standing.next_index + missing;
        self.events.extend(from..from + events);
        self.standing.next_index = from + events;
    }

    /// One that had been given up.
    fn late(&mut self, at: u64) {
        let (first, next) = (self.standing.first_index, self.standing.next_index);
        if first < next {
            self.events.insert(first + at % (next - first));
        }
    }

    /// The builder goes on by a step: what was made before is made again first.
    fn build(&mut self, import: bool) {
        let Standing { next_index, .. } = self.standing;
        if self.standing.turn_count == self.turns.len() as u64 {
            self.standing.seen_index = next_index;
            if self.is_over() {
                return;
            }
            let last = next_index.checked_sub(1).filter(|_| !import);
            let newer = self
                .turns
                .iter()
                .flatten()
                .all(|before| last.is_none_or(|last| last >= *before));
            assert!(newer, "turns are written in the order of the log");
            self.turns.push(last);
        }
        self.standing.turn_count += 1;
    }

    fn make_again(&mut self) {
        (self.standing.turn_count, self.standing.seen_index) = (0, 0);
    }

    fn purge(&mut self, events: u64) {
        let first = (self.standing.first_index + events).min(self.standing.seen_index);
        self.standing.first_index = self.standing.first_index.max(first);
        self.events = self.events.split_off(&self.standing.first_index);
    }

    fn end(&mut self) {
        while self.standing.turn_count < self.turns.len() as u64 {
            self.build(false);
        }
        self.standing.seen_index = self.standing.next_index;
        self.standing.state = RemoteState::Completed;
    }

    fn is_over(&self) -> bool {
        self.standing.state.is_terminal()
    }

    /// As the store looks.
    fn look(&self, from: u64, range: u64) -> Look {
        let next = self.standing.next_index;
        let low = from.max(self.standing.first_index).min(next);
        let high = low + range;
        let covered = match self.events.range(high.min(next)..next).next() {
            Some(behind) if high < next => *behind,
            _ => next,
        };
        let rows = self.events.range(low..high.min(next)).map(|index| LogRow {
            index: *index,
            stream: OutputStream::Stdout,
            data: String::new(),
            complete: false,
            at: jiff::Timestamp::UNIX_EPOCH,
        });
        Look {
            standing: self.standing,
            events: rows.collect(),
            covered,
        }
    }

    fn durable(&self, from: u64, limit: usize) -> Vec<DurableTurn> {
        let all = (0..self.standing.turn_count).zip(&self.turns);
        let wanted = all.filter(|(number, _)| *number >= from).take(limit);
        wanted
            .map(|(number, last)| DurableTurn {
                number,
                id: number.to_string(),
                last: *last,
            })
            .collect()
    }
}

/// What a viewer was sent.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    Event(u64),
    Gap(u64, u64, String),
    Turn(u64),
    State(RemoteState),
    Done,
}

impl Sent {
    fn read(shown: &Shown) -> Self {
        let text = std::str::from_utf8(&shown.frame).expect("text");
        let (_, json) = text.split_once("data: ").expect("data");
        let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
        let data = &json["data"];
        let number = |field: &str| data[field].as_u64().expect("a number");
        match json["type"].as_str().expect("a type") {
            "gap" => Self::Gap(
                number("from"),
                number("to"),
                data["reason"].as_str().expect("a reason").into(),
            ),
            "turn-durable" => Self::Turn(
                data["turnId"]
                    .as_str()
                    .expect("an id")
                    .parse()
                    .expect("a number"),
            ),
            "state" => Self::State(serde_json::from_value(data["state"].clone()).expect("a state")),
            _ => Self::Event(shown.event.expect("an id")),
        }
    }
}

/// A viewer that comes back with its cursor however often it is cut off.
struct Viewer {
    place: Place,
    cursor: Option<u64>,
    /// On this connection.
    sent: Vec<Sent>,
    began: u64,
    /// On any.
    turns: BTreeSet<u64>,
}

impl Viewer {
    fn new(place: Place) -> Self {
        Self {
            place,
            cursor: None,
            sent: Vec::new(),
            began: place.next,
            turns: BTreeSet::new(),
        }
    }

    fn sent(&mut self, sent: Sent) {
        match sent {
            Sent::Event(index) => self.cursor = Some(index),
            Sent::Turn(number) => drop(self.turns.insert(number)),
            _ => {}
        }
        self.sent.push(sent);
    }

    /// Reads once, from the tail or the store. `true`: there is nothing more for now.
    fn read(&mut self, world: &World, tail: &Tail) -> bool {
        if self.sent.last() == Some(&Sent::Done) {
            return true;
        }
        let mut shown = Vec::new();
        let then = tail.read(&mut self.place, &mut shown);
        for shown in &shown {
            self.sent(Sent::read(shown));
        }
        match then {
            Then::More => false,
            Then::Wait => true,
            Then::Done => {
                self.sent(Sent::Done);
                true
            }
            Then::Behind => {
                self.page(world);
                false
            }
            Then::Ended(end) => panic!("{end:?}"),
        }
    }

    fn page(&mut self, world: &World) {
        let look = world.look(self.place.next, 3);
        let mut events = look.events.iter().peekable();
        loop {
            let turns = world.durable(self.place.turn, 1);
            let step = self.place.step(&Known {
                standing: look.standing,
                purged: look.standing.first_index,
                covered: look.covered,
                event: events.peek().map(|row| row.index),
                turn: turns.first().map(|turn| KnownTurn {
                    number: turn.number,
                    last: turn.last,
                }),
            });
            if matches!(step, Step::State(_)) {
                // the tail's to tell
                return;
            }
            self.place.take(step);
            match step {
                Step::Event(index) => {
                    events.next();
                    self.sent(Sent::Event(index));
                }
                Step::Gap(from, to, why) => self.sent(Sent::Gap(from, to, why.as_str().into())),
                Step::Turn(number) => self.sent(Sent::Turn(number)),
                Step::Import(_) => {}
                Step::Read | Step::State(_) | Step::Wait | Step::Done => return,
            }
        }
    }

    /// Each event once, in order, and what is said of the others.
    fn check(&self, world: &World) {
        let mut next = self.began;
        let (mut turn, mut told) = (0, None);
        for (at, sent) in self.sent.iter().enumerate() {
            match sent {
                Sent::Event(index) => {
                    assert_eq!(*index, next, "{:?}", self.sent);
                    next = index + 1;
                }
                Sent::Gap(from, to, why) => {
                    assert!(*from == next && to >= from, "{:?}", self.sent);
                    next = to + 1;
                    if why == "missing" {
                        let again = matches!(self.sent.get(at + 1), Some(Sent::Gap(_, _, why)) if why == "missing");
                        assert!(!again, "one gap is told once: {:?}", self.sent);
                    }
                }
                Sent::Turn(number) => {
                    let last = world.turns[usize::try_from(*number).expect("small")];
                    let last = last.expect("of the log");
                    assert!(last < next, "before its last event: {:?}", self.sent);
                    assert!(*number >= turn, "once, in order: {:?}", self.sent);
                    turn = number + 1;
                }
                Sent::State(state) => {
                    assert_ne!(told.replace(*state), Some(*state), "a change is told once");
                }
                Sent::Done => {
                    assert_eq!(at + 1, self.sent.len(), "the last: {:?}", self.sent);
                    assert!(next >= world.standing.next_index && world.is_over());
                    assert_eq!(told, Some(world.standing.state));
                }
            }
        }
    }

    /// Is cut off and comes back.
    fn reconnect(&mut self, world: &World) {
        self.check(world);
        let place = Place {
            next: self.cursor.map_or(0, |cursor| cursor + 1),
            turn: 0,
            state: None,
        };
        (self.place, self.began) = (place, place.next);
        self.sent.clear();
    }
}

#[derive(Debug, Clone)]
enum Op {
    Append(u64, u64),
    Late(u64),
    Build(bool),
    MakeAgain,
    Purge(u64),
    Move(RemoteState),
    Look(u64),
    Read(usize),
    Reconnect(usize),
    End,
}

fn op() -> impl Strategy<Value = Op> {
    let state = prop_oneof![Just(RemoteState::Active), Just(RemoteState::Paused)];
    prop_oneof![
        6 => (prop_oneof![3 => Just(0), 1 => 1..9_u64], 1..6_u64).prop_map(|(gap, n)| Op::Append(gap, n)),
        2 => any::<u64>().prop_map(Op::Late),
        4 => prop::bool::weighted(0.2).prop_map(Op::Build),
        1 => Just(Op::MakeAgain),
        1 => (1..9_u64).prop_map(Op::Purge),
        1 => state.prop_map(Op::Move),
        8 => (1..9_u64).prop_map(Op::Look),
        12 => (0..3_usize).prop_map(Op::Read),
        2 => (0..3_usize).prop_map(Op::Reconnect),
        1 => Just(Op::End),
    ]
}

fn look(world: &World, tail: &Tail, range: u64) {
    let look = match tail.next() {
        Some(from) => world.look(from, range),
        None => world.look(u64::MAX >> 1, range),
    };
    let turns = match tail.next_turn(&look.standing) {
        Some(from) => world.durable(from, 2),
        None => Vec::new(),
    };
    tail.push(&look, &turns);
}

fn play(ops: &[Op], cursor: u64) {
    let mut world = World::new();
    let tail = Tail::with_limits(TailLimits {
        bytes: 1 << 20,
        events: 4,
    });
    let mut viewers = [
        Viewer::new(Place::default()),
        Viewer::new(Place::default()),
        Viewer::new(Place {
            next: cursor + 1,
            ..Place::default()
        }),
    ];
    viewers[2].cursor = Some(cursor);
    for op in ops {
        match *op {
            Op::Look(range) => look(&world, &tail, range),
            Op::Read(n) => drop(viewers[n].read(&world, &tail)),
            Op::Reconnect(n) => viewers[n].reconnect(&world),
            Op::Purge(events) => world.purge(events),
            Op::MakeAgain if world.standing.first_index == 0 => world.make_again(),
            Op::Build(import) => world.build(import),
            _ if world.is_over() => {}
            Op::Append(missing, events) => world.append(missing, events),
            Op::Late(at) => world.late(at),
            Op::Move(state) => world.standing.state = state,
            Op::End => world.end(),
            Op::MakeAgain => {}
        }
    }
    world.end();
    for viewer in &mut viewers {
        let mut looks = 0;
        while !viewer.read(&world, &tail) || viewer.sent.last() != Some(&Sent::Done) {
            look(&world, &tail, 5);
            looks += 1;
            assert!(looks < 10_000, "it never ends: {:?}", viewer.sent);
        }
        viewer.check(&world);
        let all: BTreeSet<u64> = (0..)
            .zip(&world.turns)
            .filter(|(_, last)| last.is_some())
            .map(|(number, _)| number)
            .collect();
        assert_eq!(viewer.turns, all, "every turn is told");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn each_event_once_in_order_gaps_exact_turns_told_and_the_end_last(
        ops in prop::collection::vec(op(), 1..120),
        cursor in 0..60_u64,
    ) {
        play(&ops, cursor);
    }
}

fn known(next_index: u64, event: Option<u64>, last: Option<u64>) -> Known {
    Known {
        standing: Standing {
            state: RemoteState::Active,
            next_index,
            first_index: 0,
            seen_index: 0,
            turn_count: u64::from(last.is_some()),
        },
        purged: 0,
        covered: next_index,
        event,
        turn: last.map(|last| KnownTurn {
            number: 0,
            last: Some(last),
        }),
    }
}

#[test]
fn a_turn_stands_right_behind_its_last_event() {
    let mut place = Place {
        state: Some(RemoteState::Active),
        ..Place::default()
    };
    let mut steps = Vec::new();
    // events 0, 1 and 4; a turn that ended with 1
    loop {
        let event = [0, 1, 4].into_iter().find(|event| *event >= place.next);
        let step = place.step(&known(5, event, Some(1).filter(|_| place.turn == 0)));
        place.take(step);
        steps.push(step);
        if step == Step::Wait {
            break;
        }
    }
    let expected = [
        Step::Event(0),
        Step::Event(1),
        Step::Turn(0),
        Step::Gap(2, 3, Absence::Missing),
        Step::Event(4),
        Step::Wait,
    ];
    assert_eq!(steps, expected);
}

#[test]
fn an_ended_session_whose_turns_are_made_again_is_not_done() {
    let mut known = known(1, Some(0), None);
    known.standing.state = RemoteState::Completed;
    let place = Place {
        next: 1,
        turn: 0,
        state: Some(RemoteState::Completed),
    };
    assert_eq!(place.step(&known), Step::Wait);
    known.standing.seen_index = 1;
    assert_eq!(place.step(&known), Step::Done);
    known.standing.turn_count = 1;
    assert_eq!(place.step(&known), Step::Read, "its turns are told first");
}

#[test]
fn what_is_kept_no_longer_is_one_gap_and_said_to_be_so() {
    let place = Place {
        next: 2,
        ..Place::default()
    };
    let mut known = known(9, Some(7), None);
    known.purged = 5;
    assert_eq!(place.step(&known), Step::Gap(2, 4, Absence::Purged));
    let place = Place {
        next: 5,
        ..Place::default()
    };
    assert_eq!(place.step(&known), Step::Gap(5, 6, Absence::Missing));
}
