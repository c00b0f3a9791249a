mod joins;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::hub::tail::tests::part;
use crate::hub::tail::{Ring, RingLimits};

/// Sent and told indexes of one viewer.
#[derive(Debug, Default)]
struct Seen {
    sent: Vec<u32>,
    told: Vec<(u32, u32)>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_settled_turn_is_read_to_its_end_with_or_without_a_tail(
        stored in proptest::collection::btree_set(0u32..30, 0..25), heard in 0u32..30, capacity in 1usize..8, with_tail: bool,
    ) {
        let mut ring = Ring::new(RingLimits { bytes: 1 << 20, parts: capacity });
        ring.begin(PartIndex(0));
        (0..heard).for_each(|index| assert!(ring.push(part(1, index))));
        let store: BTreeMap<u32, Arc<Part>> = stored.iter().map(|i| (*i, part(1, *i))).collect();
        let read = |at: PartIndex| StoreRead {
            parts: store.get(&at.0).cloned().into_iter().collect(),
            next: store.range(at.0..).next().map(|(index, _)| PartIndex(*index)),
        };
        let known = Known { settled: Settled::Truncated(TruncationReason::StoreFailed), ..Known::default() };
        let (mut pull, mut seen) = (Pull::new(PartIndex(0)), Seen::default());
        let ending = loop {
            let mut step = if with_tail { pull.on_tail(ring.read(pull.at(), 3), &known) } else { pull.without_tail() };
            if matches!(step, Do::ReadStore) {
                step = pull.on_store(read(pull.at()), &known, Instant::now());
            }
            match step {
                Do::Send(parts) => seen.sent.extend(parts.iter().map(|p| p.id.index.0)),
                Do::Skip { from, to, .. } => seen.told.push((from.0, to.0)),
                Do::TurnEnd(ending) => break ending,
                waits => panic!("a settled turn never waits: {waits:?}"),
            }
        };
        prop_assert_eq!(ending, Ending::Settled);
        let end = stored.last().map_or(0, |last| last + 1);
        let end = if with_tail { end.max(heard) } else { end };
        prop_assert!(seen.sent.is_sorted_by(|a, b| a < b), "in order, each once: {:?}", seen);
        let told = seen.told.iter().flat_map(|(first, last)| *first..=*last);
        let mut all: Vec<u32> = seen.sent.iter().copied().chain(told).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..end).collect::<Vec<u32>>());
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
                settled: Settled::Truncated(TruncationReason::SandboxLost),
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
