//! Remote sessions with the real binaries: machines report, two gateways show, turns are built.

mod crashes;
mod gaps;
mod reconnects;
mod repeats;
mod revoked;
mod tabs;

use std::net::SocketAddr;
use std::ops::Range;

use bex_proto::RemoteSessionId;
use bex_proto::remote::{OutputEvent, OutputStream};
use bex_proto::ticket::RemoteClaims;
use bex_tests::client::{Event, Machine, Refusal, Viewer};
use bex_tests::scenario::STEP;
use bex_tests::stack::{WORKSPACE, ring};
use bex_tests::{Stack, StackOptions, eventually};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::join::Dice;

/// Lines of one turn of [`conversation`].
const TURN_LINES: usize = 5;

/// What an agent's program prints in these turns: text, a tool and its result, text again, the turn's end.
fn conversation(turns: Range<usize>) -> String {
    let mut out = String::new();
    for turn in turns {
        let said = |piece: &str, role: &str, block: Value| {
            json!({"type": role, "uuid": format!("u{turn}{piece}"),
                   "message": {"id": format!("msg_{turn}{piece}"), "role": role, "content": [block]}})
        };
        let call = format!("call_{turn}");
        let tool = json!({"type": "tool_use", "id": call, "name": "Bash", "input": {"n": turn, "odd": "ä\u{2028}\"\\"}});
        let seen =
            json!({"type": "tool_result", "tool_use_id": call, "content": "x".repeat(turn % 40)});
        let text =
            |words: &str| json!({"type": "text", "text": format!("{words} {turn} — ünïcode.")});
        for line in [
            said("a", "assistant", text("Looking into")),
            said("b", "assistant", tool),
            said("c", "user", seen),
            said("d", "assistant", text("Done with")),
            json!({"type": "result", "subtype": "success", "is_error": false, "uuid": format!("u{turn}r")}),
        ] {
            out.push_str(&format!("{line}\n"));
        }
    }
    out
}

fn event(index: u64, data: &str) -> OutputEvent {
    OutputEvent {
        event_index: index,
        stream: OutputStream::Stdout,
        data: data.to_owned(),
        is_complete: false,
        at: Some(Timestamp::UNIX_EPOCH),
    }
}

/// Each line of a text as an event, counted on from an index.
fn lines(text: &str, from: u64) -> Vec<OutputEvent> {
    let lines = text.split_inclusive('\n').zip(from..);
    lines.map(|(line, index)| event(index, line)).collect()
}

/// A text as `count` events, cut wherever it falls; with the last one the program ends.
fn pieces(text: &str, count: usize, dice: &mut Dice) -> Vec<OutputEvent> {
    let mut cuts = std::collections::BTreeSet::from([0]);
    while cuts.len() < count {
        let at = dice.below(text.len() as u32) as usize;
        cuts.insert(text.floor_char_boundary(at));
    }
    let ends = cuts.iter().skip(1).copied().chain([text.len()]);
    let pieces = cuts.iter().zip(ends).map(|(from, to)| &text[*from..to]);
    let mut events: Vec<_> = pieces.zip(0..).map(|(piece, n)| event(n, piece)).collect();
    events.last_mut().unwrap().is_complete = true;
    events
}

/// An order in which nothing is far from its place, in batches of odd sizes, some of which come twice or with what came before. The last
/// event comes last.
fn odd_batches(events: &[OutputEvent], dice: &mut Dice) -> Vec<Vec<OutputEvent>> {
    let (last, rest) = events.split_last().unwrap();
    let mut order: Vec<_> = rest
        .iter()
        .map(|event| (event.event_index + u64::from(dice.below(60)), event))
        .collect();
    order.sort_by_key(|(place, event)| (*place, event.event_index));
    let mut batches: Vec<Vec<OutputEvent>> = Vec::new();
    let mut at = 0;
    while at < order.len() {
        let from = at.saturating_sub(dice.below(3) as usize * dice.below(20) as usize);
        let to = (at + 1 + dice.below(60) as usize).min(order.len());
        let batch = order[from..to].iter().map(|(_, event)| (*event).clone());
        batches.push(batch.collect());
        at = to;
        if dice.below(4) == 0 {
            batches.push(batches[dice.below(batches.len() as u32) as usize].clone());
        }
    }
    batches.last_mut().unwrap().push(last.clone());
    batches
}

/// A running system and a machine of its workspace.
async fn begin(options: StackOptions) -> (Stack, Machine) {
    let stack = Stack::start(options).await.unwrap();
    let machine = stack.admin().register_machine(WORKSPACE).await.unwrap();
    (stack, machine)
}

async fn new_session(stack: &Stack, machine: &Machine, kind: &str) -> RemoteSessionId {
    stack.operator().create_remote(machine, kind).await.unwrap()
}

/// Waits until everything that was reported was read by a builder.
async fn is_read(stack: &Stack, session: &RemoteSessionId) {
    let read = format!(
        "SELECT seen_index = high_index AND imports_waiting = 0 FROM remote_heads WHERE session_id = '{session}'"
    );
    eventually("everything is read", STEP, async || {
        (stack.sql(&read).ok()?.trim() == "t").then_some(())
    })
    .await
    .unwrap();
}

async fn is_in_state(stack: &Stack, session: &RemoteSessionId, state: &str) {
    eventually("the session is in its state", STEP, async || {
        let view = stack.viewer().remote(session).await.ok()?;
        (view["state"] == state).then_some(())
    })
    .await
    .unwrap();
}

/// A viewer of a subject of its own behind an event.
async fn try_follow(
    stack: &Stack,
    at: SocketAddr,
    session: &RemoteSessionId,
    subject: &str,
    after: Option<u64>,
) -> anyhow::Result<Result<Viewer<u64>, Refusal>> {
    let now = Timestamp::now().as_second();
    let claims = RemoteClaims::to_read(session, WORKSPACE.parse()?, subject, now);
    let ticket = claims.sign(&ring(&stack.keys.attach));
    Viewer::follow(at, session, &ticket, after).await
}

async fn follow(stack: &Stack, session: &RemoteSessionId, after: Option<u64>) -> Viewer<u64> {
    let at = stack.addresses.attach;
    let opened = try_follow(stack, at, session, "svc:viewer", after).await;
    opened.unwrap().unwrap()
}

/// What a viewer was shown, briefly: an event's index, a turn's id, a gap, a state.
fn told(event: &Event<u64>) -> Option<String> {
    let json = event.json();
    let data = &json["data"];
    match (event.id, event.kind().as_str()) {
        (Some(id), "stdout") => Some(id.to_string()),
        (None, "turn-durable") => Some(data["turnId"].as_str().unwrap().to_owned()),
        (None, "gap") => Some(format!(
            "{} {}-{}",
            data["reason"].as_str().unwrap(),
            data["from"],
            data["to"]
        )),
        (None, "state") => Some(data["state"].as_str().unwrap().to_owned()),
        (None, "keepalive") => None,
        other => panic!("told {other:?} {json}"),
    }
}

/// Turns in order, each with its last event.
fn built_turns(stack: &Stack, session: &RemoteSessionId) -> Vec<(String, u64)> {
    let sql = format!(
        "SELECT turn_id, last_index FROM remote_turns WHERE session_id = '{session}' ORDER BY turn_no"
    );
    let rows = stack.sql(&sql).unwrap();
    let rows = rows.lines().filter(|row| !row.is_empty());
    rows.map(|row| {
        let (id, last) = row.trim().split_once('|').unwrap();
        (id.to_owned(), last.parse().unwrap())
    })
    .collect()
}

/// What stands in the rows, without what names a session.
async fn rows(stack: &Stack, session: &RemoteSessionId) -> Value {
    let api = stack.viewer();
    let mut all = Vec::new();
    for kind in ["messages", "turns"] {
        let mut rows = api.remote_rows(session, kind).await.unwrap();
        for row in &mut rows {
            let row = row.as_object_mut().unwrap();
            row.retain(|name, _| !["id", "turnId", "runId"].contains(&name.as_str()));
        }
        all.push(rows);
    }
    json!({"messages": all[0], "turns": all[1]})
}

/// Says where rows differ, and not all that is the same.
fn same_rows(rows: &Value, wanted: &Value, when: &str) {
    for kind in ["messages", "turns"] {
        let (rows, wanted) = (
            rows[kind].as_array().unwrap(),
            wanted[kind].as_array().unwrap(),
        );
        for (n, (row, wanted)) in rows.iter().zip(wanted).enumerate() {
            assert_eq!(row, wanted, "{when}: {kind} {n}");
        }
        assert_eq!(rows.len(), wanted.len(), "{when}: {kind}");
    }
}

/// Counters are the numbers of rows.
async fn rows_are_counted(stack: &Stack, session: &RemoteSessionId) {
    let view = stack.viewer().remote(session).await.unwrap();
    for (counter, table) in [("messages", "messages"), ("turns", "remote_turns")] {
        let sql = format!("SELECT count(*) FROM {table} WHERE session_id = '{session}'");
        let rows = stack.sql(&sql).unwrap();
        assert_eq!(
            view["counters"][counter].to_string(),
            rows.trim(),
            "{table}"
        );
    }
}
