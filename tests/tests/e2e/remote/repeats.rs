//! What was told before is told again, in every way in which that happens: nothing comes of it.

use std::collections::BTreeSet;

use bex_proto::remote::RemoteState;
use bex_tests::client::Ending;

use super::*;

const TURNS: usize = 30;

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_posted_twice_and_its_record_on_top_add_no_row_and_no_count() {
    let (stack, machine) = begin(StackOptions::default()).await;
    let text = conversation(0..TURNS);
    let events = lines(&text, 0);
    let all = events.len() as u64;
    let straight = new_session(&stack, &machine, "autonomous").await;
    machine.says(&straight, &events).await.unwrap();
    is_read(&stack, &straight).await;
    let wanted = rows(&stack, &straight).await;
    assert_eq!(wanted["turns"].as_array().unwrap().len(), TURNS);

    let session = new_session(&stack, &machine, "autonomous").await;
    let mut viewer = follow(&stack, &session, None).await;
    // in the middle of a turn
    let half = events.len() / 2 + 2;
    assert_ne!(half % TURN_LINES, 0);
    machine.says(&session, &events[..half]).await.unwrap();
    is_read(&stack, &session).await;
    // the record of what was said so far, while its turn is open
    let record = |lines: &[OutputEvent]| -> String {
        let lines = lines.iter().map(|event| event.data.as_str());
        lines
            .filter(|line| !line.contains(r#""type":"result""#))
            .collect()
    };
    let answer = machine
        .imports(&session, &record(&events[..half]))
        .await
        .unwrap();
    assert_eq!(answer["duplicate"], false);
    let answer = machine.says(&session, &events[..half]).await.unwrap();
    assert_eq!((answer.accepted, answer.duplicates), (0, half as u64));
    machine.says(&session, &events[half..]).await.unwrap();
    is_read(&stack, &session).await;
    same_rows(
        &rows(&stack, &session).await,
        &wanted,
        "a record of half of it",
    );

    for duplicate in [false, true] {
        let answer = machine.imports(&session, &record(&events)).await.unwrap();
        assert_eq!(answer["duplicate"], duplicate);
        let answer = machine.says(&session, &events).await.unwrap();
        assert_eq!(
            (answer.accepted, answer.duplicates, answer.next_event_index),
            (0, all, all)
        );
    }
    is_read(&stack, &session).await;
    same_rows(
        &rows(&stack, &session).await,
        &wanted,
        "a record of all of it",
    );
    // a program that tells its history again says it in new events
    let again = lines(&text, all);
    machine.says(&session, &again).await.unwrap();
    is_read(&stack, &session).await;
    same_rows(&rows(&stack, &session).await, &wanted, "told again");
    rows_are_counted(&stack, &session).await;

    machine
        .ends(&session, RemoteState::Completed, 2 * events.len())
        .await
        .unwrap();
    assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
    let ids: Vec<u64> = viewer.events.iter().filter_map(|event| event.id).collect();
    assert_eq!(ids, (0..2 * all).collect::<Vec<_>>(), "each event once");
    let turns = viewer.of_kind("turn-durable");
    let named: BTreeSet<String> = turns.iter().map(Value::to_string).collect();
    assert_eq!((turns.len(), named.len()), (TURNS, TURNS), "each turn once");
    // an ended session still knows what it was told
    let answer = machine.says(&session, &events).await.unwrap();
    assert_eq!((answer.accepted, answer.duplicates), (0, all));
    same_rows(&rows(&stack, &session).await, &wanted, "in the end");
    stack.stop().await.unwrap();
}
