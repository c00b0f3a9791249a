//! Reading along.

use bex_proto::launch::Pace;
use http_body_util::BodyExt;

use crate::sandbox::{Sandbox, parts, read_events};

#[tokio::test]
async fn a_reader_may_come_before_the_turn() {
    let sandbox = Sandbox::playing(parts(50), Pace::PartsPerSecond(500))
        .start()
        .await;
    let (early, late) = (
        sandbox.open_stream(1, 0).await,
        sandbox.open_stream(1, 45).await,
    );
    assert_eq!(sandbox.turn(1, "a", None).await, 202);
    let (early, late) = tokio::join!(read_events(early), read_events(late));
    assert_eq!(early.len(), 50);
    assert_eq!(late, early[45..]);
}

#[tokio::test]
async fn a_reader_of_a_turn_that_is_skipped_gets_no_end_mark() {
    let sandbox = Sandbox::playing(parts(3), Pace::Max).start().await;
    let skipped = sandbox.open_stream(1, 0).await;
    assert_eq!(sandbox.turn(2, "a", None).await, 202);
    let body = skipped
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    assert_eq!(&body[..], b": stream-open\n\n");
}

/// 12 MiB: three times what memory holds.
fn large() -> Vec<String> {
    (0..1500)
        .map(|n| format!(r#"{{"type":"x","n":{n},"d":"{}"}}"#, "y".repeat(8000)))
        .collect()
}

#[tokio::test]
async fn slow_and_late_readers_read_the_log_and_hold_nobody_up() {
    let sandbox = Sandbox::playing(large(), Pace::Max).start().await;
    // nobody reads this one while the turn is spoken
    let slow = sandbox.open_stream(1, 0).await;
    assert_eq!(sandbox.turn(1, "a", None).await, 202);
    assert_eq!(sandbox.ended(1).await.parts, 1500);
    let slow: Vec<_> = read_events(slow)
        .await
        .into_iter()
        .map(|(_, part)| part)
        .collect();
    assert_eq!(slow, large());
    assert_eq!(sandbox.parts(1).await, large());
    let tail = sandbox.stream(1, 700).await;
    assert_eq!(
        tail.first().map(|(id, part)| (id.as_str(), part)),
        Some(("1.700", &large()[700]))
    );
    assert_eq!(tail.len(), 800);
}
