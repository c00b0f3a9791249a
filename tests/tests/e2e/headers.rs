//! Every route that answers an event stream, in every state it answers one in, carries the whole set of headers.

use std::net::SocketAddr;

use bex_proto::ticket::ATTACH_HEADER;
use bex_proto::{PartId, SessionId};
use bex_tests::client::{Ending, NewSession, Viewer, stream_path};
use bex_tests::scenario::{settled, stored};
use bex_tests::stack::{ORIGIN, WORKSPACE};
use bex_tests::{Stack, StackOptions};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Version};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;

use super::tickets::to_post;

/// Of every stream.
const ALWAYS: [(&str, &str); 4] = [
    ("content-type", "text/event-stream"),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
    ("x-vercel-ai-ui-message-stream", "v1"),
];
/// Of no stream.
const NEVER: [&str; 5] = [
    "content-encoding",
    "content-length",
    "etag",
    "set-cookie",
    "x-bex-error",
];
/// Of every stream that a listed page asks for.
const FOR_PAGES: [(&str, &str); 2] = [("access-control-allow-origin", ORIGIN), ("vary", "Origin")];
/// What a client may say about itself without another answer.
const ASKERS: [&[(&str, &str)]; 4] = [
    &[],
    &[("accept-encoding", "gzip, deflate, br, zstd")],
    &[("accept", "text/event-stream"), ("cookie", "a=b")],
    &[("accept", "*/*"), ("range", "bytes=0-"), ("origin", ORIGIN)],
];

fn is_whole(case: &str, headers: &HeaderMap) {
    let all = |name: &str| -> Vec<_> { headers.get_all(name).iter().collect() };
    for (name, value) in ALWAYS {
        assert_eq!(all(name), [value], "{case}: {name}");
    }
    for name in NEVER {
        assert!(!headers.contains_key(name), "{case}: {name}");
    }
}

fn is_for_pages(case: &str, headers: &HeaderMap) {
    for (name, value) in FOR_PAGES {
        assert_eq!(headers[name], value, "{case}: {name}");
    }
    let exposed = headers["access-control-expose-headers"].to_str().unwrap();
    assert!(exposed.contains("x-bex-error"), "{case}: {exposed}");
}

/// What is asked of a session's stream.
#[derive(Clone)]
struct Route {
    method: Method,
    query: String,
    cursor: Option<PartId>,
}

impl Route {
    fn get(query: &str) -> Self {
        Self {
            method: Method::GET,
            query: query.to_owned(),
            cursor: None,
        }
    }

    fn behind(cursor: PartId) -> Self {
        Self {
            cursor: Some(cursor),
            ..Self::get("")
        }
    }

    fn post() -> Self {
        Self {
            method: Method::POST,
            ..Self::get("")
        }
    }

    /// Asks once for each kind of asker; every answer must be a stream with the whole set.
    async fn check(&self, stack: &Stack, session: &SessionId, state: &str) -> Vec<Viewer> {
        let mut viewers = Vec::new();
        for asker in ASKERS {
            let case = format!("{state}: {} {} {:?}", self.method, self.query, self.cursor);
            let viewer = self.open(stack, session, asker, &case).await;
            is_whole(&case, &viewer.headers);
            if asker.contains(&("origin", ORIGIN)) {
                is_for_pages(&case, &viewer.headers);
            }
            viewers.push(viewer);
        }
        viewers
    }

    async fn open(
        &self,
        stack: &Stack,
        session: &SessionId,
        asker: &[(&str, &str)],
        case: &str,
    ) -> Viewer {
        let ticket = ticket(stack, session, &self.method).await;
        let cursor = self.cursor.map(|cursor| cursor.to_string());
        let mut headers = vec![(ATTACH_HEADER, ticket.as_str())];
        headers.extend(cursor.iter().map(|c| ("last-event-id", c.as_str())));
        headers.extend_from_slice(asker);
        let path = format!("{}{}", stream_path(session), self.query);
        let (to, method) = (stack.addresses.attach, self.method.clone());
        let opened = Viewer::request(to, method, &path, &headers, body(&self.method));
        opened.await.unwrap().expect(case)
    }
}

fn body(method: &Method) -> Bytes {
    Bytes::from_static(if *method == Method::POST { b"{}" } else { b"" })
}

async fn ticket(stack: &Stack, session: &SessionId, method: &Method) -> String {
    if *method == Method::POST {
        return to_post(stack, session);
    }
    let ticket = stack.operator().read_ticket(session).await;
    ticket.unwrap().ticket
}

async fn create(stack: &Stack, prompt: &str) -> SessionId {
    let new = NewSession::new(WORKSPACE, "demo", prompt);
    stack.operator().create(&new).await.unwrap()
}

async fn end(viewers: Vec<Viewer>, ending: Ending) {
    for mut viewer in viewers {
        assert_eq!(viewer.to_end().await.unwrap(), ending);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_sessions() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let api = stack.operator();
    let session = create(&stack, "say little parts=3").await;
    settled(&api, &session, 1).await.unwrap();
    let parts = stored(&api, &session).await.unwrap();
    let middle = parts[parts.len() / 2].0;
    let queries = ["", "?compact=1", "?profile=5", "?last=1", "?turn=1"];
    let mut routes: Vec<_> = queries.into_iter().map(Route::get).collect();
    routes.push(Route::get(&format!("?after={middle}&fresh=1")));
    routes.extend([Route::behind(middle), Route::post()]);
    for route in &routes {
        end(route.check(&stack, &session, "settled").await, Ending::Done).await;
    }

    let broken = create(&stack, "crash parts=2").await;
    settled(&api, &broken, 1).await.unwrap();
    let canceled = create(&stack, "hang parts=2").await;
    assert_eq!(api.verb(&canceled, "cancel").await.unwrap().status, 200);
    settled(&api, &canceled, 1).await.unwrap();
    let new = NewSession::new(WORKSPACE, "command", "nothing").args(&["/bin/true"]);
    let silent = api.create(&new).await.unwrap();
    settled(&api, &silent, 1).await.unwrap();
    for (state, session) in [
        ("crashed", broken),
        ("canceled", canceled),
        ("empty", silent),
    ] {
        for route in [Route::get(""), Route::post()] {
            end(route.check(&stack, &session, state).await, Ending::Done).await;
        }
    }
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn live_sessions_and_streams_that_fail_later() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let session = create(&stack, "hang parts=8").await;
    // most likely before there is a sandbox
    let mut open = Route::get("").check(&stack, &session, "new").await;
    open.extend(Route::post().check(&stack, &session, "new").await);
    for viewer in &mut open {
        viewer.until(|e| e.kind() == "text-delta").await.unwrap();
    }
    let cursor = open[0].cursor().unwrap();
    for cursor in [cursor, PartId::new(1, cursor.index.0 + 1000)] {
        open.extend(Route::behind(cursor).check(&stack, &session, "live").await);
    }
    for route in [
        Route::get("?compact=1"),
        Route::get("?turn=1"),
        Route::post(),
    ] {
        open.extend(route.check(&stack, &session, "live").await);
    }
    let body = json!({"workspaceId": WORKSPACE, "sessionId": session});
    assert_eq!(stack.admin().revoke(&body).await.unwrap().status, 201);
    for mut viewer in open {
        assert_eq!(viewer.to_end().await.unwrap(), Ending::Cut);
        assert_eq!(viewer.of_kind("error").len(), 1, "an error in mid-stream");
    }

    let lost = create(&stack, "hang parts=8").await;
    let mut open = Route::get("").check(&stack, &lost, "lost").await;
    for viewer in &mut open {
        viewer.until(|e| e.kind() == "text-delta").await.unwrap();
    }
    stack.kill_sandbox(&lost).await.unwrap();
    end(open, Ending::Done).await;
    stack.stop().await.unwrap();
}

/// The same over cleartext HTTP/2, as an edge speaks it.
#[tokio::test(flavor = "multi_thread")]
async fn over_http2() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let api = stack.operator();
    let session = create(&stack, "say little parts=3").await;
    settled(&api, &session, 1).await.unwrap();
    for method in [Method::GET, Method::POST] {
        let ticket = ticket(&stack, &session, &method).await;
        let (headers, text) = http2(stack.addresses.attach, &session, &method, &ticket).await;
        is_whole(&format!("h2: {method}"), &headers);
        is_for_pages(&format!("h2: {method}"), &headers);
        assert!(text.ends_with("data: [DONE]\n\n"), "{method}: {text}");
    }
    stack.stop().await.unwrap();
}

async fn http2(
    to: SocketAddr,
    session: &SessionId,
    method: &Method,
    ticket: &str,
) -> (HeaderMap, String) {
    let socket = tokio::net::TcpStream::connect(to).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .version(Version::HTTP_2)
        .uri(format!("http://{to}{}", stream_path(session)))
        .header(ATTACH_HEADER, ticket)
        .header("origin", ORIGIN)
        .header("accept-encoding", "gzip, br, zstd")
        .body(Full::new(body(method)))
        .unwrap();
    let (head, body) = sender.send_request(request).await.unwrap().into_parts();
    assert_eq!(head.status, 200, "{method}");
    let text = body.collect().await.unwrap().to_bytes();
    (head.headers, String::from_utf8_lossy(&text).into_owned())
}
