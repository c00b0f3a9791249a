//! A session of a million events: what a reader waits for does not grow with it.

use std::time::{Duration, Instant};

use anyhow::ensure;
use bex_proto::ticket::ATTACH_HEADER;
use bex_proto::{RemoteSessionId, limits};
use bex_tests::bench::api::{Api, VIEWER};
use bex_tests::bench::database::Database;
use bex_tests::bench::gateway::{Gateway, remote_stream_path};
use bex_tests::bench::remote::TURN_EVENTS;
use bex_tests::bench::report::{Figure, median};
use bex_tests::bench::sink;
use bytes::Bytes;
use tokio::io::AsyncReadExt;

use crate::RUNS;

const EVENTS: u64 = 1_000_000;

pub async fn run(database: &Database, api: &Api, gateway: &Gateway) -> anyhow::Result<Vec<Figure>> {
    let (small, large) = (database.remote().await?, database.remote().await?);
    fill(database, &small, TURN_EVENTS).await?;
    fill(database, &large, EVENTS).await?;
    let (mut pages, mut beside_pages) = (Vec::new(), Vec::new());
    let (mut replays, mut beside_replays) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        pages.push(first_page(api, &large, limits::LIST_DEFAULT).await?);
        beside_pages.push(first_page(api, &small, 1).await?);
        // the gateway still sends a while after its viewer has left the large one
        beside_replays.push(first_event(gateway, &small, TURN_EVENTS / 2).await?);
        replays.push(first_event(gateway, &large, EVENTS / 2).await?);
    }
    let figure = |name, took: Vec<f64>, beside, floor, most| {
        let (took, beside) = (median(took), median(beside));
        Figure {
            name,
            value: format!("{took:.1} ms"),
            beside: format!("a session of one turn: {beside:.1} ms"),
            floor,
            holds: took <= most,
        }
    };
    Ok(vec![
        figure(
            "10^6 remote events: first page of messages",
            pages,
            beside_pages,
            "≤ 20 ms",
            20.0,
        ),
        figure(
            "10^6 remote events: replay from the middle, first event",
            replays,
            beside_replays,
            "≤ 50 ms",
            50.0,
        ),
    ])
}

/// A session that has ended, with its events of about 100 bytes, and a turn and a message for each thousand of them.
async fn fill(database: &Database, session: &RemoteSessionId, events: u64) -> anyhow::Result<()> {
    let (turns, charge) = (events / TURN_EVENTS, limits::REMOTE_EVENT_CHARGE);
    let statements = format!(
        "INSERT INTO remote_events (session_id, event_index, stream, data, complete, created_at)
              SELECT '{session}', n, 'stdout', repeat('x', 90) || lpad(n::text, 9, '0') || E'\\n', false, now()
                FROM generate_series(0, {events} - 1) n;
         INSERT INTO remote_turns (session_id, turn_id, turn_no, visible_text, content_blocks, tool_call_ids, evidence_ids,
                                   terminal_reason, gaps, overflow, source, first_index, last_index, started_at, completed_at)
              SELECT '{session}', 'trn-' || n, n, repeat('word ', 1000), '[]', '[]', '[]', 'result', '[]', false, 'remote_live',
                     n * {TURN_EVENTS}, (n + 1) * {TURN_EVENTS} - 1, now(), now()
                FROM generate_series(0, {turns} - 1) n;
         INSERT INTO messages (session_id, position, message_id, role, content, content_blocks, source, turn_id, said_at)
              SELECT '{session}', n, 'msg-' || n, 'assistant', repeat('word ', 1000), '[]', 'remote_live', 'trn-' || n, now()
                FROM generate_series(0, {turns} - 1) n;
         UPDATE remote_heads SET next_index = {events}, high_index = {events}, bytes = {events} * (100 + {charge}),
                seen_bytes = {events} * (100 + {charge}), seen_index = {events}, cursor_index = {events}, cursor_ordinal = {turns},
                built = {turns}, next_position = {turns}, message_count = {turns}, turn_count = {turns}
          WHERE session_id = '{session}';
         UPDATE remote_sessions SET state = 'completed', ending_as = 'completed', ending_index = {events}, ending_since = now(),
                ended_at = now() WHERE id = '{session}'"
    );
    database.sql.batch_execute(&statements).await?;
    // as some time later, and for a small session at once
    let analyse =
        "VACUUM ANALYZE remote_events; VACUUM ANALYZE remote_turns; VACUUM ANALYZE messages";
    for statement in analyse.split("; ") {
        database.sql.batch_execute(statement).await?;
    }
    Ok(())
}

/// Milliseconds of one page with so many messages.
async fn first_page(api: &Api, session: &RemoteSessionId, messages: u32) -> anyhow::Result<f64> {
    let mut viewer = api.connect(VIEWER).await?;
    let path = format!("/v1/remote-sessions/{session}/messages?limit={messages}");
    let begun = Instant::now();
    let page = viewer.call("GET", &path, Bytes::new()).await?;
    let took = begun.elapsed();
    let page: serde_json::Value = serde_json::from_slice(&page)?;
    let rows = page["messages"].as_array().map_or(0, Vec::len);
    ensure!(rows == messages as usize, "{rows} messages of {messages}");
    Ok(ms(took))
}

/// Milliseconds until the first event behind another is there.
async fn first_event(
    gateway: &Gateway,
    session: &RemoteSessionId,
    after: u64,
) -> anyhow::Result<f64> {
    let ticket = Gateway::remote_ticket(session)?;
    let after_text = after.to_string();
    let headers = [
        (ATTACH_HEADER, ticket.as_str()),
        ("last-event-id", after_text.as_str()),
    ];
    let path = remote_stream_path(session);
    let wanted = format!("id: {}\n", after + 1);
    let begun = Instant::now();
    let (mut stream, mut seen) = sink::open(gateway.attach, &path, &headers).await?;
    while memchr::memmem::find(&seen, wanted.as_bytes()).is_none() {
        ensure!(stream.read_buf(&mut seen).await? > 0, "{path}: no event");
    }
    Ok(ms(begun.elapsed()))
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}
