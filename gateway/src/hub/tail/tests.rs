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
