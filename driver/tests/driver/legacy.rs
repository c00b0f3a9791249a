//! The old form: one turn, given at creation; one log without first and last line; a stream without ids.

use bex_proto::driver::{DriverState, LEGACY_LOG_FILE};
use bex_proto::launch::Pace;
use bex_proto::limits;
use http::Method;

use crate::sandbox::{Sandbox, eventually, logged, parts, read_events};

#[tokio::test]
async fn the_one_turn_is_spoken_without_ids_and_ends_the_driver_s_work() {
    let mut sandbox = Sandbox::playing(parts(50), Pace::PartsPerSecond(500))
        .legacy()
        .start()
        .await;
    let stream = sandbox
        .call(Method::GET, "/stream", None, String::new())
        .await;
    let shown = read_events(stream).await;
    assert!(shown.iter().all(|(id, _)| id.is_empty()));
    assert_eq!(
        shown.into_iter().map(|(_, part)| part).collect::<Vec<_>>(),
        parts(50)
    );
    eventually("succeeded", || {
        sandbox
            .status()
            .is_some_and(|s| s.state == DriverState::Succeeded)
    })
    .await;
    let status = sandbox.status().expect("a status");
    assert!((status.generation, status.turn) == (None, None) && !status.evidence_truncated());
    let log = sandbox.launch.dir.join(LEGACY_LOG_FILE);
    let text = std::fs::read_to_string(&log).expect("a log");
    assert!(
        text.lines()
            .all(|line| line.contains(r#""type":"ui-message""#)),
        "no first line, no last line"
    );
    assert_eq!(logged(&log).len(), 50);
    for path in ["/hello", "/turn"] {
        let answer = sandbox.call(Method::GET, path, None, String::new()).await;
        assert_eq!(answer.status(), 404);
    }

    sandbox.kill().await;
    sandbox.restart().await;
    assert_eq!(
        sandbox.status().map(|s| s.state),
        Some(DriverState::Failed),
        "its turn is not spoken twice"
    );
    assert_eq!(logged(&log).len(), 50);
}

#[tokio::test]
async fn a_full_log_has_holes_and_the_status_says_so() {
    let big = |n: u32| format!(r#"{{"type":"x","n":{n},"d":"{}"}}"#, "y".repeat(1_000_000));
    let said: Vec<_> = (0..17).map(big).chain(parts(3)).collect();
    let sandbox = Sandbox::playing(&said, Pace::Max).legacy().start().await;
    eventually("succeeded", || {
        sandbox
            .status()
            .is_some_and(|s| s.state == DriverState::Succeeded)
    })
    .await;
    assert!(sandbox.status().is_some_and(|s| s.evidence_truncated()));
    let log = sandbox.launch.dir.join(LEGACY_LOG_FILE);
    assert!(std::fs::metadata(&log).expect("a log").len() <= limits::TURN_LOG_BYTES);
    let indexes: Vec<_> = logged(&log).into_iter().map(|(index, _)| index).collect();
    let expected: Vec<_> = (0..16).chain(17..20).collect();
    assert_eq!(indexes, expected, "what fits is kept, under its own index");
}
