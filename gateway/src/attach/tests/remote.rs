//! Viewers of remote sessions, over a real store.

use bex_proto::message::Gap;
use bex_proto::problem::CODE_HEADER;
use bex_proto::remote::{OutputEvent, OutputStream};
use bex_store::revocations::Revocation;
use http::header::ALLOW;
use http::{Method, Response};

use super::super::*;
use super::rig::*;
use crate::serve::ResponseBody;

const ACTIVE: &str = r#"{"type":"state","data":{"state":"active"}}"#;
const ENDING: &str = r#"{"type":"state","data":{"state":"ending"}}"#;
const COMPLETED: &str = r#"{"type":"state","data":{"state":"completed"}}"#;

fn durable(id: &str) -> String {
    format!(r#"{{"type":"turn-durable","data":{{"turnId":"{id}"}}}}"#)
}

fn gap(from: u64, to: u64, reason: &str) -> String {
    format!(r#"{{"type":"gap","data":{{"from":{from},"to":{to},"reason":"{reason}"}}}}"#)
}

fn saids(range: std::ops::Range<u64>) -> Vec<OutputEvent> {
    range.map(said).collect()
}

fn showns(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(shown).collect()
}

async fn whole(mut stream: Stream) -> Vec<String> {
    assert_eq!(stream.status, 200);
    timeless(stream.rest().await)
}

fn code(response: &Response<ResponseBody>) -> String {
    let code = response
        .headers()
        .get(CODE_HEADER)
        .map_or("", |code| code.to_str().expect("text"));
    format!("{} {code}", response.status().as_u16())
}

#[tokio::test]
async fn an_ended_session_is_told_from_any_cursor_on_and_then_is_done() {
    let rig = Rig::new().await;
    let remote = rig.remote().await;
    let mut events = saids(0..3);
    events.extend(saids(6..8));
    for (index, stream, data) in [
        (8, OutputStream::Stderr, "oh"),
        (9, OutputStream::Permission, "{\"id\":\n1}"),
        (10, OutputStream::RequestState, "aborted"),
        (11, OutputStream::System, "[]"),
    ] {
        events.push(OutputEvent {
            stream,
            data: data.into(),
            ..said(index)
        });
    }
    events.push(OutputEvent {
        is_complete: true,
        ..said(12)
    });
    rig.report(&remote, &events).await;
    rig.give_up(&remote).await;
    rig.build(&remote, &[("trn-a", 2), ("trn-b", 7)]).await;
    rig.complete(&remote, &[("trn-c", 12)]).await;
    let mut expected = showns(0..3);
    expected.push(durable("trn-a"));
    expected.push(gap(3, 5, "missing"));
    expected.extend(showns(6..8));
    expected.push(durable("trn-b"));
    let rest = [
        r#"8 {"type":"stderr","data":"oh"}"#,
        r#"9 {"type":"permission_request","data":{"id": 1}}"#,
        r#"10 {"type":"request_state","data":"aborted"}"#,
        r#"11 {"type":"system","data":[]}"#,
        r#"12 {"type":"stdout","data":"line 12\n","isComplete":true}"#,
        &durable("trn-c"),
        COMPLETED,
        "[DONE]",
    ];
    expected.extend(rest.map(str::to_owned));
    let mut stream = rig.watch(&remote).await;
    assert_eq!(timeless(stream.rest().await), expected);
    assert!(stream.raw.starts_with(b": stream-open\n\n"));
    assert_eq!(stream.headers["cache-control"], "no-cache, no-transform");
    assert!(!stream.headers.contains_key("x-vercel-ai-ui-message-stream"));
    let from = async |after: u64| {
        let ticket = remote_ticket(&remote.session).after(after);
        Stream::of(rig.send(ticket.request()).await)
    };
    // turns before the cursor may have become durable while nobody listened, and are told again
    let mut behind = vec![durable("trn-a"), gap(4, 5, "missing")];
    behind.extend_from_slice(&expected[5..]);
    assert_eq!(whole(from(3).await).await, behind);
    let last = [
        &[durable("trn-a"), durable("trn-b")],
        &expected[expected.len() - 4..],
    ]
    .concat();
    assert_eq!(whole(from(11).await).await, last);
    for after in [12, 13, 1000] {
        assert_eq!(from(after).await.status, 204, "{after}");
    }
    rig.until(|rig| async {
        rig.sql("SELECT count(*) FROM stream_audit WHERE closed_at IS NULL") == "0"
    })
    .await;
    assert_eq!(
        rig.sql("SELECT string_agg(concat_ws(' ', action, result, parts), ', ' ORDER BY id) FROM stream_audit"),
        "read done 10, read done 7, read done 1, read nothing_new 0, read nothing_new 0, read nothing_new 0"
    );
}

#[tokio::test]
async fn two_viewers_of_two_gateways_are_told_each_thing_once_as_it_happens() {
    let rig = Rig::new().await;
    let remote = rig.remote().await;
    rig.report(&remote, &saids(0..2)).await;
    let another = rig.another();
    let second = remote_ticket(&remote.session).request();
    let second = another.handle(second, "127.0.0.1:6".parse().expect("an address"));
    let (first, second) = (rig.watch(&remote).await, Stream::of(second.await));
    let tab = rig.watch(&remote).await;
    assert_eq!(rig.attach.follows.count(), 1, "one looks for two");
    let mut viewers = [first, second, tab];
    let mut told: [Vec<String>; 3] = Default::default();
    for (viewer, told) in viewers.iter_mut().zip(&mut told) {
        told.extend(viewer.until(ACTIVE).await);
    }
    rig.report(&remote, &saids(2..4)).await;
    rig.report(&remote, &saids(6..7)).await;
    for (viewer, told) in viewers.iter_mut().zip(&mut told) {
        told.extend(viewer.until("line 3").await);
    }
    rig.give_up(&remote).await;
    for (viewer, told) in viewers.iter_mut().zip(&mut told) {
        told.extend(viewer.until("line 6").await);
    }
    rig.build(&remote, &[("trn-a", 3)]).await;
    for (viewer, told) in viewers.iter_mut().zip(&mut told) {
        told.extend(viewer.until("trn-a").await);
    }
    // the end comes in a burst
    rig.report(&remote, &saids(7..500)).await;
    rig.complete(&remote, &[("trn-b", 499)]).await;
    let mut expected = showns(0..2);
    expected.push(ACTIVE.into());
    expected.extend(showns(2..4));
    expected.push(gap(4, 5, "missing"));
    expected.push(shown(6));
    expected.push(durable("trn-a"));
    expected.extend(showns(7..500));
    expected.push(durable("trn-b"));
    expected.push(COMPLETED.into());
    expected.push("[DONE]".into());
    for (mut viewer, mut told) in viewers.into_iter().zip(told) {
        told.extend(viewer.rest().await);
        // whether it is seen to be ending depends on who looks when
        told.retain(|event| event != ENDING);
        assert_eq!(timeless(told), expected);
    }
    rig.until(|rig| async { rig.attach.follows.count() == 0 })
        .await;
}

#[tokio::test]
async fn a_viewer_that_falls_behind_the_tail_reads_the_store() {
    let rig = Rig::new().await;
    let remote = rig.remote().await;
    let mut slow = rig.watch(&remote).await;
    slow.until(ACTIVE).await;
    let all = 3 * limits::REMOTE_TAIL_EVENTS as u64;
    for from in (0..all).step_by(1000) {
        rig.report(&remote, &saids(from..(from + 1000).min(all)))
            .await;
    }
    let mut fast = rig.watch(&remote).await;
    let fast = timeless(fast.until(&format!("line {}", all - 1)).await);
    assert_eq!(fast, showns(0..all));
    rig.complete(&remote, &[]).await;
    let mut slow = timeless(slow.rest().await);
    slow.retain(|event| event != ENDING);
    assert_eq!(slow.split_off(slow.len() - 2), [COMPLETED, "[DONE]"]);
    assert!(slow == showns(0..all), "each once, in order");
    let free = limits::REPLAY_BUDGET_BYTES;
    rig.until(|rig| async { rig.attach.budget.free_bytes() == free })
        .await;
}

#[tokio::test]
async fn what_was_purged_and_a_long_gap_are_one_gap_each_and_a_cursor_beyond_the_log_waits() {
    let rig = Rig::new().await;
    let remote = rig.remote().await;
    rig.report(&remote, &saids(0..6)).await;
    let far = limits::REMOTE_WINDOW - 1;
    rig.report(&remote, &[said(far)]).await;
    rig.give_up(&remote).await;
    rig.build(&remote, &[("trn-a", 5)]).await;
    rig.sql(
        "UPDATE remote_events SET created_at = now() - interval '9 days' WHERE event_index < 4;
         UPDATE remote_heads SET first_at = now() - interval '9 days'",
    );
    assert_eq!(rig.db.purge_remote_events(8, 100).await.expect("purged"), 4);
    let mut beyond = remote_ticket(&remote.session).after(far + 1).request();
    beyond.headers_mut().remove("last-event-id");
    let mut beyond = Stream::of(rig.send(beyond).await);
    let mut viewer = rig.watch(&remote).await;
    let told = timeless(viewer.until(ACTIVE).await);
    let expected = [
        gap(0, 3, "purged"),
        shown(4),
        shown(5),
        durable("trn-a"),
        gap(6, far - 1, "missing"),
        shown(far),
        ACTIVE.into(),
    ];
    assert_eq!(told, expected);
    assert_eq!(
        rig.db.remote_gaps(&remote.session, 0).await.expect("gaps"),
        [Gap {
            from: 6,
            to: far - 1
        }]
    );
    beyond.until(ACTIVE).await;
    rig.report(&remote, &saids(far + 1..far + 4)).await;
    let told = timeless(beyond.until(&format!("line {}", far + 3)).await);
    assert_eq!(told, showns(far + 2..far + 4));
}

#[tokio::test]
async fn every_refusal_has_its_place_and_costs_no_ticket() {
    let rig = Rig::new().await;
    let remote = rig.remote().await;
    let good = remote_ticket(&remote.session);
    let refused = async |change: &dyn Fn(&mut RemoteTicket), expected: &str| {
        let mut ticket = good.clone();
        change(&mut ticket);
        let response = rig.send(ticket.request()).await;
        assert_eq!(code(&response), expected);
        response
    };
    for method in [Method::POST, Method::PUT] {
        let set = |ticket: &mut RemoteTicket| ticket.method = method.clone();
        let response = refused(&set, "405 method_not_allowed").await;
        assert_eq!(response.headers()[ALLOW], "GET, OPTIONS");
    }
    let options = |ticket: &mut RemoteTicket| ticket.method = Method::OPTIONS;
    refused(&options, "204 ").await;
    refused(&|ticket| ticket.claims.exp -= 121, "401 ticket_invalid").await;
    refused(
        &|ticket| ticket.query = "?after=1.2".into(),
        "400 invalid_cursor",
    )
    .await;
    // a ticket of the other kind is none, either way
    let mut other = good.request();
    let agents = rig.create().await;
    let ticket = read_ticket(&agents).request();
    other.headers_mut().extend(ticket.headers().clone());
    assert_eq!(code(&rig.send(other).await), "401 ticket_invalid");
    let mut other = read_ticket(&agents).request();
    other.headers_mut().extend(good.request().headers().clone());
    assert_eq!(code(&rig.send(other).await), "401 ticket_invalid");
    let mut other = rig.remote().await.session.to_string();
    other.insert_str(0, "/v1/agent-sessions/");
    other.push_str("/stream");
    let mut elsewhere = good.request();
    *elsewhere.uri_mut() = other.parse().expect("a path");
    assert_eq!(code(&rig.send(elsewhere).await), "403 session_mismatch");
    let foreign = |ticket: &mut RemoteTicket| ticket.claims.ws = "other".parse().expect("an id");
    refused(&foreign, "403 revoked").await;
    let held: Vec<_> = (0..limits::STREAMS_PER_SUBJECT)
        .map(|_| rig.attach.limiter.admit("u").expect("a place"))
        .collect();
    refused(&|_| {}, "429 too_many_streams").await;
    drop(held);
    assert_eq!(rig.sql("SELECT count(*) FROM stream_audit"), "0");
    let mut served = Stream::of(rig.send(good.request()).await);
    served.until(ACTIVE).await;
    refused(&|_| {}, "401 ticket_used").await;
    let row = "SELECT concat_ws('|', workspace_id, session_id, subject, action, instance, remote_address) FROM stream_audit";
    let session = &remote.session;
    assert_eq!(
        rig.sql(row),
        format!("acme|{session}|u|read|test|127.0.0.1")
    );
}

#[tokio::test]
async fn revoked_and_deleted_and_drained_streams_end_without_done() {
    let rig = Rig::new().await;
    let (remote, other) = (rig.remote().await, rig.remote().await);
    rig.report(&remote, &saids(0..2)).await;
    let mut revoked = rig.watch(&remote).await;
    let mut spared = remote_ticket(&remote.session).after(0);
    spared.claims.sub = "v".into();
    let mut spared = Stream::of(rig.send(spared.request()).await);
    revoked.until(ACTIVE).await;
    spared.until(ACTIVE).await;
    let revocation = Revocation {
        workspace: "acme".parse().expect("an id"),
        subject: Some("u".into()),
        session: None,
        created_by: "admin".into(),
    };
    let before = std::time::Instant::now();
    rig.db.revoke(&revocation).await.expect("revoked");
    let end = r#"{"type":"error","errorText":"access was revoked; resume after 1"}"#;
    assert_eq!(revoked.rest().await, [end]);
    assert!(before.elapsed() < Duration::from_secs(1));
    // an older ticket is void
    let mut old = remote_ticket(&other.session);
    old.claims.iat -= 1;
    assert_eq!(code(&rig.send(old.request()).await), "403 revoked");

    // deleted while it is watched: only a session that ended is, so this viewer is one that lags
    let mut deleted = remote_ticket(&other.session);
    deleted.claims.sub = "w".into();
    let mut deleted = Stream::of(rig.send(deleted.request()).await);
    deleted.until(ACTIVE).await;
    rig.db.ping().await.expect("there");
    rig.sql(&format!(
        "DELETE FROM remote_sessions WHERE id = '{}'",
        other.session
    ));
    rig.wake(&other).await;
    let end = r#"{"type":"error","errorText":"access was revoked; reconnect"}"#;
    assert_eq!(deleted.rest().await, [end]);

    rig.report(&remote, &saids(2..3)).await;
    assert_eq!(timeless(spared.until("line 2").await), [shown(2)]);
    rig.attach.drain().await;
    let end = r#"{"type":"error","errorText":"the server is restarting; resume after 2"}"#;
    assert_eq!(spared.rest().await, [end]);
}

#[tokio::test]
async fn a_store_that_is_away_for_a_moment_ends_nobody() {
    let rig = Rig::new().await;
    let remote = rig.remote().await;
    let mut viewer = rig.watch(&remote).await;
    viewer.until(ACTIVE).await;
    rig.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()");
    rig.until(|rig| async { rig.db.ping().await.is_ok() }).await;
    rig.report(&remote, &saids(0..2)).await;
    let told = timeless(viewer.until("line 1").await);
    assert_eq!(told, showns(0..2));
}
