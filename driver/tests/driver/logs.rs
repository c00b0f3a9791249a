//! What a log holds, whatever is said.

use bex_proto::driver::{DriverState, LogRecord, TurnDigest, TurnState};
use bex_proto::ids::PartIndex;
use bex_proto::launch::Pace;
use bex_proto::limits;

use crate::sandbox::{Sandbox, eventually, logged, read_events};

#[tokio::test]
async fn a_full_log_says_so_at_once_and_the_stream_has_everything() {
    let said: Vec<_> = (0..22)
        .map(|n| format!(r#"{{"type":"x","n":{n},"d":"{}"}}"#, "y".repeat(1_000_000)))
        // small enough to fit again; it must not
        .chain([r#"{"type":"small"}"#.to_owned()])
        .collect();
    let sandbox = Sandbox::playing(&said, Pace::PartsPerSecond(20))
        .start()
        .await;
    let live = sandbox.open_stream(1, 0).await;
    assert_eq!(sandbox.turn(1, "a", None).await, 202);
    let live: Vec<_> = read_events(live)
        .await
        .into_iter()
        .map(|(_, part)| part)
        .collect();
    assert!(live == said, "{} of {} parts", live.len(), said.len());

    let end = sandbox.ended(1).await;
    let kept = logged(&sandbox.log_path(1));
    let dropped = end.dropped.expect("some were dropped");
    assert_eq!((dropped.first.0 as usize, dropped.last.0), (kept.len(), 22));
    assert_eq!(dropped.count as usize, said.len() - kept.len());
    assert_eq!(dropped.bytes as usize, said[kept.len()..].concat().len());
    assert_eq!(
        (end.parts as usize, end.state),
        (said.len(), TurnState::Succeeded)
    );
    let mut digest = TurnDigest::default();
    said.iter().for_each(|part| digest.add(part.as_bytes()));
    assert_eq!(end.sha256, digest.hex(), "dropped parts are declared too");

    let log = std::fs::read(sandbox.log_path(1)).expect("a log");
    assert!(log.len() as u64 <= limits::TURN_LOG_BYTES);
    let lines: Vec<_> = log.split(|b| *b == b'\n').collect();
    assert!(matches!(
        LogRecord::parse(lines[0]),
        Some(LogRecord::Log { .. })
    ));
    let mark = LogRecord::parse(lines[kept.len() + 1]);
    assert!(
        matches!(mark, Some(LogRecord::Dropped { first: PartIndex(n), .. }) if n == dropped.first.0)
    );
    assert!(matches!(
        LogRecord::parse(lines[kept.len() + 2]),
        Some(LogRecord::TurnEnd(_))
    ));
    assert_eq!(lines[kept.len() + 3..], [b""], "nothing after it");

    // a late reader gets what the log has and what memory still has, under their own ids
    let late = sandbox.stream(1, 0).await;
    for (id, part) in &late {
        let index: usize = id
            .strip_prefix("1.")
            .expect("an id")
            .parse()
            .expect("a number");
        assert!(*part == said[index], "{id}");
    }
    assert!(late.len() >= kept.len() && late.len() < said.len());
}

#[tokio::test]
async fn odd_parts_are_made_storable_and_nothing_beside_them_is_lost() {
    let huge = format!(r#"{{"type":"x","d":"{}"}}"#, "y".repeat(limits::PART_BYTES));
    let said: Vec<Vec<u8>> = vec![
        br#"{"type":"before"}"#.to_vec(),
        b"{\"type\":\"x\",\"a\":\"n\0l\"}".to_vec(),
        b"{\"type\":\"x\",\"a\":\"bad\xff\xf0\x9f\"}".to_vec(),
        b"{ \"type\": \"x\", \"b\" : [1, 2] }".to_vec(),
        huge.clone().into_bytes(),
        b"not json".to_vec(),
        b"[1]".to_vec(),
        b"{\"type\":\"y\",\ndata: \"c\":1}".to_vec(),
        br#"{"type":"after"}"#.to_vec(),
    ];
    let sandbox = Sandbox::playing(said, Pace::Max).start().await;
    assert_eq!(sandbox.turn(1, "a", None).await, 202);
    let shown = sandbox.parts(1).await;
    let expected = [
        r#"{"type":"before"}"#.to_owned(),
        r#"{"type":"x","a":"n\u0000l"}"#.to_owned(),
        "{\"type\":\"x\",\"a\":\"bad\u{fffd}\u{fffd}\"}".to_owned(),
        r#"{"type":"x","b":[1,2]}"#.to_owned(),
        format!(
            r#"{{"type":"data-truncated","data":{{"reason":"too_large","bytes":{}}}}}"#,
            huge.len()
        ),
        r#"{"type":"data-truncated","data":{"reason":"not_json","bytes":8}}"#.to_owned(),
        r#"{"type":"data-truncated","data":{"reason":"not_json","bytes":3}}"#.to_owned(),
        r#"{"type":"y","c":1}"#.to_owned(),
        r#"{"type":"after"}"#.to_owned(),
    ];
    assert_eq!(shown, expected);
    let kept: Vec<_> = logged(&sandbox.log_path(1))
        .into_iter()
        .map(|(_, part)| part)
        .collect();
    assert_eq!(kept, expected);
    assert_eq!(sandbox.ended(1).await.parts as usize, expected.len());
}

#[tokio::test]
async fn no_credential_reaches_log_stream_or_status() {
    let secret = "hunter2-hunter2-hunter2";
    let mut sandbox = Sandbox::shell(
        r#"printf 'env %s\n' "$TOKEN"; printf 'split hunter2-'; sleep 0.2; printf 'hunter2-hunter2.\n'; printf '%s' "$TOKEN" >&2; exit 3"#,
    );
    sandbox.launch.secrets.insert("TOKEN".into(), secret.into());
    let sandbox = sandbox.start().await;
    assert_eq!(sandbox.turn(1, "a", None).await, 202);
    let shown = sandbox.parts(1).await.concat();
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(shown.matches("[redacted:credential]").count(), 3, "{shown}");
    for entry in std::fs::read_dir(&sandbox.launch.dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.ends_with(bex_proto::launch::LAUNCH_FILE) {
            continue;
        }
        let text = std::fs::read(&path).expect("a file");
        assert!(
            !String::from_utf8_lossy(&text).contains("hunter2"),
            "{}",
            path.display()
        );
    }
    let own = std::fs::read_to_string(sandbox.root.path().join("stderr")).expect("a file");
    assert!(!own.contains("hunter2"), "{own}");
}

#[tokio::test]
async fn a_disk_that_is_full_at_the_end_costs_no_turn_its_last_line() {
    // large, so that the limit below is far over what the driver says on stderr
    let said: Vec<_> = (0..40)
        .map(|n| format!(r#"{{"type":"x","n":{n},"d":"{}"}}"#, "y".repeat(10_000)))
        .collect();
    let mut sandbox = Sandbox::playing(&said, Pace::PartsPerSecond(40))
        .start()
        .await;
    assert_eq!(sandbox.turn(1, "a", None).await, 202);
    let live = tokio::spawn(read_events(sandbox.open_stream(1, 0).await));
    let (path, stderr) = (sandbox.log_path(1), sandbox.stderr.clone());
    let size = || std::fs::metadata(&path).map_or(0, |log| log.len());
    eventually("the turn is being logged", || size() > 50_000).await;
    sandbox.limit_files("50000");
    eventually("the last line cannot be written", || {
        std::fs::read_to_string(&stderr).is_ok_and(|log| log.contains("turn-end cannot be written"))
    })
    .await;
    assert!(!live.is_finished(), "no end is said that is not on record");
    sandbox.limit_files("unlimited");
    assert_eq!(live.await.expect("no panic").len(), said.len());
    let end = sandbox.ended(1).await;
    assert_eq!(
        (end.parts as usize, end.state),
        (said.len(), TurnState::Succeeded)
    );
    assert!(
        end.dropped
            .is_some_and(|d| d.last.0 as usize == said.len() - 1)
    );
    eventually("the driver is idle", || {
        sandbox
            .status()
            .is_some_and(|status| status.state == DriverState::Idle)
    })
    .await;
    assert_eq!(sandbox.turn(2, "b", None).await, 202);
}

#[tokio::test]
async fn a_log_that_takes_nothing_stops_nothing() {
    let said = crate::sandbox::parts(3);
    let mut sandbox = Sandbox::playing(&said, Pace::Max);
    sandbox.stderr = "/dev/full".into();
    let sandbox = sandbox.start().await;
    assert_eq!(sandbox.turn(1, "a", None).await, 202);
    assert_eq!(sandbox.parts(1).await, said);
    assert_eq!(sandbox.ended(1).await.parts, 3);
}
