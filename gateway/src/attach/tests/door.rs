//! Who gets in, and what the others are told.

use bex_proto::problem::CODE_HEADER;
use http::header::CONTENT_TYPE;
use http::{Method, Request};

use super::super::*;
use super::rig::*;

fn code(stream: &Stream) -> String {
    let code = stream
        .headers
        .get(CODE_HEADER)
        .map(|code| code.to_str().expect("text").to_owned());
    format!("{} {}", stream.status, code.unwrap_or_default())
}

async fn refused(rig: &Rig, ticket: &Ticket) -> String {
    let mut stream = Stream::of(rig.send(ticket.request()).await);
    let answer = code(&stream);
    assert!(stream.next().await.is_none());
    let text = String::from_utf8(stream.raw).expect("text");
    let line = text.strip_suffix('\n').expect("a line");
    assert!(!line.is_empty() && !line.contains('\n'), "one line: {text}");
    assert_eq!(stream.headers[CONTENT_TYPE], "text/plain; charset=utf-8");
    answer
}

#[tokio::test]
async fn every_refusal_costs_no_ticket() {
    let rig = Rig::new().await;
    let session = rig.create().await;
    let mut ticket = read_ticket(&session);
    ticket.claims.rpo = true;
    for (query, expected) in [
        ("?after=1", "400 invalid_cursor"),
        ("?after=7.0", "400 invalid_cursor"),
    ] {
        ticket.query = query.into();
        assert_eq!(refused(&rig, &ticket).await, expected);
    }
    ticket.query = String::new();
    let held: Vec<_> = (0..limits::STREAMS_PER_SUBJECT)
        .map(|_| rig.attach.limiter.admit("u").expect("a place"))
        .collect();
    assert_eq!(refused(&rig, &ticket).await, "429 too_many_streams");
    drop(held);
    let mut served = Stream::of(rig.send(ticket.request()).await);
    assert_eq!(served.status, 200);
    assert_eq!(
        served.rest().await.last().map(String::as_str),
        Some("[DONE]")
    );
    assert_eq!(refused(&rig, &ticket).await, "401 ticket_used");
    rig.until(|rig| async {
        rig.sql("SELECT count(*) FROM stream_audit WHERE result = 'done'") == "1"
    })
    .await;
    assert_eq!(
        rig.sql("SELECT count(*) FROM stream_audit"),
        "1",
        "refused requests leave no row"
    );
    assert_eq!(
        rig.attach.limiter.count(),
        1,
        "a place is held as long as its body lives"
    );
    drop(served);
    assert_eq!(rig.attach.limiter.count(), 0);
}

#[tokio::test]
async fn a_posted_body_is_bounded_and_a_large_one_costs_no_ticket() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let said = speech(3);
    rig.store(&session, 1, &parts(1, &said)).await;
    rig.settle(&session, 1, 1, Some(&said)).await;
    let mut ticket = turn_ticket(&session, 1);
    ticket.body = vec![b'x'; limits::STREAM_POST_BODY + 1].into();
    assert_eq!(refused(&rig, &ticket).await, "413 body_too_large");
    ticket.body = vec![b'x'; limits::STREAM_POST_BODY].into();
    let mut posted = Stream::of(rig.send(ticket.request()).await);
    let all = posted.rest().await;
    assert_eq!(
        all[0],
        format!(r#"{{"type":"start","messageId":"durable-{session}-1"}}"#)
    );
    assert_eq!(of_parts(&all), events(1, &said));
    assert_eq!(all.last().map(String::as_str), Some("[DONE]"));
}

#[tokio::test]
async fn a_poster_is_shown_its_turn_in_the_profile_it_asks_for() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let said = [r#"{"type":"text-start","id":"t","later":1}"#.to_owned()];
    rig.store(&session, 1, &parts(1, &said)).await;
    rig.settle(&session, 1, 1, Some(&said)).await;
    for (query, shown) in [
        ("", said[0].as_str()),
        ("?profile=5", r#"{"type":"text-start","id":"t"}"#),
    ] {
        let mut ticket = turn_ticket(&session, 1);
        ticket.query = query.into();
        let all = Stream::of(rig.send(ticket.request()).await).rest().await;
        assert_eq!(of_parts(&all), [format!("1.0 {shown}")], "{query}");
    }
}

#[tokio::test]
async fn methods_origins_paths_and_the_listener_itself() {
    let rig = Rig::new().await;
    let session = rig.create().await;
    let ask = async |method: Method, path: &str, origin: &str| {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("origin", origin)
            .body(http_body_util::Full::new(bytes::Bytes::new()))
            .expect("a request");
        Stream::of(rig.send(request).await)
    };
    let path = format!("/v1/agent-sessions/{session}/stream");
    let preflight = ask(Method::OPTIONS, &path, "https://app.example").await;
    assert_eq!(preflight.status, 204);
    assert_eq!(
        preflight.headers["access-control-allow-origin"],
        "https://app.example"
    );
    let other = ask(Method::OPTIONS, &path, "https://other.example").await;
    assert_eq!(
        (
            other.status,
            other.headers.get("access-control-allow-origin")
        ),
        (204, None)
    );
    assert_eq!(
        code(&ask(Method::PUT, &path, "x").await),
        "405 method_not_allowed"
    );
    let unticketed = ask(Method::GET, &path, "https://app.example").await;
    assert_eq!(code(&unticketed), "401 ticket_invalid");
    assert_eq!(
        unticketed.headers["access-control-allow-origin"], "https://app.example",
        "a page reads its refusal"
    );
    for other in [
        "/",
        "/v1/agent-sessions//stream",
        "/v1/agent-sessions/a/b/stream",
        "/v1/agent-sessions/a",
    ] {
        assert_eq!(
            code(&ask(Method::GET, other, "x").await),
            "404 not_found",
            "{other}"
        );
    }
    let unconfigured = Rig::with_keys(None).await;
    assert_eq!(
        refused(&unconfigured, &read_ticket(&session)).await,
        "503 not_configured"
    );
    rig.attach.drain().await;
    assert_eq!(refused(&rig, &read_ticket(&session)).await, "503 draining");
}

#[tokio::test]
async fn the_audit_row_names_who_and_where_and_nothing_else() {
    let rig = Rig::new().await;
    let session = rig.create().await;
    let mut ticket = read_ticket(&session);
    ticket.claims.rpo = true;
    let mut request = ticket.request();
    let forwarded = "198.51.100.9, 203.0.113.7, 127.0.0.2"
        .parse()
        .expect("a value");
    request.headers_mut().insert("x-forwarded-for", forwarded);
    let mut stream = Stream::of(rig.send(request).await);
    let headers: Vec<(&str, &str)> = [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
        ("x-vercel-ai-ui-message-stream", "v1"),
    ]
    .into();
    for (name, value) in headers {
        assert_eq!(stream.headers[name], value);
    }
    assert!(!stream.headers.contains_key("content-encoding"));
    stream.rest().await;
    assert!(stream.raw.starts_with(b": stream-open\n\n"));
    rig.until(|rig| async { rig.sql("SELECT result FROM stream_audit") == "done" })
        .await;
    let row = rig.sql("SELECT concat_ws('|', workspace_id, subject, action, instance, remote_address, parts) FROM stream_audit");
    assert_eq!(row, "acme|u|read|test|203.0.113.7|0");
}
