//! Tickets at the attach listener: every refusal in its order, and what it costs.

use bex_proto::ids::WorkspaceId;
use bex_proto::ticket::{ATTACH_HEADER, AttachAction, AttachClaims, KeyRing, random_jti};
use bex_proto::{SessionId, TurnNo};
use bex_tests::client::{Ending, NewSession, Refusal, Viewer, preflight, stream_path};
use bex_tests::scenario::settled;
use bex_tests::stack::{ORIGIN, WORKSPACE, ring};
use bex_tests::{Stack, StackOptions};
use bytes::Bytes;
use http::Method;
use jiff::Timestamp;

const NEW_KEY: &str = "a2:c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";

async fn finished(stack: &Stack) -> SessionId {
    let new = NewSession::new(WORKSPACE, "demo", "say little parts=3");
    let session = stack.operator().create(&new).await.unwrap();
    settled(&stack.operator(), &session, 1).await.unwrap();
    session
}

/// A ticket as the api would mint it now.
fn claims(session: &SessionId) -> AttachClaims {
    let now = Timestamp::now().as_second();
    AttachClaims {
        sub: "svc:operator".into(),
        ses: session.clone(),
        ws: WORKSPACE.parse::<WorkspaceId>().unwrap(),
        act: AttachAction::Read,
        trn: None,
        rpo: true,
        generation: None,
        pod: None,
        pod_uid: None,
        ns: None,
        iat: now,
        exp: now + 90,
        jti: random_jti(),
    }
}

async fn ask(
    stack: &Stack,
    method: Method,
    path: &str,
    ticket: Option<&str>,
) -> Result<Viewer, Refusal> {
    let headers: Vec<_> = ticket.iter().map(|t| (ATTACH_HEADER, *t)).collect();
    Viewer::request(stack.addresses.attach, method, path, &headers, Bytes::new())
        .await
        .unwrap()
}

async fn get(stack: &Stack, session: &SessionId, ticket: &str) -> Result<Viewer, Refusal> {
    ask(stack, Method::GET, &stream_path(session), Some(ticket)).await
}

/// Status and code; the body must be the one line that a page shows to its user.
fn refused(outcome: Result<Viewer, Refusal>) -> (u16, String) {
    let refusal = outcome.expect_err("it is refused");
    let kind = refusal.headers["content-type"].to_str().unwrap();
    assert!(kind.starts_with("text/plain"), "{kind}");
    assert!(
        !refusal.text.trim().is_empty() && refusal.text.trim().lines().count() == 1,
        "{}",
        refusal.text
    );
    (refusal.status, refusal.code)
}

async fn replays(outcome: Result<Viewer, Refusal>) {
    let mut viewer = outcome.expect("it is accepted");
    assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_tickets_are_refused_and_cost_nothing() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let (session, other) = (finished(&stack).await, finished(&stack).await);
    let keys = ring(&stack.keys.attach);
    let path = stream_path(&session);
    let invalid = (401, "ticket_invalid".to_owned());

    assert_eq!(
        refused(ask(&stack, Method::GET, &path, None).await),
        invalid,
        "absent"
    );
    for garbled in ["x", "a.b.c", "eyJhbGciOiJub25lIn0.e30."] {
        assert_eq!(
            refused(get(&stack, &session, garbled).await),
            invalid,
            "{garbled}"
        );
    }
    let mut old = claims(&session);
    old.iat -= 200;
    old.exp -= 200;
    assert_eq!(
        refused(get(&stack, &session, &old.sign(&keys)).await),
        invalid,
        "expired"
    );
    let foreign = KeyRing::parse(NEW_KEY).unwrap();
    assert_eq!(
        refused(get(&stack, &session, &claims(&session).sign(&foreign)).await),
        invalid,
        "unknown key"
    );
    let forged = KeyRing::parse(&NEW_KEY.replacen("a2:", "a1:", 1)).unwrap();
    assert_eq!(
        refused(get(&stack, &session, &claims(&session).sign(&forged)).await),
        invalid,
        "forged"
    );

    let ticket = claims(&other).sign(&keys);
    assert_eq!(
        refused(get(&stack, &session, &ticket).await),
        (403, "session_mismatch".into())
    );
    replays(get(&stack, &other, &ticket).await).await;
    assert_eq!(
        refused(get(&stack, &other, &ticket).await),
        (401, "ticket_used".into())
    );

    let ticket = claims(&session).sign(&keys);
    assert_eq!(
        refused(ask(&stack, Method::POST, &path, Some(&ticket)).await),
        (403, "action_mismatch".into())
    );
    replays(get(&stack, &session, &ticket).await).await;
    let turn = AttachClaims {
        act: AttachAction::Turn,
        trn: Some(TurnNo(1)),
        ..claims(&session)
    };
    assert_eq!(
        refused(get(&stack, &session, &turn.sign(&keys)).await),
        (403, "action_mismatch".into())
    );

    assert_eq!(
        refused(ask(&stack, Method::PUT, &path, None).await),
        (405, "method_not_allowed".into())
    );
    let in_url = format!("{path}?ticket={}", claims(&session).sign(&keys));
    assert_eq!(
        refused(ask(&stack, Method::GET, &in_url, None).await),
        invalid,
        "never in a URL"
    );
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retired_key_is_accepted_and_a_removed_one_is_not() {
    let mut stack = Stack::start(StackOptions::default()).await.unwrap();
    let session = finished(&stack).await;
    let old = ring(&stack.keys.attach);
    let rotated = format!("{NEW_KEY},{}", stack.keys.attach);
    stack
        .restart_gateway_with("BEX_ATTACH_KEYS", &rotated)
        .await
        .unwrap();
    replays(get(&stack, &session, &claims(&session).sign(&old)).await).await;
    replays(get(&stack, &session, &claims(&session).sign(&ring(NEW_KEY))).await).await;
    stack
        .restart_gateway_with("BEX_ATTACH_KEYS", NEW_KEY)
        .await
        .unwrap();
    let outcome = get(&stack, &session, &claims(&session).sign(&old)).await;
    assert_eq!(refused(outcome), (401, "ticket_invalid".into()));
    replays(get(&stack, &session, &claims(&session).sign(&ring(NEW_KEY))).await).await;
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_are_checked_and_the_end_is_no_content() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let session = finished(&stack).await;
    let keys = ring(&stack.keys.attach);
    let at = async |query: &str| {
        let path = format!("{}{query}", stream_path(&session));
        ask(
            &stack,
            Method::GET,
            &path,
            Some(&claims(&session).sign(&keys)),
        )
        .await
    };
    for bad in [
        "?after=x",
        "?after=1",
        "?after=01.2",
        "?after=2.0",
        "?after=1.-1",
    ] {
        assert_eq!(
            refused(at(bad).await),
            (400, "invalid_cursor".into()),
            "{bad}"
        );
    }
    let mut whole = at("").await.unwrap();
    whole.to_end().await.unwrap();
    assert_eq!(whole.headers["content-type"], "text/event-stream");
    assert_eq!(whole.headers["x-vercel-ai-ui-message-stream"], "v1");
    assert_eq!(whole.headers["cache-control"], "no-cache, no-transform");
    assert_eq!(whole.headers["x-accel-buffering"], "no");
    assert_eq!(
        whole.comments.first().map(String::as_str),
        Some("stream-open")
    );
    let parts = whole.parts();
    let middle = parts[parts.len() / 2].0;
    let mut rest = at(&format!("?after={middle}")).await.unwrap();
    rest.to_end().await.unwrap();
    assert_eq!(
        (rest.events[0].id, rest.events[0].data.as_ref()),
        (Some(middle), None),
        "the cursor is said first"
    );
    assert_eq!(rest.parts(), parts[parts.len() / 2 + 1..]);
    let last = stack
        .operator()
        .feed(&session)
        .await
        .unwrap()
        .last()
        .unwrap()
        .id();
    let end = at(&format!("?after={last}"))
        .await
        .expect_err("204 is no stream");
    assert_eq!(end.status, 204);
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_known_origins_may_read() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let session = finished(&stack).await;
    let allowed = preflight(stack.addresses.attach, &session, ORIGIN)
        .await
        .unwrap();
    assert_eq!(allowed.status(), 204);
    assert_eq!(allowed.headers()["access-control-allow-origin"], ORIGIN);
    let headers = allowed.headers()["access-control-allow-headers"]
        .to_str()
        .unwrap()
        .to_lowercase();
    assert!(headers.contains(ATTACH_HEADER), "{headers}");
    let foreign = preflight(stack.addresses.attach, &session, "http://evil.example")
        .await
        .unwrap();
    assert!(
        !foreign
            .headers()
            .contains_key("access-control-allow-origin")
    );
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_body_over_the_limit_is_refused() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let session = finished(&stack).await;
    let turn = AttachClaims {
        act: AttachAction::Turn,
        trn: Some(TurnNo(1)),
        ..claims(&session)
    };
    let ticket = turn.sign(&ring(&stack.keys.attach));
    let headers = [
        (ATTACH_HEADER, ticket.as_str()),
        ("content-type", "application/json"),
    ];
    let body = Bytes::from(vec![b' '; bex_proto::limits::STREAM_POST_BODY + 1]);
    let (to, path) = (stack.addresses.attach, stream_path(&session));
    let outcome = Viewer::request(to, Method::POST, &path, &headers, body)
        .await
        .unwrap();
    assert_eq!(refused(outcome), (413, "body_too_large".into()));
    stack.stop().await.unwrap();
}
