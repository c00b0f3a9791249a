//! The life of turns.

use bex_proto::driver::{
    DriverState, TurnDigest, TurnState, dropped_record, log_record, write_part_record,
};
use bex_proto::ids::{Generation, PartIndex, TurnNo};
use bex_proto::launch::Pace;

use crate::sandbox::{Sandbox, eventually, logged, parts, turn_end};

#[tokio::test]
async fn a_turn_is_logged_shown_and_declared_byte_for_byte() {
    let mut expected = parts(5);
    expected.insert(0, r#"{"type":"start","messageId":"m"}"#.into());
    expected.push(r#"{"type":"x","a":"\u0000 \ud800 \/ é","n":1.50}"#.into());
    let sandbox = Sandbox::playing(&expected, Pace::Max).start().await;
    assert_eq!(sandbox.status().map(|s| s.state), Some(DriverState::Idle));
    assert_eq!(sandbox.turn(1, "hello", None).await, 202);
    assert_eq!(sandbox.parts(1).await, expected);

    let end = sandbox.ended(1).await;
    let mut digest = TurnDigest::default();
    expected.iter().for_each(|part| digest.add(part.as_bytes()));
    assert_eq!(end.sha256, digest.hex());
    assert_eq!(end.parts as usize, expected.len());
    assert_eq!(end.bytes as usize, expected.concat().len());
    assert_eq!((end.state, end.dropped), (TurnState::Succeeded, None));
    let kept: Vec<_> = logged(&sandbox.log_path(1))
        .into_iter()
        .map(|(_, part)| part)
        .collect();
    assert_eq!(kept, expected);
    let status = sandbox.status().expect("a status");
    assert_eq!(
        (status.state, status.turn),
        (DriverState::Idle, Some(TurnNo(1)))
    );

    let tail = sandbox.stream(1, 4).await;
    assert_eq!(tail.first().map(|(id, _)| id.as_str()), Some("1.4"));
    assert_eq!(tail.len(), expected.len() - 4);
    assert_eq!(sandbox.stream(1, 1000).await, []);
}

#[tokio::test]
async fn a_number_is_spoken_once_and_numbers_rise() {
    let sandbox = Sandbox::playing(parts(3), Pace::Max).start().await;
    assert_eq!(sandbox.turn(2, "a", None).await, 202);
    let end = sandbox.ended(2).await;
    eventually("the driver is idle", || {
        sandbox
            .status()
            .is_some_and(|s| s.state == DriverState::Idle)
    })
    .await;
    assert_eq!(
        sandbox.turn(2, "a", None).await,
        202,
        "the same again changes nothing"
    );
    assert_eq!(
        sandbox.turn(1, "a", None).await,
        409,
        "an older one is refused"
    );
    assert_eq!(sandbox.open_stream(1, 0).await.status(), 404);
    assert_eq!(sandbox.turn(5, "b", None).await, 202);
    assert_eq!(sandbox.parts(5).await, parts(3));
    assert_eq!(
        sandbox.parts(2).await,
        parts(3),
        "an earlier turn is read from its log"
    );
    assert_eq!(turn_end(&sandbox.log_path(2)), Some(end));
}

#[tokio::test]
async fn one_turn_at_a_time_and_a_stopped_one_makes_room() {
    let sandbox = Sandbox::playing(parts(100_000), Pace::PartsPerSecond(100))
        .start()
        .await;
    assert_eq!(sandbox.stop(1).await, 404, "nothing to stop yet");
    assert_eq!(sandbox.turn(1, "a", None).await, 202);
    assert_eq!(
        sandbox.turn(1, "a", None).await,
        202,
        "the running one again"
    );
    assert_eq!(sandbox.turn(2, "b", None).await, 409);
    eventually("it speaks", || logged(&sandbox.log_path(1)).len() > 3).await;
    assert_eq!(sandbox.stop(1).await, 202);
    let end = sandbox.ended(1).await;
    assert_eq!(end.state, TurnState::Stopped);
    assert_eq!(logged(&sandbox.log_path(1)).len(), end.parts as usize);
    assert_eq!(sandbox.parts(1).await.len(), end.parts as usize);
    assert_eq!(sandbox.stop(1).await, 202, "stopping again is no error");
    assert_eq!(sandbox.turn(2, "b", None).await, 202);
}

#[tokio::test]
async fn a_killed_driver_ends_its_turn_when_it_is_back() {
    let mut sandbox = Sandbox::playing(parts(100_000), Pace::PartsPerSecond(500))
        .start()
        .await;
    assert_eq!(sandbox.turn(1, "a", None).await, 202);
    let log = sandbox.log_path(1);
    eventually("it speaks", || logged(&log).len() > 20).await;
    sandbox.kill().await;
    let kept = logged(&log);
    // the process died in the middle of a line
    let mut torn = std::fs::read(&log).expect("a log");
    torn.extend_from_slice(br#"{"at":"2026-01-01T00:00:00.000Z","type":"ui-mess"#);
    std::fs::write(&log, torn).expect("written");

    sandbox.restart().await;
    let end = turn_end(&log).expect("ended before it listens");
    assert_eq!(
        (end.state, end.parts as usize),
        (TurnState::Failed, kept.len())
    );
    let mut digest = TurnDigest::default();
    kept.iter()
        .for_each(|(_, part)| digest.add(part.as_bytes()));
    assert_eq!(end.sha256, digest.hex());
    let status = sandbox.status().expect("a status");
    assert_eq!(
        (status.state, status.turn),
        (DriverState::Idle, Some(TurnNo(1)))
    );
    assert!(status.error.is_some());

    // a restarted driver refuses grants of the second in which it started
    let second = jiff::Timestamp::now().as_second();
    eventually("the second is over", || {
        jiff::Timestamp::now().as_second() > second + 1
    })
    .await;
    let shown: Vec<_> = sandbox.parts(1).await;
    assert_eq!(
        shown,
        kept.into_iter().map(|(_, part)| part).collect::<Vec<_>>()
    );
    assert_eq!(
        sandbox.turn(1, "a", None).await,
        202,
        "known: not spoken again"
    );
    assert_eq!(turn_end(&log), Some(end));
    assert_eq!(sandbox.turn(2, "b", None).await, 202, "and still steerable");
}

#[tokio::test]
async fn sigterm_ends_the_turn_and_the_log_is_served_until_the_second_one() {
    let mut sandbox = Sandbox::playing(parts(100_000), Pace::PartsPerSecond(500))
        .start()
        .await;
    assert_eq!(sandbox.turn(1, "a", None).await, 202);
    eventually("it speaks", || logged(&sandbox.log_path(1)).len() > 3).await;
    sandbox.sigterm();
    let end = sandbox.ended(1).await;
    assert_eq!(end.state, TurnState::Failed);
    eventually("it takes no more", || {
        sandbox
            .status()
            .is_some_and(|s| s.state == DriverState::Failed)
    })
    .await;
    assert_eq!(sandbox.parts(1).await.len(), end.parts as usize);
    assert_eq!(sandbox.turn(2, "b", None).await, 409);
    assert_eq!(sandbox.open_stream(2, 0).await.status(), 404);
    sandbox.sigterm();
    let status = sandbox.child().wait().await.expect("it ends");
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn a_full_log_that_was_not_ended_still_says_that_it_is_not_whole() {
    let sandbox = Sandbox::playing(parts(3), Pace::Max);
    let mut log = log_record(Generation(1), "log-a", TurnNo(1)).into_bytes();
    let part = br#"{"type":"x"}"#;
    write_part_record(
        &mut log,
        jiff::Timestamp::now(),
        TurnNo(1),
        PartIndex(0),
        part,
    );
    log.extend_from_slice(dropped_record(TurnNo(1), PartIndex(1)).as_bytes());
    std::fs::write(sandbox.log_path(1), log).expect("written");
    let sandbox = sandbox.start().await;
    let end = turn_end(&sandbox.log_path(1)).expect("ended");
    assert_eq!((end.state, end.parts), (TurnState::Failed, 1));
    assert_eq!(end.dropped.map(|d| d.first), Some(PartIndex(1)));
}
