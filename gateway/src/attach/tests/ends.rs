//! Every way in which a stream ends: what the viewer is told, and what its audit row says.

use bex_proto::problem::CODE_HEADER;
use bex_store::revocations::{Revocation, StreamKey};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::BodyExt;
use jiff::Timestamp;
use tokio::time::Instant;

use super::super::cursor::Wish;
use super::super::phases::Phases;
use super::super::plan::{Plan, Planned};
use super::super::viewer::Ends;
use super::super::*;
use super::rig::*;
use crate::hub::source::tests::{Answer, Driver};

/// Attempts of which one must be quick: a busy machine may be late once, a broken notice is always.
const ATTEMPTS: u32 = 3;

/// Waits until the newest audit row is closed, and gives its result.
async fn result(rig: &Rig) -> String {
    const LAST: &str = "SELECT coalesce(result, '') FROM stream_audit ORDER BY id DESC LIMIT 1";
    rig.until(|rig| async { !rig.sql(LAST).is_empty() }).await;
    rig.sql(LAST)
}

fn error(text: &str) -> String {
    format!(r#"{{"type":"error","errorText":"{text}"}}"#)
}

/// A stream that began so long ago.
async fn aged(rig: &Rig, session: &bex_proto::SessionId, age: Duration) -> Stream {
    let claims = read_ticket(session).claims;
    let plan = Plan::make(&rig.db, &claims, Wish::default()).await;
    let Ok(Planned::Show(plan)) = plan else {
        panic!("something is there to be shown")
    };
    let audit = admission::redeem(&rig.db, &claims, "test", "::1", Timestamp::now()).await;
    let (out, body) = body::stream(());
    let phases = Phases::of(bex_telemetry::Span::asked(session, None));
    let mut viewer = rig
        .attach
        .viewer(&plan, Wish::default(), claims, out, phases);
    viewer.begun_at -= age;
    let ends = Ends {
        revoked: CancellationToken::new(),
        drain: CancellationToken::new(),
    };
    tokio::spawn(viewer.run(plan, ends, audit.expect("a row")));
    Stream::of(Response::new(body.map_err(Into::into).boxed_unsync()))
}

#[tokio::test]
async fn a_source_lost_and_found_again_is_invisible() {
    let rig = Rig::new().await;
    let (session, target) = rig.running().await;
    let said = speech(120);
    let script = vec![
        Answer::Events(wire(1, &said[..30], 0)),
        Answer::Status(503),
        // it says some again, and breaks off in the middle of a part
        Answer::Events(wire(1, &said[..60], 20) + "id: 1.60\ndata: {\"type\":\"te"),
        Answer::Events(wire(1, &said, 60) + "data: [DONE]\n\n"),
    ];
    let driver = Driver::start(&target, script).await;
    rig.run(&driver);
    let mut viewer = rig.read(&session).await;
    let settling = async {
        rig.until_stored(&session, 120).await;
        rig.settle(&session, 1, 1, Some(&said)).await;
    };
    let (all, ()) = tokio::join!(viewer.rest(), settling);
    let own = |event: &&String| !event.starts_with("1.");
    let before: Vec<_> = all.iter().take_while(own).skip(2).collect();
    assert_eq!(
        before,
        [r#"{"type":"data-bex-live","data":{"cursor":null},"transient":true}"#]
    );
    let expected: Vec<String> = events(1, &said)
        .into_iter()
        .chain([
            r#"{"type":"data-bex-turn","data":{"turn":1,"verdict":"complete","reason":null,"healed":false}}"#.to_owned(),
            events::FINISH.to_owned(),
            "[DONE]".to_owned(),
        ])
        .collect();
    assert_eq!(all[3..], expected);
    assert_eq!(driver.asked().len(), 4);
    assert_eq!(rig.attach.metrics.hub.reconnects.get(), 3);
    assert_eq!(result(&rig).await, "done");
}

#[tokio::test]
async fn a_source_lost_for_good_is_told_and_one_found_later_goes_on_there() {
    let rig = Rig::with(|deps| deps.source_retry = Duration::from_millis(300)).await;
    let (session, target) = rig.running().await;
    let said = speech(10);
    let driver = Driver::start(&target, vec![Answer::Open(wire(1, &said[..4], 0))]).await;
    rig.run(&driver);
    let mut viewer = rig.read(&session).await;
    viewer.until("1.3 ").await;
    drop(driver);
    let told = error("the agent's sandbox does not answer; resume after 1.3");
    assert_eq!(viewer.rest().await, [told], "and no [DONE]");
    assert_eq!(result(&rig).await, "source_lost");

    let found = Driver::start(&target, vec![Answer::Open(wire(1, &said, 0))]).await;
    rig.run(&found);
    let ticket = read_ticket(&session).after("1.3");
    let mut resumed = Stream::of(rig.send(ticket.request()).await);
    let all = resumed.until("1.9 ").await;
    assert_eq!(of_parts(&all), events(1, &said)[4..]);
}

#[tokio::test]
async fn a_part_that_came_late_heals_its_turn() {
    let rig = Rig::new().await;
    let (session, target) = rig.running().await;
    let said = speech(8);
    let script = wire(1, &said[..3], 0) + &wire(1, &said, 5) + "data: [DONE]\n\n";
    let driver = Driver::start(&target, vec![Answer::Events(script)]).await;
    rig.run(&driver);
    let mut viewer = rig.read(&session).await;
    let all = viewer.until("1.7 ").await;
    let gap = r#"{"type":"data-bex-incomplete","data":{"turn":1,"reason":"log_truncated","from":"1.3","to":"1.4"}}"#;
    assert!(all.iter().any(|event| event == gap), "{all:?}");
    rig.until_stored(&session, 6).await;
    rig.store(&session, 1, &parts(1, &said)[3..5]).await;
    rig.settle(&session, 1, 1, Some(&said)).await;
    let end = viewer.rest().await;
    let healed = r#"{"type":"data-bex-turn","data":{"turn":1,"verdict":"complete","reason":null,"healed":true}}"#;
    assert_eq!(end, [healed, events::FINISH, "[DONE]"]);
    let mut again = rig.read(&session).await;
    assert_eq!(of_parts(&again.rest().await), events(1, &said));
}

#[tokio::test]
async fn a_turn_of_which_parts_are_missing_says_how_many_were_declared() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let said = speech(8);
    rig.store(&session, 1, &parts(1, &said[..5])).await;
    rig.settle(&session, 1, 1, Some(&said)).await;
    let all = rig.read(&session).await.rest().await;
    let told = r#"{"type":"data-bex-incomplete","data":{"turn":1,"reason":"log_unreadable","stored":5,"expected":8}}"#;
    assert_eq!(
        all[all.len() - 4..],
        [
            r#"{"type":"text-end","id":"t"}"#,
            told,
            events::FINISH,
            "[DONE]"
        ]
    );
}

#[tokio::test]
async fn a_viewer_that_has_everything_of_a_finished_session_is_answered_204() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let said = speech(6);
    rig.store(&session, 1, &parts(1, &said)).await;
    let at_the_end = || read_ticket(&session).after("1.5");
    let open = Stream::of(rig.send(at_the_end().request()).await);
    assert_eq!(open.status, 200, "an open turn may go on");
    drop(open);
    assert_eq!(result(&rig).await, "left");
    rig.settle(&session, 1, 1, Some(&said)).await;
    for cursor in ["1.5", "1.6", "1.4000000"] {
        let ticket = read_ticket(&session).after(cursor);
        let mut nothing = Stream::of(rig.send(ticket.request()).await);
        assert_eq!(nothing.status, 204, "{cursor}");
        assert_eq!(nothing.next().await, None);
        assert!(!nothing.headers.contains_key(CONTENT_TYPE));
        assert_eq!(result(&rig).await, "nothing_new");
        let again = Stream::of(rig.send(ticket.request()).await);
        assert_eq!(again.status, 401, "it used its ticket");
    }
    let ticket = read_ticket(&session).after("1.4");
    let mut rest = Stream::of(rig.send(ticket.request()).await);
    assert_eq!(of_parts(&rest.rest().await), events(1, &said)[5..]);
    assert_eq!(rig.attach.limiter.count(), 1, "only the last body lives");
}

#[tokio::test]
async fn a_stream_that_is_too_old_and_one_whose_sandbox_never_comes_are_told() {
    let rig = Rig::new().await;
    let session = rig.create().await;
    let mut old = aged(&rig, &session, limits::STREAM_CEILING).await;
    let told = error("the stream is too old; reconnect");
    assert_eq!(old.rest().await.last(), Some(&told));
    assert_eq!(result(&rig).await, "ceiling");
    let mut early = aged(&rig, &session, limits::SANDBOX_WAIT).await;
    early.until("data-user-prompt").await;
    let told = error("the agent's sandbox is not ready yet; reconnect");
    assert_eq!(early.rest().await, [told]);
    assert_eq!(result(&rig).await, "no_sandbox");
}

#[tokio::test]
async fn draining_closes_every_audit_row_also_of_those_who_take_nothing() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let large: Vec<String> = (0..8)
        .map(|n| format!(r#"{{"type":"data-x","data":"{n}{}"}}"#, "y".repeat(100_000)))
        .collect();
    rig.store(&session, 1, &parts(1, &large)).await;
    let deaf = rig.read(&session).await;
    let mut hears = rig.read(&session).await;
    hears.until("1.7 ").await;
    let (told, ()) = tokio::join!(hears.rest(), rig.attach.drain());
    assert_eq!(told, [error("the server is restarting; resume after 1.7")]);
    let rows =
        rig.sql("SELECT string_agg(coalesce(result, '?'), ',' ORDER BY id) FROM stream_audit");
    assert_eq!(rows, "cut,drained");
    drop(deaf);
}

async fn revoke(rig: &Rig, session: Option<&bex_proto::SessionId>, subject: Option<&str>) {
    let revocation = Revocation {
        workspace: "acme".parse().expect("an id"),
        subject: subject.map(str::to_owned),
        session: session.map(ToString::to_string),
        created_by: "admin".into(),
    };
    rig.db.revoke(&revocation).await.expect("revoked");
}

/// How long the quickest of some revocations took to end a stream.
async fn quickest_revocation(rig: &Rig) -> Duration {
    let mut quickest = Duration::MAX;
    for _ in 0..ATTEMPTS {
        let session = rig.create().await;
        let mut hit = rig.read(&session).await;
        hit.until("data-user-prompt").await;
        let before = Instant::now();
        revoke(rig, Some(&session), None).await;
        assert_eq!(hit.rest().await, [error("access was revoked; reconnect")]);
        quickest = quickest.min(before.elapsed());
        assert_eq!(result(rig).await, "revoked");
    }
    quickest
}

#[tokio::test]
async fn a_notice_ends_a_revoked_stream_within_a_second() {
    let rig = Rig::new().await;
    let quickest = quickest_revocation(&rig).await;
    assert!(quickest < Duration::from_secs(1), "{quickest:?}");
}

#[tokio::test]
async fn without_a_listen_connection_the_poll_does_it_a_second_later() {
    let rig = Rig::with(|deps| deps.notices = NoticeSource::Poll(deps.db.clone())).await;
    let quickest = quickest_revocation(&rig).await;
    let bound = limits::CHANGES_POLL + Duration::from_secs(1);
    assert!(quickest < bound, "{quickest:?}");
}

#[tokio::test]
async fn a_listen_connection_that_is_cut_misses_nothing() {
    let rig = Rig::new().await;
    let session = rig.create().await;
    let mut hit = rig.read(&session).await;
    hit.until("data-user-prompt").await;
    // nobody hears this one: no notice is sent, and the connection that would have heard is gone
    rig.sql("INSERT INTO revocations (workspace_id, created_by) VALUES ('acme', 'admin')");
    rig.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%NOTIFY bex_proof%' AND pid <> pg_backend_pid() AND datname = current_database()");
    let before = Instant::now();
    assert_eq!(hit.rest().await, [error("access was revoked; reconnect")]);
    assert!(before.elapsed() < limits::REAUTHORIZE / 2);
}

#[tokio::test]
async fn a_revocation_hits_whom_it_names_and_voids_older_tickets() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let mut of_another = read_ticket(&session);
    of_another.claims.sub = "v".into();
    let mut hit = rig.read(&session).await;
    let mut spared = Stream::of(rig.send(of_another.request()).await);
    hit.until("data-user-prompt").await;
    spared.until("data-user-prompt").await;
    revoke(&rig, None, Some("u")).await;
    assert_eq!(hit.rest().await, [error("access was revoked; reconnect")]);
    let older = Stream::of(rig.send(read_ticket(&session).request()).await);
    assert_eq!(
        (older.status, &older.headers[CODE_HEADER]),
        (403, &HeaderValue::from_static("revoked"))
    );
    assert_eq!(rig.attach.limiter.count(), 2, "both bodies still live");
    drop(hit);
    rig.until(|rig| async { rig.attach.streams.count() == 1 })
        .await;
    assert_eq!(
        rig.attach.limiter.count(),
        1,
        "the other subject's stream goes on"
    );
    let key = StreamKey {
        workspace: "acme".parse().expect("an id"),
        subject: "v".into(),
        session: session.to_string(),
        issued_at: Timestamp::now(),
    };
    let standing = rig.db.standing(&key).await.expect("an answer");
    assert_eq!(standing, bex_store::revocations::Standing::Good);
    drop(spared);
}
