//! Spans on their way to a collector, over real HTTP.
#![cfg(feature = "otlp")]

use std::net::SocketAddr;
use std::time::Duration;

use bex_proto::SessionId;
use bex_proto::trace::TraceContext;
use bex_telemetry::{Collector, Span, SpanExporter, SpanMetrics};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The longest anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reads one request and answers it; gives its head and body.
async fn take(listener: &TcpListener, status: &str) -> (String, String) {
    let (mut socket, _) = listener.accept().await.expect("a connection");
    let mut read = String::new();
    loop {
        let mut buffer = [0; 4096];
        let n = socket.read(&mut buffer).await.expect("bytes");
        assert_ne!(n, 0, "it ended: {read}");
        read.push_str(std::str::from_utf8(&buffer[..n]).expect("ascii"));
        let Some((head, body)) = read.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length: ")
                    .map(str::to_owned)
            })
            .expect("a length");
        if body.len() >= length.parse::<usize>().expect("a number") {
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}");
            socket.write_all(answer.as_bytes()).await.expect("sent");
            return (head.to_owned(), body.to_owned());
        }
    }
}

fn url(address: SocketAddr) -> Collector {
    Collector::parse(&format!("http://{address}/v1/traces")).expect("a URL")
}

#[tokio::test]
async fn ended_spans_reach_the_collector_and_the_last_ones_at_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let metrics = SpanMetrics::default();
    let address = listener.local_addr().expect("an address");
    let exporter = SpanExporter::start(Some(url(address)), "bex-test", metrics.clone());
    let session = SessionId::random();
    let first = Span::first_of(&session);
    let below = first.hold(async { Span::of(&session) }).await;
    below.end("below", &[("bex.turn", &1), ("bex.result", &"ok\"}")]);
    first.end("create", &[("bex.session", &session)]);
    let (taken, ()) = tokio::time::timeout(PATIENCE, async {
        tokio::join!(take(&listener, "200 OK"), exporter.finish())
    })
    .await
    .expect("in time");
    let (head, body) = taken;
    assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let root = TraceContext::of_session(&session);
    for wanted in [
        r#""service.name","value":{"stringValue":"bex-test"}"#.to_owned(),
        format!(
            r#""traceId":"{}","spanId":"{}","parentSpanId":"","name":"create""#,
            root.trace, root.span
        ),
        format!(r#""parentSpanId":"{}","name":"below""#, root.span),
        r#"{"key":"bex.result","value":{"stringValue":"ok\"}"}}"#.to_owned(),
        format!(r#"{{"key":"bex.session","value":{{"stringValue":"{session}"}}}}"#),
    ] {
        assert!(body.contains(&wanted), "{wanted}: {body}");
    }
    assert_eq!((metrics.sent.get(), metrics.failed.get()), (2, 0));
}

#[tokio::test]
async fn what_a_collector_refuses_is_counted_and_nobody_waits() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let metrics = SpanMetrics::default();
    let address = listener.local_addr().expect("an address");
    let exporter = SpanExporter::start(Some(url(address)), "bex-test", metrics.clone());
    Span::of(&SessionId::random()).end("x", &[]);
    let work = async {
        tokio::join!(
            take(&listener, "503 Service Unavailable"),
            exporter.finish()
        )
    };
    tokio::time::timeout(PATIENCE, work).await.expect("in time");
    assert_eq!((metrics.sent.get(), metrics.failed.get()), (0, 1));
}

#[test]
fn only_a_plain_url_with_a_path_is_a_collector() {
    assert!(Collector::parse("http://collector:4318/v1/traces").is_ok());
    for bad in [
        "",
        "collector:4318",
        "https://collector:4318/v1/traces",
        "http://collector:4318",
        "grpc://collector:4317/x",
    ] {
        assert!(Collector::parse(bad).is_err(), "{bad}");
    }
    let secret = Collector::parse("http://user:hunter2@c/v1/traces").expect("a URL");
    assert!(!format!("{secret:?}").contains("hunter2"));
}
