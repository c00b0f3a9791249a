//! However a stream arrives, and however many builders read it, its rows are the straight run's.

use bex_api::remote::Builders;
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::*;

/// A conversation of everything: texts, tools, thinking, several turns, a workflow's evidence.
fn conversation() -> String {
    let mut all = vec![json!({"type": "system", "subtype": "init", "session_id": "cli-1"})];
    for turn in 0..6 {
        let tool = json!({"type": "tool_use", "id": format!("t{turn}"), "name": "Bash", "input": {"n": turn, "text": "ä\u{2028}\"\\"}});
        let answer = json!({"type": "user", "uuid": format!("r{turn}"), "message": {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": format!("t{turn}"), "content": "x".repeat(50)}]}});
        let thinking = json!({"type": "thinking", "thinking": format!("hm {turn}")});
        all.push(assistant(&format!("{turn}a"), thinking));
        if turn % 3 != 2 {
            all.push(assistant(
                &format!("{turn}b"),
                text(&format!("Text {turn} — ünïcode. ")),
            ));
        }
        all.push(assistant(&format!("{turn}c"), tool));
        all.push(answer);
        all.push(result());
    }
    all.iter().map(|one| format!("{one}\n")).collect()
}

/// Cuts a text into events at these places, wherever they fall.
fn cut(text: &str, cuts: &[prop::sample::Index]) -> Vec<Value> {
    let mut places: Vec<usize> = cuts
        .iter()
        .map(|cut| text.floor_char_boundary(cut.index(text.len())))
        .chain([0, text.len()])
        .collect();
    places.sort_unstable();
    places.dedup();
    let last = places.len() - 2;
    places
        .windows(2)
        .enumerate()
        .map(|(n, at)| {
            json!({"eventIndex": n, "stream": "stdout", "data": text[at[0]..at[1]], "isComplete": n == last,
                   "at": "2026-01-01T00:00:00.000Z"})
        })
        .collect()
}

/// What a reader sees, without what names a place in the log.
async fn seen(world: &World, session: &str) -> Value {
    let messages = world.messages(session).await;
    let messages: Vec<Value> = messages
        .into_iter()
        .map(|m| {
            json!([
                m["position"],
                m["role"],
                m["content"],
                m["contentBlocks"],
                m["terminalReason"]
            ])
        })
        .collect();
    let turns = world.turns(session).await;
    let turns: Vec<Value> = turns
        .into_iter()
        .map(|t| {
            json!([
                t["number"],
                t["visibleText"],
                t["contentBlocks"],
                t["toolCallIds"],
                t["evidenceIds"],
                t["terminalReason"]
            ])
        })
        .collect();
    json!({"messages": messages, "turns": turns})
}

async fn rows_equal_their_counts(world: &World, session: &str) {
    let view = world.remote_session(session).await;
    let rows = world.sql(&format!(
        "SELECT count(*) FROM messages WHERE session_id = '{session}'"
    ));
    assert_eq!(view["counters"]["messages"].to_string(), rows);
    let turns = world.sql(&format!(
        "SELECT count(*) FROM remote_turns WHERE session_id = '{session}'"
    ));
    assert_eq!(view["counters"]["turns"].to_string(), turns);
}

async fn straight(world: &World, machine: &Machine, kind: &str) -> Value {
    let session = world.remote(machine, kind).await;
    let whole =
        json!({"eventIndex": 0, "stream": "stdout", "data": conversation(), "isComplete": true});
    world.say(machine, &session, &[whole]).await;
    world.read(&session).await;
    let wanted = seen(world, &session).await;
    let messages = wanted["messages"].as_array().unwrap().len();
    assert_eq!(messages, if kind == "autonomous" { 6 } else { 4 });
    wanted
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_chunking_order_repetition_and_two_builders_give_the_same_rows(
        sessions in proptest::collection::vec(
            (proptest::collection::vec(any::<prop::sample::Index>(), 0..60), any::<u64>(), any::<bool>()), 1..8)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::new().await;
            let machine = world.machine().await;
            let cancel = CancellationToken::new();
            let _end = cancel.clone().drop_guard();
            // of another process
            let other = Builders::new(world.db.clone(), Default::default(), cancel.clone());
            let wanted = [straight(&world, &machine, "interactive").await, straight(&world, &machine, "autonomous").await];
            for (cuts, seed, autonomous) in sessions {
                let kind = if autonomous { "autonomous" } else { "interactive" };
                let session = world.remote(&machine, kind).await;
                let id = session.parse().unwrap();
                let mut events = cut(&conversation(), &cuts);
                // an order of its own, each event once or twice
                let mut state = seed | 1;
                let mut random = move || { state ^= state << 13; state ^= state >> 7; state ^= state << 17; state };
                for n in (1..events.len()).rev() {
                    events.swap(n, (random() % (n as u64 + 1)) as usize);
                }
                while !events.is_empty() {
                    let some = (random() as usize % events.len()) + 1;
                    let batch: Vec<Value> = events.drain(..some).collect();
                    world.say(&machine, &session, &batch).await;
                    other.wake(&id);
                    if random() % 2 == 0 {
                        world.say(&machine, &session, &batch).await;
                    }
                }
                world.read(&session).await;
                assert_eq!(seen(&world, &session).await, wanted[usize::from(autonomous)], "{kind}");
                rows_equal_their_counts(&world, &session).await;
                // made again from nothing
                let before = (world.messages(&session).await, world.turns(&session).await);
                world.sql(&format!("DELETE FROM messages WHERE session_id = '{session}'; DELETE FROM remote_turns WHERE session_id = '{session}'"));
                let rebuild = format!("/v1/remote-sessions/{session}/rebuild");
                world.post(ADMIN, &rebuild, &Value::Null).await.ok(202);
                other.wake(&id);
                world.read(&session).await;
                assert_eq!((world.messages(&session).await, world.turns(&session).await), before);
                rows_equal_their_counts(&world, &session).await;
            }
        });
    }
}
