//! Tickets and tokens in every place they can be sent to, with every process at its most talkative: none stands in a log.
//!
//! Every stack inspects its logs when it is stopped, so the same holds for every other end-to-end test at its level; here the
//! secrets are also put where they do not belong, and nothing is kept from the logs.

use std::net::SocketAddr;

use bex_proto::SessionId;
use bex_proto::ticket::ATTACH_HEADER;
use bex_tests::client::{ApiClient, Ending, NewSession, Viewer, stream_path};
use bex_tests::scenario::settled;
use bex_tests::stack::WORKSPACE;
use bex_tests::{Stack, StackOptions};
use bytes::Bytes;
use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::tickets::to_post;

async fn stack() -> Stack {
    let level = ("RUST_LOG".to_owned(), "trace".to_owned());
    let options = StackOptions {
        api_env: vec![level.clone()],
        gateway_env: vec![level],
        ..StackOptions::default()
    };
    Stack::start(options).await.unwrap()
}

/// The stack's own inspection is only worth something if the logs were as talkative as asked for.
async fn inspected(stack: Stack, expected: &[(&str, &str)]) {
    for (log, text) in expected {
        let log = stack.log_dir().join(format!("{log}.log"));
        let said = std::fs::read_to_string(&log).unwrap();
        assert!(
            said.contains("\"TRACE\""),
            "{} is not at trace",
            log.display()
        );
        assert!(said.contains(text), "{} does not say {text}", log.display());
    }
    stack.stop().await.unwrap();
}

async fn attach(stack: &Stack, method: Method, path: &str, headers: &[(&str, &str)]) -> u16 {
    let body = Bytes::from_static(if method == Method::POST { b"{}" } else { b"" });
    let answer = Viewer::request(stack.addresses.attach, method, path, headers, body).await;
    match answer.unwrap() {
        Ok(mut viewer) => {
            assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
            200
        }
        Err(refusal) => refusal.status,
    }
}

/// Bytes no client library would send, each on a connection of its own, all at once, since some are only answered by a time limit.
async fn raw(to: &[SocketAddr], requests: &[String]) {
    let asking = to
        .iter()
        .flat_map(|to| requests.iter().map(|r| raw_one(*to, r)));
    futures::future::join_all(asking).await;
}

/// Whatever comes back is read to its end.
async fn raw_one(to: SocketAddr, request: &str) {
    let mut socket = TcpStream::connect(to).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let reading = async {
        // a reset is an end too
        while socket.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
    };
    let read = tokio::time::timeout(bex_tests::scenario::STEP, reading).await;
    read.expect("the connection is answered or closed");
}

async fn finished(stack: &Stack) -> SessionId {
    let new = NewSession::new(WORKSPACE, "demo", "say little parts=3");
    let session = stack.operator().create(&new).await.unwrap();
    settled(&stack.operator(), &session, 1).await.unwrap();
    session
}

async fn fresh(api: &ApiClient, session: &SessionId) -> String {
    api.read_ticket(session).await.unwrap().ticket
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_at_the_attach_listener() {
    let stack = stack().await;
    let api = stack.operator();
    let (session, other) = (finished(&stack).await, finished(&stack).await);
    let path = stream_path(&session);
    let get = async |path: &str, headers: &[(&str, &str)]| {
        attach(&stack, Method::GET, path, headers).await
    };

    let ticket = fresh(&api, &session).await;
    assert_eq!(get(&path, &[(ATTACH_HEADER, &ticket)]).await, 200);
    assert_eq!(get(&path, &[(ATTACH_HEADER, &ticket)]).await, 401, "reused");
    let turn = to_post(&stack, &session);
    let by_header = [(ATTACH_HEADER, turn.as_str())];
    assert_eq!(get(&path, &by_header).await, 403, "of another action");
    assert_eq!(attach(&stack, Method::POST, &path, &by_header).await, 200);
    assert_eq!(attach(&stack, Method::PUT, &path, &by_header).await, 405);
    let foreign = fresh(&api, &other).await;
    assert_eq!(get(&path, &[(ATTACH_HEADER, &foreign)]).await, 403);

    let ticket = fresh(&api, &session).await;
    for query in ["ticket", "token", "access_token", "after"] {
        let path = format!("{path}?{query}={ticket}");
        let expected = if query == "after" { 400 } else { 200 };
        let ticket = fresh(&api, &session).await;
        let status = get(&path, &[(ATTACH_HEADER, &ticket)]).await;
        assert_eq!(status, expected, "{query}");
        assert_eq!(get(&path, &[]).await, 401, "{query} alone");
    }
    let odd_path = format!("/v1/agent-sessions/{ticket}/stream");
    assert_eq!(get(&odd_path, &[(ATTACH_HEADER, &ticket)]).await, 403);
    assert_eq!(get(&format!("/{ticket}"), &[]).await, 404);
    let bearer = format!("Bearer {ticket}");
    for name in [
        "authorization",
        "cookie",
        "origin",
        "x-forwarded-for",
        "referer",
        "host",
    ] {
        assert_eq!(get(&path, &[(name, &bearer)]).await, 401, "{name}");
    }
    let with_cursor = [(ATTACH_HEADER, ticket.as_str()), ("last-event-id", &ticket)];
    assert_eq!(get(&path, &with_cursor).await, 400);
    let (head, tail) = ticket.split_at(ticket.len() / 2);
    let long = ticket.repeat(20);
    let flipped = format!("{head}x{}", &tail[1..]);
    for garbled in [head, tail, &flipped, &long, &format!("{ticket}.{ticket}")] {
        assert_eq!(get(&path, &[(ATTACH_HEADER, garbled)]).await, 401);
    }
    assert_eq!(
        get(&path, &[(ATTACH_HEADER, &ticket)]).await,
        200,
        "still good"
    );

    let to = stack.addresses.attach;
    let ticket = fresh(&api, &session).await;
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    let lines = [
        format!("{ATTACH_HEADER}: {ticket}\u{1}\r\n\r\n"),
        format!("{ATTACH_HEADER}: {ticket}\u{e9}\r\n\r\n"),
        format!("{ATTACH_HEADER} {ticket}\r\n\r\n"),
        format!("{ATTACH_HEADER}: {ticket}\r\n{ticket}\r\n\r\n"),
        format!("{ATTACH_HEADER}: {}\r\n\r\n", ticket.repeat(200)),
        format!("{}: {ATTACH_HEADER}\r\n\r\n", ticket.replace('.', "-")),
    ];
    let mut requests: Vec<_> = lines.iter().map(|line| format!("{head}{line}")).collect();
    requests.extend([
        format!("{ticket}\r\n\r\n"),
        format!("GET {ticket} HTTP/1.1\r\n\r\n"),
        format!("{ticket} {path} HTTP/1.1\r\nhost: x\r\n\r\n"),
        format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{ticket}"),
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\n{ATTACH_HEADER}: {turn}\r\ntransfer-encoding: chunked\r\n\r\n{ticket}\r\n"
        ),
    ]);
    raw(&[to], &requests).await;
    inspected(stack, &[("bex-gateway", "ticket refused"), ("bex-api", "")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_at_the_api_and_tickets_at_the_exec_listener() {
    let stack = stack().await;
    let api = stack.operator();
    let session = finished(&stack).await;
    let ticket = fresh(&api, &session).await;
    let token = stack.tokens.operator.clone();
    let sessions = "/v1/agent-sessions";
    for secret in [&token, &ticket] {
        for query in [
            format!("?workspaceId={secret}"),
            format!("?workspaceId={WORKSPACE}&cursor={secret}"),
            format!("?{secret}=1"),
            format!("/{session}/transcript?afterSeq={secret}"),
        ] {
            let path = format!("{sessions}{query}");
            let answer = api.call(Method::GET, &path, None).await.unwrap();
            assert!(answer.status.is_client_error(), "{}", answer.status);
        }
        for body in [
            json!({secret: 1}),
            json!({"workspaceId": secret, "kind": secret, "agent": {"profile": secret}, "prompt": "x"}),
            json!({"workspaceId": WORKSPACE, "kind": "interactive", "agent": secret, "prompt": "x"}),
            json!({"workspaceId": WORKSPACE, "kind": "interactive", "agent": {"profile": "demo",
                "env": [{"name": "TOKEN", "value": secret}]}, "prompt": "x"}),
            json!(secret),
        ] {
            let answer = api.call(Method::POST, sessions, Some(&body)).await.unwrap();
            assert!(answer.status.is_client_error(), "{}", answer.status);
        }
        let cut = Bytes::from(format!("{{\"workspaceId\": \"{secret}\", "));
        let odd = [
            ("idempotency-key", secret.as_str()),
            ("x-request-id", secret),
        ];
        let answer = api.call_raw(Method::POST, sessions, Some(cut), &odd).await;
        assert!(answer.unwrap().status.is_client_error());
        let requests = [
            format!("GET /{secret} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"),
            format!(
                "POST /v1/exec HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\nx-bex-exec-ticket: {secret}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
            ),
            format!("GET {sessions} HTTP/1.1\r\nhost: x\r\nauthorization: {secret}\u{1}\r\n\r\n"),
            format!("{secret}\r\n\r\n"),
        ];
        raw(&[stack.addresses.api, stack.addresses.exec], &requests).await;
    }
    for wrong in [&token[..token.len() - 1], &format!("{token}x"), &ticket] {
        let stranger = ApiClient::new(
            stack.addresses.api,
            wrong,
            bex_tests::client::Secrets::default(),
        );
        let answer = stranger.call(Method::GET, sessions, None).await.unwrap();
        assert_eq!(answer.status, 401);
    }
    inspected(stack, &[("bex-gateway", ""), ("bex-api", "")]).await;
}

/// Where an id belongs, a caller's mistake may put a secret.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_in_paths_of_the_api() {
    let stack = stack().await;
    let api = stack.operator();
    let session = finished(&stack).await;
    let ticket = fresh(&api, &session).await;
    for secret in [&stack.tokens.operator, &ticket] {
        for below in ["", "/turns", "/transcript"] {
            let path = format!("/v1/agent-sessions/{secret}{below}");
            let answer = api.call(Method::GET, &path, None).await.unwrap();
            assert!(answer.status.is_client_error(), "{}", answer.status);
        }
    }
    inspected(stack, &[("bex-gateway", ""), ("bex-api", "answered")]).await;
}
