//! What is stored, as a page gets it.

use super::super::*;
use super::rig::*;

const ERROR: &str = r#"{"type":"error","errorText":"boom"}"#;

/// Turn 1 complete with an error and a finish of its own, turn 2 truncated with a hole.
async fn two_turns(rig: &Rig) -> (bex_proto::SessionId, Vec<String>) {
    let (session, _) = rig.running().await;
    let mut first = vec![r#"{"type":"start","messageId":"m"}"#.to_owned()];
    first.extend(speech(4));
    first.extend([ERROR.to_owned(), r#"{"type":"finish"}"#.to_owned()]);
    rig.store(&session, 1, &parts(1, &first)).await;
    rig.settle(&session, 1, 1, Some(&first)).await;
    rig.next_turn(&session).await;
    rig.deliver(&session).await;
    let second = speech(8);
    let mut stored = parts(2, &second);
    stored.drain(3..5);
    rig.store(&session, 2, &stored).await;
    rig.settle(&session, 2, 2, None).await;
    (session, second)
}

#[tokio::test]
async fn the_whole_conversation_in_order_with_what_is_missing_told() {
    let rig = Rig::new().await;
    let (session, second) = two_turns(&rig).await;
    let text = |i: usize| format!("2.{i} {}", second[i]);
    let expected = [
        format!(r#"{{"type":"start","messageId":"durable-{session}"}}"#),
        r#"{"type":"data-user-prompt","id":"prompt-1","data":{"turn":1,"text":"prompt 1","complete":true,"settled":true,"truncated":false,"reason":null,"deliveryMode":"fresh"}}"#.into(),
        r#"1.1 {"type":"text-start","id":"t"}"#.into(),
        r#"1.2 {"type":"text-delta","id":"t","delta":"1 "}"#.into(),
        r#"1.3 {"type":"text-delta","id":"t","delta":"2 "}"#.into(),
        r#"1.4 {"type":"text-end","id":"t"}"#.into(),
        r#"1.5 {"type":"data-bex-turn-error","data":{"turn":1,"errorText":"boom"}}"#.into(),
        r#"{"type":"data-user-prompt","id":"prompt-2","data":{"turn":2,"text":"prompt 2","complete":false,"settled":true,"truncated":true,"reason":"sandbox_lost","deliveryMode":"fresh"}}"#.into(),
        text(0),
        text(1),
        text(2),
        r#"{"type":"text-end","id":"t"}"#.into(),
        r#"{"type":"data-bex-incomplete","data":{"turn":2,"reason":"sandbox_lost","from":"2.3","to":"2.4"}}"#.into(),
        r#"{"type":"text-start","id":"t"}"#.into(),
        text(5),
        text(6),
        text(7),
        r#"{"type":"data-bex-incomplete","data":{"turn":2,"reason":"sandbox_lost","stored":6}}"#.into(),
        events::FINISH.into(),
        "[DONE]".into(),
    ];
    let mut stream = rig.read(&session).await;
    assert_eq!(stream.rest().await, expected);
    // parts that have no place move the cursor alone
    let raw = String::from_utf8(stream.raw).expect("text");
    assert!(
        raw.contains("id: 1.0\n\n") && raw.contains("id: 1.6\n\n"),
        "{raw}"
    );
    assert_eq!(
        *rig.targets.looks.lock().expect("no panic"),
        0,
        "nothing is dialled for a finished session"
    );
    assert_eq!(rig.attach.budget.free_bytes(), limits::REPLAY_BUDGET_BYTES);
}

#[tokio::test]
async fn a_cursor_gives_exactly_what_follows_it() {
    let rig = Rig::new().await;
    let (session, _) = two_turns(&rig).await;
    let mut whole = rig.read(&session).await;
    let all = of_parts(&whole.rest().await);
    for cursor in ["1.0", "1.3", "1.6", "2.0", "2.2", "2.4", "2.6"] {
        let after: bex_proto::ids::PartId = cursor.parse().expect("an id");
        let mut stream = Stream::of(
            rig.send(read_ticket(&session).after(cursor).request())
                .await,
        );
        let rest = stream.rest().await;
        let expected: Vec<_> = all
            .iter()
            .filter(|event| {
                event
                    .split(' ')
                    .next()
                    .and_then(|id| id.parse().ok())
                    .is_some_and(|id: bex_proto::ids::PartId| id > after)
            })
            .cloned()
            .collect();
        assert_eq!(of_parts(&rest), expected, "{cursor}");
        let raw = String::from_utf8(stream.raw).expect("text");
        assert!(
            raw.starts_with(&format!(": stream-open\n\nid: {cursor}\n\n")),
            "{raw}"
        );
        assert!(!raw.contains(r#""type":"start""#), "{raw}");
        assert_eq!(rest.last().map(String::as_str), Some("[DONE]"));
    }
    for end in ["2.7", "2.900"] {
        let response = rig.send(read_ticket(&session).after(end).request()).await;
        assert_eq!(response.status(), 204, "{end}");
    }
}

#[tokio::test]
async fn a_viewer_that_lost_its_state_gets_what_is_open_again() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let said: Vec<String> = [
        r#"{"type":"tool-input-start","toolCallId":"done","toolName":"x"}"#,
        r#"{"type":"tool-input-available","toolCallId":"done","toolName":"x","input":{}}"#,
        r#"{"type":"tool-output-available","toolCallId":"done","output":1}"#,
        r#"{"type":"text-start","id":"a"}"#,
        r#"{"type":"reasoning-start","id":"r"}"#,
        r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x"}"#,
        r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{"}"#,
        r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"}"}"#,
        r#"{"type":"text-delta","id":"a","delta":"x"}"#,
        r#"{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":{}}"#,
        r#"{"type":"tool-output-available","toolCallId":"c","output":1}"#,
        r#"{"type":"reasoning-end","id":"r"}"#,
        r#"{"type":"text-end","id":"a"}"#,
    ]
    .map(str::to_owned)
    .into();
    rig.store(&session, 1, &parts(1, &said)).await;
    rig.settle(&session, 1, 1, Some(&said)).await;
    let mut kept = Stream::of(rig.send(read_ticket(&session).after("1.7").request()).await);
    assert_eq!(kept.next().await, Some(format!("1.8 {}", said[8])));
    let mut fresh = Stream::of(
        rig.send(read_ticket(&session).after("1.7&fresh=1").request())
            .await,
    );
    let again = [
        r#"{"type":"text-start","id":"a"}"#.to_owned(),
        r#"{"type":"reasoning-start","id":"r"}"#.to_owned(),
        said[5].clone(),
        said[6].clone(),
        said[7].clone(),
    ];
    let all = fresh.rest().await;
    assert_eq!(all[..5], again);
    assert_eq!(of_parts(&all), events(1, &said)[8..]);
}

#[tokio::test]
async fn a_part_as_large_as_may_be_and_many_small_ones_come_whole() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let big =
        |i: usize, len: usize| format!(r#"{{"type":"data-x","data":"{i} {}"}}"#, "y".repeat(len));
    let mut said: Vec<String> = (0..2500).map(|i| big(i, 10)).collect();
    said.extend((0..3).map(|i| big(i, limits::PART_BYTES - 40)));
    said.extend((0..20).map(|i| big(i, 100_000)));
    for batch in parts(1, &said).chunks(500) {
        rig.store(&session, 1, batch).await;
    }
    rig.settle(&session, 1, 1, Some(&said)).await;
    let (mut one, mut two) = (rig.read(&session).await, rig.read(&session).await);
    let (one, two) = tokio::join!(one.rest(), two.rest());
    let shown = of_parts(&one);
    assert!(shown == events(1, &said), "{:?}", ids(&shown));
    assert!(one == two, "two viewers are shown the same");
    assert_eq!(rig.attach.budget.free_bytes(), limits::REPLAY_BUDGET_BYTES);
}

#[tokio::test]
async fn of_an_open_turn_a_replay_only_viewer_sees_the_contiguous_prefix() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let said = speech(6);
    let mut stored = parts(1, &said);
    stored.remove(2);
    rig.store(&session, 1, &stored).await;
    let mut ticket = read_ticket(&session);
    ticket.claims.rpo = true;
    let mut stream = Stream::of(rig.send(ticket.request()).await);
    let all = stream.rest().await;
    assert_eq!(of_parts(&all), events(1, &said)[..2]);
    assert!(
        all.iter()
            .any(|event| event.contains(r#""verdict":"open""#)),
        "{all:?}"
    );
    assert_eq!(*rig.targets.looks.lock().expect("no panic"), 0);
}

#[tokio::test]
async fn a_viewer_that_was_at_the_end_of_a_cut_turn_is_not_told_its_ends_again() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let first = speech(4);
    rig.store(&session, 1, &parts(1, &first[..2])).await;
    rig.settle(&session, 1, 1, None).await;
    rig.next_turn(&session).await;
    rig.deliver(&session).await;
    let second = speech(3);
    rig.store(&session, 2, &parts(2, &second)).await;
    rig.settle(&session, 2, 2, Some(&second)).await;
    let mut kept = Stream::of(rig.send(read_ticket(&session).after("1.1").request()).await);
    let all = kept.rest().await;
    assert_eq!(of_parts(&all), events(2, &second));
    assert!(
        !all.iter()
            .any(|event| event.starts_with(r#"{"type":"text-end","id":"t"}"#)),
        "{all:?}"
    );
    let mut fresh = Stream::of(
        rig.send(read_ticket(&session).after("1.1&fresh=1").request())
            .await,
    );
    let all = fresh.rest().await;
    assert_eq!(
        all[..2],
        [
            r#"{"type":"text-start","id":"t"}"#,
            r#"{"type":"text-end","id":"t"}"#
        ]
    );
}

/// A call, and its answer.
fn call(output: u32) -> [String; 2] {
    [
        r#"{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":{},"providerExecuted":true}"#.into(),
        format!(r#"{{"type":"tool-output-available","toolCallId":"c","output":{output},"providerExecuted":true}}"#),
    ]
}

#[tokio::test]
async fn an_id_that_names_another_call_is_set_apart_behind_any_cursor() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let first = call(1);
    rig.store(&session, 1, &parts(1, &first)).await;
    rig.settle(&session, 1, 1, Some(&first)).await;
    rig.next_turn(&session).await;
    rig.deliver(&session).await;
    let mut second = vec![r#"{"type":"data-x","data":1}"#.to_owned()];
    second.extend(call(2));
    rig.store(&session, 2, &parts(2, &second)).await;
    rig.settle(&session, 2, 2, Some(&second)).await;
    let whole = rig.read(&session).await.rest().await;
    let step = r#"{"type":"start-step"}"#;
    let at = whole.iter().position(|event| event == step);
    let at = at.expect("the second call is set apart");
    assert!(whole[at + 1].starts_with("2.1 "), "{whole:?}");
    for cursor in ["1.0", "1.1", "2.0"] {
        let mut stream = Stream::of(
            rig.send(read_ticket(&session).after(cursor).request())
                .await,
        );
        assert_eq!(
            stream.rest().await[..]
                .iter()
                .rev()
                .take(4)
                .collect::<Vec<_>>(),
            whole.iter().rev().take(4).collect::<Vec<_>>(),
            "after {cursor}"
        );
    }
    // in the middle of the call it is one call
    let mut stream = Stream::of(rig.send(read_ticket(&session).after("2.1").request()).await);
    let rest = stream.rest().await;
    assert!(rest[0].starts_with("2.2 "), "{rest:?}");
}

#[tokio::test]
async fn a_replay_waits_for_memory_and_then_goes_on() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let said = speech(5);
    rig.store(&session, 1, &parts(1, &said)).await;
    rig.settle(&session, 1, 1, Some(&said)).await;
    let all = rig.attach.budget.take_all();
    let mut viewer = rig.read(&session).await;
    viewer.until("data-user-prompt").await;
    {
        let mut more = std::pin::pin!(viewer.next());
        for _ in 0..100 {
            assert!(futures::poll!(more.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
    }
    drop(all);
    assert_eq!(of_parts(&viewer.rest().await), events(1, &said));
    assert_eq!(rig.attach.budget.free_bytes(), limits::REPLAY_BUDGET_BYTES);
}

#[tokio::test]
async fn a_viewer_that_takes_nothing_holds_no_memory_of_the_replay() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let said: Vec<String> = (0..300)
        .map(|i| format!(r#"{{"type":"data-x","data":"{i} {}"}}"#, "y".repeat(10_000)))
        .collect();
    rig.store(&session, 1, &parts(1, &said)).await;
    rig.settle(&session, 1, 1, Some(&said)).await;
    let mut viewer = rig.read(&session).await;
    let first = viewer.until("1.0 ").await;
    // its pages are there, and nobody takes them
    rig.until(|rig| async { rig.attach.budget.free_bytes() == limits::REPLAY_BUDGET_BYTES })
        .await;
    let mut all = first;
    all.extend(viewer.rest().await);
    assert_eq!(of_parts(&all), events(1, &said));
}
