use bex_proto::ids::PartId;
use bytes::Bytes;

use super::*;

/// A small text part.
pub(crate) fn part(turn: u32, index: u32) -> Arc<Part> {
    sized(turn, index, 0)
}

/// A text part of at least `len` bytes.
pub(crate) fn sized(turn: u32, index: u32, len: usize) -> Arc<Part> {
    let text = format!(r#"{{"type":"text-delta","id":"t","delta":"{index} "#);
    let text = format!(
        "{text}{}\"}}",
        "x".repeat(len.saturating_sub(text.len() + 2))
    );
    let head = bex_proto::transcript::inspect(text.as_bytes()).expect("a part");
    Arc::new(Part {
        id: PartId::new(turn, index),
        head,
        bytes: Bytes::from(text),
        spoken_at: None,
    })
}

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

#[tokio::test(start_paused = true)]
async fn a_viewer_that_keeps_lagging_is_waited_for_once() {
    let tail = Tail::with_limits(RingLimits {
        bytes: 1 << 20,
        parts: 4,
    });
    tail.begin(PartIndex(0));
    tail.read_along(PartIndex(0), 1);
    let mut courtesy = COURTESY;
    let begun = Instant::now();
    for index in 0..20 {
        tail.push([part(1, index)]);
        tail.pace(&mut courtesy).await;
    }
    assert_eq!(begun.elapsed(), COURTESY);
    // it caught up, and a new burst may wait again
    tail.read_along(PartIndex(20), 1);
    tail.pace(&mut courtesy).await;
    assert_eq!(courtesy, COURTESY);
    let tail = Arc::new(tail);
    let reader = Arc::clone(&tail);
    tail.push((20..24).map(|index| part(1, index)));
    let moves = tokio::spawn(async move { reader.read_along(PartIndex(23), 1) });
    tail.pace(&mut courtesy).await;
    assert_eq!(begun.elapsed(), COURTESY, "one that moves costs nothing");
    moves.await.expect("no panic");
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
