//! A user's command in a living sandbox, through api and gateway; and the exec listener's own door.

use bex_proto::SessionId;
use bex_proto::exec::{Exit, FrameDecoder, FrameKind};
use bex_tests::client::{Answer, NewSession, http::fetch};
use bex_tests::scenario::settled;
use bex_tests::stack::WORKSPACE;
use bex_tests::{Stack, StackOptions};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};

async fn idle(stack: &Stack) -> SessionId {
    let new = NewSession::new(WORKSPACE, "demo", "say little parts=2");
    let session = stack.operator().create(&new).await.unwrap();
    settled(&stack.operator(), &session, 1).await.unwrap();
    session
}

async fn run(stack: &Stack, session: &SessionId, body: Value) -> Answer {
    let path = format!("/v1/agent-sessions/{session}/exec");
    stack
        .operator()
        .call(Method::POST, &path, Some(&body))
        .await
        .unwrap()
}

/// Standard output, standard error, and the last frame.
fn frames(answer: &Answer) -> (Vec<u8>, Vec<u8>, FrameKind, Bytes) {
    assert_eq!(
        answer.headers["content-type"],
        bex_proto::exec::CONTENT_TYPE,
        "{answer:?}"
    );
    let mut decoder = FrameDecoder::default();
    decoder.push(&answer.body);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        let frame = decoder
            .next_frame()
            .unwrap()
            .expect("an exit or error frame is last");
        match frame.kind {
            FrameKind::Stdout => out.extend_from_slice(&frame.payload),
            FrameKind::Stderr => err.extend_from_slice(&frame.payload),
            last => {
                assert_eq!(
                    decoder.next_frame().unwrap(),
                    None,
                    "nothing follows the last frame"
                );
                return (out, err, last, frame.payload);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_in_the_sandbox_and_is_bounded() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let session = idle(&stack).await;
    let script = "cat; echo out; echo err >&2; exit 7";
    let answer = run(
        &stack,
        &session,
        json!({"argv": ["/bin/sh", "-c", script], "stdin": "in\n"}),
    )
    .await;
    let (out, err, last, payload) = frames(&answer);
    assert_eq!(
        (out.as_slice(), err.as_slice()),
        (&b"in\nout\n"[..], &b"err\n"[..])
    );
    assert_eq!(last, FrameKind::Exit);
    let exit: Exit = serde_json::from_slice(&payload).unwrap();
    assert_eq!(exit.exit_code, 7);

    let answer = run(
        &stack,
        &session,
        json!({"argv": ["/bin/sh", "-c", "yes | head -c 3000000"]}),
    )
    .await;
    let (out, _, last, payload) = frames(&answer);
    assert_eq!(last, FrameKind::Error);
    let error: Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!(error["code"], "output_limit");
    assert!(
        out.len() as u64 <= bex_proto::limits::RUN_OUTPUT_BYTES,
        "{}",
        out.len()
    );

    stack.kill_sandbox(&session).await.unwrap();
    let gone = run(&stack, &session, json!({"argv": ["/bin/true"]})).await;
    assert_eq!(
        (gone.status.as_u16(), gone.code().as_str()),
        (404, "sandbox_terminated")
    );
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exec_listener_wants_its_own_ticket() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let session = idle(&stack).await;
    let attach = stack.operator().read_ticket(&session).await.unwrap();
    for ticket in ["", "x", attach.ticket.as_str()] {
        let request = Request::post("/v1/exec")
            .header(bex_proto::exec::TICKET_HEADER, ticket)
            .body(Full::from(r#"{"op":"observe","turn":1,"offset":0}"#))
            .unwrap();
        let answer = fetch(stack.addresses.exec, request).await.unwrap();
        assert_eq!(answer.status(), 401);
    }
    stack.stop().await.unwrap();
}
