use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::hub::tail::tests::part;
use crate::hub::tail::{Ring, RingLimits};

/// A driver, its source with a small ring, a tee, a harvest and viewers: everything that can happen, in any order.
#[derive(Debug, Clone, Copy)]
enum Op {
    /// The driver speaks and the source hears this many parts.
    Speak(u32),
    /// The driver speaks this many parts that the source never hears: its ids jump.
    Unheard(u32),
    /// The source starts over at what it knows, as after a loss; the driver repeats some.
    Repeat(u32),
    /// The tee stores what it reads next, until it is overtaken.
    Tee(u32),
    /// The harvest stores a range of what was spoken.
    Harvest(u32, u32),
    /// A viewer takes a step.
    View(usize),
    /// Time passes.
    Pass(u64),
    /// The quota is reached at what is spoken next.
    Quota,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (1u32..6).prop_map(Op::Speak),
        1 => (1u32..4).prop_map(Op::Unheard),
        1 => (0u32..9).prop_map(Op::Repeat),
        4 => (1u32..6).prop_map(Op::Tee),
        2 => (0u32..40, 1u32..9).prop_map(|(from, len)| Op::Harvest(from, len)),
        9 => (0usize..3).prop_map(Op::View),
        1 => (1u64..20).prop_map(Op::Pass),
        1 => Just(Op::Quota),
    ];
    proptest::collection::vec(op, 1..120)
}

struct World {
    ring: Ring,
    spoken: u32,
    stored: BTreeMap<u32, Arc<Part>>,
    tee_at: Option<PartIndex>,
    known: Known,
    now: Instant,
}

#[derive(Debug, Default)]
struct Seen {
    sent: Vec<u32>,
    skipped: Vec<(u32, u32)>,
}

impl World {
    fn new(base: u32, parts: usize) -> Self {
        let mut ring = Ring::new(RingLimits {
            bytes: 1 << 20,
            parts,
        });
        ring.begin(PartIndex(base));
        Self {
            ring,
            spoken: base,
            stored: (0..base).map(|i| (i, part(1, i))).collect(),
            tee_at: Some(PartIndex(base)),
            known: Known::default(),
            now: Instant::now(),
        }
    }

    fn store(&mut self, index: u32) {
        if self.known.quota_from.is_none_or(|mark| index < mark.0) {
            self.stored.insert(index, part(1, index));
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Speak(n) => {
                for index in self.spoken..self.spoken + n {
                    assert!(self.ring.push(part(1, index)));
                }
                self.spoken += n;
            }
            Op::Unheard(n) => self.spoken += n,
            Op::Repeat(n) => {
                for index in self.spoken.saturating_sub(n)..self.spoken {
                    let new = self.ring.next().is_some_and(|next| index >= next.0);
                    assert_eq!(self.ring.push(part(1, index)), new);
                }
            }
            Op::Tee(n) => {
                for _ in 0..n {
                    let Some(at) = self.tee_at else { return };
                    match self.ring.read(at, 1) {
                        TailRead::Parts(parts) => {
                            self.store(parts[0].id.index.0);
                            self.tee_at = Some(at.next());
                        }
                        TailRead::Jump { to } => self.tee_at = Some(to),
                        TailRead::Behind { .. } => self.tee_at = None,
                        TailRead::Wait | TailRead::Ended(_) => return,
                    }
                }
            }
            Op::Harvest(from, len) => {
                for index in from..(from + len).min(self.spoken) {
                    self.store(index);
                }
            }
            Op::View(_) => {}
            Op::Pass(seconds) => self.now += std::time::Duration::from_secs(seconds),
            Op::Quota => {
                let mark = PartIndex(self.spoken);
                self.known.quota_from.get_or_insert(mark);
            }
        }
    }

    fn read_store(&self, at: PartIndex) -> StoreRead {
        let parts: Vec<_> = self
            .stored
            .range(at.0..)
            .zip(at.0..)
            .take_while(|((index, _), wanted)| **index == *wanted)
            .map(|((_, part), _)| Arc::clone(part))
            .take(3)
            .collect();
        let next = self
            .stored
            .range(at.0..)
            .next()
            .map(|(index, _)| PartIndex(*index));
        StoreRead { parts, next }
    }

    /// One step of a viewer; gives whether it moved or waits for the clock, and the turn's end.
    fn view(&self, pull: &mut Pull, seen: &mut Seen) -> Result<bool, Ending> {
        let mut step = pull.on_tail(self.ring.read(pull.at(), 3), &self.known);
        if matches!(step, Do::ReadStore) {
            step = pull.on_store(self.read_store(pull.at()), &self.known, self.now);
        }
        match step {
            Do::Send(parts) => {
                assert!(!parts.is_empty());
                seen.sent.extend(parts.iter().map(|p| p.id.index.0));
                Ok(true)
            }
            Do::Skip { from, to, .. } => {
                assert!(from <= to);
                for index in from.0..=to.0 {
                    assert!(
                        !self.stored.contains_key(&index),
                        "{index} is stored and was skipped"
                    );
                    assert!(
                        self.ring.read(PartIndex(index), 1).is_no_part(),
                        "{index} is in the tail and was skipped"
                    );
                }
                seen.skipped.push((from.0, to.0));
                Ok(true)
            }
            Do::Wait | Do::Hole { .. } => Ok(false),
            Do::TurnEnd(ending) => Err(ending),
            Do::ReadStore => panic!("the store was just read"),
        }
    }
}

impl TailRead {
    fn is_no_part(&self) -> bool {
        !matches!(self, TailRead::Parts(_))
    }
}

/// Sent and told indexes, in the order of the stream, cover `0..end` exactly once.
fn check(seen: &Seen, from: u32, end: u32) {
    assert!(
        seen.sent.is_sorted_by(|a, b| a < b),
        "in order, each once: {seen:?}"
    );
    let mut all: Vec<u32> = seen.sent.clone();
    for (first, last) in &seen.skipped {
        all.extend(*first..=*last);
    }
    all.sort_unstable();
    let expected: Vec<u32> = (from..end).collect();
    assert_eq!(all, expected, "{seen:?}");
}

/// `BEX_PULL_CASES`, for longer runs than every day's.
fn cases() -> u32 {
    std::env::var("BEX_PULL_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(1000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn every_viewer_gets_each_part_once_in_order(base in 0u32..5, capacity in 1usize..8, late in 0u32..12, ops in ops()) {
        let mut world = World::new(base, capacity);
        let starts = [0, base.min(2), late];
        let mut viewers: Vec<(Pull, Seen)> = starts.iter().map(|at| (Pull::new(PartIndex(*at)), Seen::default())).collect();
        for op in ops {
            world.apply(op);
            if let Op::View(n) = op {
                let (pull, seen) = &mut viewers[n];
                prop_assert!(world.view(pull, seen).is_ok(), "an open turn with a source has no end");
            }
        }
        // the end: the harvest stores all it may, the source says done, the turn is not settled yet
        let last = world.ring.next().map_or(0, |next| next.0);
        world.ring.finish(SourceEnd::Done);
        world.apply(Op::Harvest(0, world.spoken));
        for ((pull, seen), from) in viewers.iter_mut().zip(starts) {
            let ending = loop {
                match world.view(pull, seen) {
                    Ok(true) => {}
                    Ok(false) => world.now += limits::HOLE_WAIT,
                    Err(ending) => break ending,
                }
            };
            prop_assert_eq!(ending, Ending::Source(SourceEnd::Done));
            // a lagging viewer may find more in the store than the source ever heard
            let end = seen.sent.last().map_or(0, |index| index + 1).max(last).max(from);
            check(seen, from, end);
        }
    }

    #[test]
    fn a_settled_turn_is_read_to_its_end_with_or_without_a_tail(
        stored in proptest::collection::btree_set(0u32..30, 0..25), heard in 0u32..30, capacity in 1usize..8, with_tail: bool,
    ) {
        let mut world = World::new(0, capacity);
        world.apply(Op::Speak(heard));
        world.stored = stored.iter().map(|i| (*i, part(1, *i))).collect();
        world.known.settled = Some(Some(TruncationReason::StoreFailed));
        let (mut pull, mut seen) = (Pull::new(PartIndex(0)), Seen::default());
        let ending = loop {
            let moved = if with_tail {
                world.view(&mut pull, &mut seen)
            } else {
                let step = pull.without_tail();
                assert!(matches!(step, Do::ReadStore));
                match pull.on_store(world.read_store(pull.at()), &world.known, world.now) {
                    Do::Send(parts) => { seen.sent.extend(parts.iter().map(|p| p.id.index.0)); Ok(true) }
                    Do::Skip { from, to, .. } => { seen.skipped.push((from.0, to.0)); Ok(true) }
                    Do::TurnEnd(ending) => Err(ending),
                    other => panic!("{other:?}"),
                }
            };
            match moved {
                Ok(moved) => prop_assert!(moved, "a settled turn never waits"),
                Err(ending) => break ending,
            }
        };
        prop_assert_eq!(ending, Ending::Settled);
        let end = stored.last().map_or(0, |last| last + 1);
        check(&seen, 0, if with_tail { end.max(heard) } else { end });
        let sent: BTreeSet<u32> = seen.sent.iter().copied().collect();
        prop_assert!(stored.is_subset(&sent));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hole_is_waited_for_and_then_told() {
    let mut ring = Ring::new(RingLimits {
        bytes: 1 << 20,
        parts: 1,
    });
    ring.begin(PartIndex(0));
    ring.push(part(1, 0));
    ring.push(part(1, 1));
    let (mut pull, known, start) = (Pull::new(PartIndex(0)), Known::default(), Instant::now());
    for after in [0, 10, 29] {
        let now = start + std::time::Duration::from_secs(after);
        assert!(matches!(
            pull.on_tail(ring.read(pull.at(), 9), &known),
            Do::ReadStore
        ));
        match pull.on_store(StoreRead::default(), &known, now) {
            Do::Hole { until } => assert_eq!(until, start + limits::HOLE_WAIT),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(
        pull.on_tail(ring.read(pull.at(), 9), &known),
        Do::ReadStore
    ));
    match pull.on_store(StoreRead::default(), &known, start + limits::HOLE_WAIT) {
        Do::Skip { from, to, reason } => {
            assert_eq!(
                (from, to, reason),
                (PartIndex(0), PartIndex(0), TruncationReason::StoreFailed)
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_known_to_be_missing_is_not_waited_for() {
    let mut ring = Ring::new(RingLimits {
        bytes: 1 << 20,
        parts: 1,
    });
    ring.begin(PartIndex(0));
    for index in [0, 1, 2, 6] {
        ring.push(part(1, index));
    }
    let cases = [
        (
            Known {
                quota_from: Some(PartIndex(1)),
                ..Known::default()
            },
            1,
            5,
            TruncationReason::SessionQuota,
        ),
        (
            Known {
                dropped: Some((PartIndex(0), PartIndex(5))),
                ..Known::default()
            },
            1,
            5,
            TruncationReason::LogTruncated,
        ),
        (
            Known {
                settled: Some(Some(TruncationReason::SandboxLost)),
                ..Known::default()
            },
            1,
            5,
            TruncationReason::SandboxLost,
        ),
    ];
    for (known, first, last, why) in cases {
        let mut pull = Pull::new(PartIndex(1));
        // 3..=5 were never spoken, 1 and 2 were evicted: the floor is 3
        let mut told = Vec::new();
        while pull.at() < PartIndex(6) {
            assert!(matches!(
                pull.on_tail(ring.read(pull.at(), 9), &known),
                Do::ReadStore
            ));
            match pull.on_store(StoreRead::default(), &known, Instant::now()) {
                Do::Skip { from, to, reason } => told.push((from.0, to.0, reason)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((told[0].0, told[0].2), (first, why));
        assert_eq!(told.last().map(|t| t.1), Some(last));
    }
}
