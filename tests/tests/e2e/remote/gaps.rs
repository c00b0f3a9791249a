//! What is not there is told once, with its range, to those who would have been shown it.

use bex_proto::remote::RemoteState;
use bex_tests::client::Ending;

use super::*;

const TURNS: usize = 40;
/// Of [`TURNS`] times five events these are too old.
const OLD: u64 = 77;

fn expected(gap: &str, events: Range<u64>) -> Vec<String> {
    let gap = (!gap.is_empty()).then(|| gap.to_owned());
    gap.into_iter()
        .chain(events.map(|index| index.to_string()))
        .collect()
}

/// Gaps and events as they came, without turns and states.
fn shown(viewer: &Viewer<u64>) -> Vec<String> {
    let all = viewer.events.iter().filter_map(told);
    all.filter(|told| told.starts_with(|first: char| first.is_ascii_digit()) || told.contains(' '))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_purged_is_one_gap_for_those_who_come_from_before_it() {
    let options = StackOptions::default().api("BEX_RETENTION_TICK_MS", "100");
    let (mut stack, machine) = begin(options).await;
    // nobody has watched there, so that nothing of the past is at hand
    let second = stack.add_gateway().await.unwrap();
    let session = new_session(&stack, &machine, "interactive").await;
    let events = lines(&conversation(0..TURNS), 0);
    let all = events.len() as u64;
    let mut present = follow(&stack, &session, None).await;
    machine.says(&session, &events).await.unwrap();
    is_read(&stack, &session).await;
    present.until(|e| e.id == Some(all - 1)).await.unwrap();
    let before = rows(&stack, &session).await;

    let old = format!(
        "UPDATE remote_events SET created_at = now() - interval '31 days' WHERE session_id = '{session}' AND event_index < {OLD};
         UPDATE remote_heads SET first_at = now() - interval '31 days' WHERE session_id = '{session}'"
    );
    stack.sql(&old).unwrap();
    eventually("old events are removed", STEP, async || {
        let view = stack.viewer().remote(&session).await.ok()?;
        (view["counters"]["firstEventIndex"] == OLD).then_some(())
    })
    .await
    .unwrap();
    let left = format!("SELECT count(*) FROM remote_events WHERE session_id = '{session}'");
    assert_eq!(stack.sql(&left).unwrap().trim(), (all - OLD).to_string());

    let cases = [
        (None, format!("purged 0-{}", OLD - 1), OLD),
        (Some(9), format!("purged 10-{}", OLD - 1), OLD),
        (Some(OLD - 2), format!("purged {0}-{0}", OLD - 1), OLD),
        (Some(OLD - 1), String::new(), OLD),
        (Some(OLD + 30), String::new(), OLD + 31),
    ];
    let mut viewers = Vec::new();
    for (after, gap, from) in cases {
        let opened = try_follow(&stack, second.attach, &session, "svc:viewer", after).await;
        let mut viewer = opened.unwrap().unwrap();
        viewer.until(|e| e.id == Some(all - 1)).await.unwrap();
        assert_eq!(
            shown(&viewer),
            expected(&gap, from..all),
            "behind {after:?}"
        );
        viewers.push((viewer, gap, from));
    }
    // what comes later is told to all of them, and nothing of the gap again
    let more = lines(&conversation(TURNS..TURNS + 1), all);
    machine.says(&session, &more).await.unwrap();
    let end = machine.ends(&session, RemoteState::Stopped, (all as usize) + more.len());
    end.await.unwrap();
    let end = all + more.len() as u64;
    for (mut viewer, gap, from) in viewers {
        assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
        assert_eq!(shown(&viewer), expected(&gap, from..end));
    }
    assert_eq!(present.to_end().await.unwrap(), Ending::Done);
    assert_eq!(shown(&present), expected("", 0..end));
    // the rows outlive their events
    let after = rows(&stack, &session).await;
    let kept = &after["turns"].as_array().unwrap()[..TURNS];
    assert_eq!(kept, before["turns"].as_array().unwrap());
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_came_is_one_gap_and_stays_one_when_it_comes_late() {
    let (stack, machine) = begin(StackOptions::default()).await;
    let session = new_session(&stack, &machine, "autonomous").await;
    let mut events = lines(&conversation(0..3), 0);
    let all = events.len() as u64;
    let mut missing = events.split_off(6);
    let late = missing.split_off(3);
    assert_eq!((missing[0].event_index, late[0].event_index), (6, 9));
    let mut present = follow(&stack, &session, None).await;
    machine.says(&session, &events).await.unwrap();
    let answer = machine.says(&session, &late).await.unwrap();
    assert_eq!(answer.next_event_index, 6);
    present.until(|e| e.id == Some(5)).await.unwrap();
    // the program's end is known: what is missing is waited for two seconds
    let last = OutputEvent {
        is_complete: true,
        ..event(all, "")
    };
    machine.says(&session, &[last]).await.unwrap();
    present.until(|e| e.id == Some(all)).await.unwrap();
    let mut told = expected("", 0..6);
    told.push("missing 6-8".into());
    told.extend(expected("", 9..all + 1));
    assert_eq!(shown(&present), told);
    for (after, gap, from) in [
        (Some(5), "missing 6-8", 9),
        (Some(6), "missing 7-8", 9),
        (Some(8), "", 9),
    ] {
        let mut viewer = follow(&stack, &session, after).await;
        viewer.until(|e| e.id == Some(all)).await.unwrap();
        assert_eq!(
            shown(&viewer),
            expected(gap, from..all + 1),
            "behind {after:?}"
        );
    }
    is_read(&stack, &session).await;
    let settled = rows(&stack, &session).await;
    assert_eq!(settled["turns"][1]["terminalReason"], "gap");
    assert_eq!(settled["turns"][1]["gaps"], json!([{"from": 6, "to": 8}]));
    assert_eq!(settled["turns"][2]["terminalReason"], "result");

    // it comes after all: kept, and no settled turn is another
    let answer = machine.says(&session, &missing).await.unwrap();
    assert_eq!((answer.accepted, answer.next_event_index), (3, all + 1));
    machine
        .ends(&session, RemoteState::Completed, all as usize + 1)
        .await
        .unwrap();
    assert_eq!(present.to_end().await.unwrap(), Ending::Done);
    assert_eq!(shown(&present), told, "told once is told");
    same_rows(&rows(&stack, &session).await, &settled, "in the end");
    rows_are_counted(&stack, &session).await;
    stack.stop().await.unwrap();
}
