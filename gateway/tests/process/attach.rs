//! Viewers over real sockets: both protocols, the limits, who is believed about addresses, and what the metrics say meanwhile.

use std::net::SocketAddr;
use std::time::Instant;

use bex_proto::SessionId;
use bex_proto::problem::CODE_HEADER;
use bex_proto::ticket::ATTACH_HEADER;
use bex_proto::{limits, sse};
use bytes::Bytes;
use http::{HeaderValue, Request, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use nix::sys::signal::Signal;
use tokio::net::TcpStream;

use super::house::{
    Addresses, Gateway, Login, PATIENCE, database, gateway, get, http1, session, stream_of, until,
};

/// Where the edge says that its viewer is.
const VIEWER: &str = "203.0.113.7";

fn request(to: SocketAddr, session: &SessionId, subject: &str) -> Request<Full<Bytes>> {
    let mut request = stream_of(to, session, subject);
    let headers = request.headers_mut();
    headers.insert(
        "accept-encoding",
        HeaderValue::from_static("gzip, br, zstd"),
    );
    headers.insert("x-forwarded-for", HeaderValue::from_static(VIEWER));
    request
}

async fn http2(to: SocketAddr) -> http2::SendRequest<Full<Bytes>> {
    let socket = TcpStream::connect(to).await.expect("a connection");
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await;
    let (sender, connection) = shaken.expect("a handshake");
    tokio::spawn(connection);
    sender
}

/// Waits until the metrics have these lines.
async fn metrics(at: Addresses, lines: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, text) = get(at.admin, "/metrics");
        assert_eq!(status, 200);
        let missing = lines
            .iter()
            .find(|line| !text.contains(&format!("\nbex_gateway_{line}\n")));
        let Some(missing) = missing else { return };
        assert!(Instant::now() < deadline, "{missing} is not in {text}");
        // the step of a bounded poll, not a synchronisation
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn streams_of_both_protocols_are_whole_counted_and_told_of_the_end() {
    let database = database().await;
    let login = Login::new(&database);
    let session = session(&database, "a prompt").await;
    let mut command = gateway(&login.url());
    command
        .env("BEX_LISTEN_DATABASE_URL", login.url())
        .env("BEX_TRUSTED_PROXIES", "127.0.0.0/8");
    let mut gateway = Gateway::start(command);
    let at = gateway.ready();

    let (mut one, mut two) = (http1(at.attach).await, http2(at.attach).await);
    let first = one.send_request(request(at.attach, &session, "u")).await;
    let second = two.send_request(request(at.attach, &session, "u")).await;
    let mut streams = [first.expect("an answer"), second.expect("an answer")];
    for (stream, version) in streams.iter_mut().zip([Version::HTTP_11, Version::HTTP_2]) {
        assert_eq!((stream.status().as_u16(), stream.version()), (200, version));
        assert_eq!(stream.headers()["content-type"], "text/event-stream");
        assert_eq!(stream.headers()["x-accel-buffering"], "no");
        assert!(!stream.headers().contains_key("content-encoding"));
        until(stream, "data-user-prompt").await;
    }
    let addresses = database.sql("SELECT DISTINCT remote_address FROM stream_audit");
    assert_eq!(addresses.expect("rows").trim(), VIEWER);
    let mut unticketed = request(at.attach, &session, "u");
    unticketed.headers_mut().remove(ATTACH_HEADER);
    let refused = two.send_request(unticketed).await.expect("an answer");
    assert_eq!(refused.status(), 401);
    let mut exec = http1(at.exec).await;
    let mut unticketed = request(at.exec, &session, "u");
    *unticketed.method_mut() = http::Method::POST;
    *unticketed.uri_mut() = "/v1/exec".parse().expect("a path");
    let refused = exec.send_request(unticketed).await.expect("an answer");
    assert_eq!(refused.status(), 401);
    let free = format!("replay_free_bytes {}", limits::REPLAY_BUDGET_BYTES);
    let now = [
        "streams 2",
        "stream_places 2",
        "streams_watched 2",
        "sources 0",
        &free,
        "db_waiting 0",
        "attach_refused_total{code=\"ticket_invalid\"} 1",
        "exec_refused_total{code=\"ticket_invalid\"} 1",
        "connections{listener=\"attach\"} 2",
        "source_reconnects_total 0",
        "tee_batches_total 0",
        "tee_parts_total 0",
        "tee_bytes_total 0",
    ];
    metrics(at, &now).await;

    gateway.signal(Signal::SIGTERM);
    for stream in &mut streams {
        until(stream, "the server is restarting; reconnect").await;
        let rest = stream.body_mut().collect().await.expect("a clean end");
        assert!(rest.to_bytes().trim_ascii().is_empty());
    }
    let (code, log) = gateway.end();
    assert_eq!(code, Some(0), "{log}");
    let results = database.sql("SELECT string_agg(result, ',') FROM stream_audit");
    assert_eq!(results.expect("rows").trim(), "drained,drained");
}

#[tokio::test]
async fn a_place_is_held_as_long_as_its_body_lives() {
    let database = database().await;
    let login = Login::new(&database);
    let session = session(&database, "a prompt").await;
    let mut gateway = Gateway::start(gateway(&login.url()));
    let at = gateway.ready();
    let (mut edge, mut other) = (http2(at.attach).await, http1(at.attach).await);
    let mut held = Vec::new();
    for _ in 0..limits::STREAMS_PER_SUBJECT {
        let mut stream = edge
            .send_request(request(at.attach, &session, "u"))
            .await
            .expect("an answer");
        assert_eq!(stream.status(), 200);
        until(&mut stream, sse::STREAM_OPEN).await;
        held.push(stream);
    }
    let one_more = edge
        .send_request(request(at.attach, &session, "u"))
        .await
        .expect("an answer");
    assert_eq!(
        (one_more.status().as_u16(), &one_more.headers()[CODE_HEADER]),
        (429, &"too_many_streams".parse().expect("a value"))
    );
    let of_another = other
        .send_request(request(at.attach, &session, "v"))
        .await
        .expect("an answer");
    assert_eq!(of_another.status(), 200, "only this subject's are used up");
    metrics(at, &["streams 51", "stream_places 51"]).await;
    // one stream of a connection is reset, and another connection is closed
    held.pop();
    drop((of_another, other));
    metrics(
        at,
        &[
            "streams 49",
            "stream_places 49",
            "streams_watched 49",
            "streams_ended_total{result=\"left\"} 2",
        ],
    )
    .await;
    let again = edge
        .send_request(request(at.attach, &session, "u"))
        .await
        .expect("an answer");
    assert_eq!(again.status(), 200);
    let remote = database.sql("SELECT DISTINCT remote_address FROM stream_audit");
    assert_eq!(
        remote.expect("rows").trim(),
        "127.0.0.1",
        "without trusted proxies nobody is believed"
    );
    drop(held);
    metrics(at, &["streams 1"]).await;
}
