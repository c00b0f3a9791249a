use super::super::tests::{part, sized};
use super::*;

fn indexes(read: TailRead) -> Vec<u32> {
    match read {
        TailRead::Parts(parts) => parts.iter().map(|p| p.id.index.0).collect(),
        other => panic!("{other:?}"),
    }
}

fn ring(parts: usize) -> Ring {
    let mut ring = Ring::new(RingLimits {
        bytes: 1 << 20,
        parts,
    });
    ring.begin(PartIndex(2));
    ring
}

#[test]
fn a_reader_finds_runs_jumps_and_what_was_evicted() {
    let mut ring = ring(4);
    for index in [2, 3, 6, 7] {
        assert!(ring.push(part(1, index)));
    }
    assert_eq!(indexes(ring.read(PartIndex(2), 10)), [2, 3]);
    assert_eq!(indexes(ring.read(PartIndex(2), 1)), [2]);
    assert!(matches!(ring.read(PartIndex(4), 10), TailRead::Jump { to } if to == PartIndex(6)));
    assert!(matches!(ring.read(PartIndex(8), 10), TailRead::Wait));
    assert!(
        matches!(ring.read(PartIndex(1), 10), TailRead::Behind { floor } if floor == PartIndex(2))
    );
    assert!(ring.push(part(1, 8)));
    assert!(
        matches!(ring.read(PartIndex(2), 10), TailRead::Behind { floor } if floor == PartIndex(3))
    );
    ring.finish(SourceEnd::Done);
    ring.finish(SourceEnd::Lost);
    assert!(matches!(
        ring.read(PartIndex(9), 10),
        TailRead::Ended(SourceEnd::Done)
    ));
}

#[test]
fn repeated_and_late_parts_are_dropped() {
    let mut ring = ring(10);
    assert!(ring.push(part(1, 4)));
    for index in [1, 2, 4] {
        assert!(!ring.push(part(1, index)), "{index}");
    }
    assert!(ring.push(part(1, 5)));
    assert_eq!(indexes(ring.read(PartIndex(4), 10)), [4, 5]);
}

#[test]
fn only_what_the_fastest_viewer_has_not_taken_counts() {
    let mut ring = ring(8);
    for index in 2..8 {
        ring.push(part(1, index));
    }
    assert_eq!(ring.pace(), Pace::CaughtUp, "nobody reads along");
    ring.follow(PartIndex(3));
    assert_eq!(ring.pace(), Pace::Outrun, "five of eight");
    ring.follow(PartIndex(4));
    assert_eq!(ring.pace(), Pace::Following, "four of eight");
    ring.follow(PartIndex(2));
    assert_eq!(
        ring.pace(),
        Pace::Following,
        "a slower viewer does not count"
    );
    ring.push(part(1, 8));
    assert_eq!(ring.pace(), Pace::Outrun);
    for index in 9..30 {
        ring.push(part(1, index));
    }
    assert_eq!(
        ring.unseen, ring.bytes,
        "what is evicted is not unseen any more"
    );
    ring.follow(PartIndex(30));
    assert_eq!((ring.unseen, ring.pace()), (0, Pace::CaughtUp));
}

/// In every order of what a source and two viewers do, one of them ahead of the source as after a source that began again.
#[test]
fn what_is_unseen_is_what_stands_at_and_behind_the_fastest_viewer() {
    const STEPS: u32 = 7;
    for order in 0..4u32.pow(STEPS) {
        let (mut ring, mut next, mut viewers) = (ring(3), 2, [2, 6]);
        for step in 0..STEPS {
            match order / 4u32.pow(step) % 4 {
                0 => {
                    ring.push(sized(1, next, 50 + next as usize));
                    next += 1;
                }
                // the driver's ids jump
                1 => {
                    ring.push(sized(1, next + 2, 90));
                    next += 3;
                }
                viewer => {
                    let at = &mut viewers[viewer as usize - 2];
                    ring.follow(PartIndex(*at));
                    *at += 1;
                }
            }
            let unseen = ring
                .parts
                .iter()
                .filter(|part| ring.lead.is_none_or(|lead| part.id.index >= lead));
            let unseen: usize = unseen.map(|part| part.bytes.len()).sum();
            assert_eq!(ring.unseen, unseen, "order {order}, step {step}: {ring:?}");
        }
    }
}

#[test]
fn bytes_are_bounded_too() {
    let mut ring = Ring::new(RingLimits {
        bytes: 1000,
        parts: 100,
    });
    ring.begin(PartIndex(0));
    for index in 0..50 {
        ring.push(sized(1, index, 300));
        assert!(ring.bytes <= 1000);
    }
    assert_eq!(indexes(ring.read(PartIndex(47), 10)), [47, 48, 49]);
}

#[test]
fn a_reader_before_the_source_began_waits() {
    let ring = Ring::new(RingLimits::default());
    assert!(matches!(ring.read(PartIndex(0), 1), TailRead::Wait));
}
