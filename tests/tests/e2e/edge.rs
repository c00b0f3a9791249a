//! Behind Debian's nginx as its package configures it: events come when they are spoken, whatever a browser says it can unpack.

use bex_proto::SessionId;
use bex_proto::ticket::ATTACH_HEADER;
use bex_tests::client::{Ending, NewSession, Ticket, Viewer, stream_path};
use bex_tests::edge::{Edge, is_installed};
use bex_tests::scenario::{saw_everything, settled, stored};
use bex_tests::stack::WORKSPACE;
use bex_tests::{Stack, StackOptions};
use bytes::Bytes;
use http::Method;

/// What a browser, or a proxy before it, says it can unpack.
const ENCODINGS: [Option<&str>; 5] = [
    None,
    Some("gzip"),
    Some("br"),
    Some("zstd"),
    Some("gzip, deflate, br, zstd"),
];

async fn open(
    edge: &Edge,
    method: Method,
    session: &SessionId,
    ticket: &Ticket,
    encoding: Option<&str>,
) -> Viewer {
    let mut headers = vec![(ATTACH_HEADER, ticket.ticket.as_str())];
    headers.extend(encoding.map(|encoding| ("accept-encoding", encoding)));
    let body = Bytes::from_static(if method == Method::POST { b"{}" } else { b"" });
    let path = stream_path(session);
    let opened = Viewer::request(edge.address, method, &path, &headers, body).await;
    let viewer = opened.unwrap().expect("a stream");
    assert!(
        !viewer.headers.contains_key("content-encoding"),
        "{encoding:?}: {:?}",
        viewer.headers
    );
    viewer
}

/// Reads the first half, which is spoken before the gate is opened, and not more.
async fn first_half(viewer: &mut Viewer) {
    viewer.until(|e| e.kind() == "text-delta").await.unwrap();
    let parts = viewer.parts().len();
    assert!(parts > 0 && viewer.ending.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_come_one_by_one_through_nginx() {
    if !is_installed() {
        return;
    }
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let api = stack.operator();
    let edge = Edge::start(stack.addresses.attach, &stack.log_dir())
        .await
        .unwrap();
    let new = NewSession::new(WORKSPACE, "demo", "say little parts=4 gate=go");
    let session = api.create(&new).await.unwrap();
    let mut viewers = Vec::new();
    for encoding in ENCODINGS {
        let ticket = api.read_ticket(&session).await.unwrap();
        viewers.push(open(&edge, Method::GET, &session, &ticket, encoding).await);
        let ticket = api.turn_ticket(&session, 1).await.unwrap();
        viewers.push(open(&edge, Method::POST, &session, &ticket, encoding).await);
    }
    // the agent says no more before the gate is opened, and it is opened only when all have what it said so far
    for viewer in &mut viewers {
        first_half(viewer).await;
    }
    stack.open_gate(&session, "go").unwrap();
    for viewer in &mut viewers {
        assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
    }
    settled(&api, &session, 1).await.unwrap();
    let stored = stored(&api, &session).await.unwrap();
    for viewer in &viewers {
        saw_everything(&stored, &viewer.parts()).unwrap();
        assert_eq!(viewer.comments.first().unwrap(), "stream-open");
    }
    for encoding in ENCODINGS {
        let ticket = api.read_ticket(&session).await.unwrap();
        let mut replay = open(&edge, Method::GET, &session, &ticket, encoding).await;
        assert_eq!(replay.to_end().await.unwrap(), Ending::Done);
        saw_everything(&stored, &replay.parts()).unwrap();
    }
    drop(edge);
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_that_leaves_nginx_leaves_the_gateway() {
    if !is_installed() {
        return;
    }
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let api = stack.operator();
    let edge = Edge::start(stack.addresses.attach, &stack.log_dir())
        .await
        .unwrap();
    let new = NewSession::new(WORKSPACE, "demo", "hang parts=4");
    let session = api.create(&new).await.unwrap();
    let ticket = api.read_ticket(&session).await.unwrap();
    let mut viewer = open(&edge, Method::GET, &session, &ticket, None).await;
    first_half(&mut viewer).await;
    drop(viewer);
    let closed = format!("SELECT result FROM stream_audit WHERE session_id = '{session}'");
    let step = bex_tests::scenario::STEP;
    let what = "the stream's audit row is closed";
    let result = bex_tests::eventually(what, step, async || {
        let result = stack.sql(&closed).ok()?.trim().to_owned();
        (!result.is_empty()).then_some(result)
    });
    assert_eq!(result.await.unwrap(), "left");
    drop(edge);
    stack.stop().await.unwrap();
}
