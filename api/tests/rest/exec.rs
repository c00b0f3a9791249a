//! A user's command in the sandbox.

use bex_api::exec_client::ExecFailure;
use bex_store::settle::SandboxAfter;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn output_is_passed_on_as_it_comes_and_the_command_is_on_record() {
    let world = World::new().await;
    let session = world.running().await;
    let frames = Bytes::from_static(b"\x01\x00\x00\x00\x02hi\x03\x00\x00\x00\x0e{\"exitCode\":0}");
    *world.sandboxes.frames.lock().unwrap() = frames.clone();
    let run = async |body: &Value| world.post(OPERATOR, &path(&session, "/exec"), body).await;
    let answer = run(&json!({"argv": ["cat", "-"], "stdin": "hi"})).await;
    assert_eq!((answer.status, &answer.body), (200, &frames));
    assert_eq!(answer.header("content-type"), "application/vnd.bex.exec");
    assert_eq!(
        *world.sandboxes.calls.lock().unwrap(),
        [r#"run uid-1 svc:operator ["cat", "-"] Some("hi")"#]
    );
    assert_eq!(
        world.sql(
            "SELECT action, subject, detail IS NULL FROM audit_events WHERE action LIKE 'sandbox%'"
        ),
        "sandbox.exec|svc:operator|t"
    );
    for (body, code) in [
        (json!({"argv": []}), "invalid_request"),
        (json!({"argv": [""]}), "invalid_request"),
        (json!({"argv": ["a\u{0}"]}), "invalid_request"),
        (json!({"argv": "ls"}), "invalid_request"),
        (json!({"argv": ["ls"], "tty": true}), "unknown_field"),
    ] {
        run(&body).await.refused(code);
    }
    assert_eq!(world.sandboxes.calls.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn refusals_of_the_gateway_keep_their_meaning() {
    let world = World::new().await;
    let session = world.running().await;
    for (failure, code) in [
        (ExecFailure::Terminated, "sandbox_terminated"),
        (ExecFailure::Revoked, "revoked"),
        (ExecFailure::Unsupported, "unsupported"),
        (ExecFailure::OutputLimit, "output_limit"),
        (ExecFailure::Timeout, "exec_timeout"),
        (ExecFailure::Transport, "exec_transport"),
        (ExecFailure::Refused(429), "overloaded"),
        (ExecFailure::Refused(503), "unavailable"),
        (ExecFailure::Refused(400), "internal"),
    ] {
        *world.sandboxes.refusal.lock().unwrap() = Some(failure);
        world
            .post(OPERATOR, &path(&session, "/exec"), &json!({"argv": ["ls"]}))
            .await
            .refused(code);
    }
}

#[tokio::test]
async fn there_must_be_a_sandbox() {
    let world = World::new().await;
    let waiting = world.create().await;
    let gone = world.finished(SandboxAfter::Stopping).await;
    for session in [waiting, gone] {
        let answer = world
            .post(OPERATOR, &path(&session, "/exec"), &json!({"argv": ["ls"]}))
            .await;
        answer.refused("sandbox_terminated");
    }
    let idle = world.finished(SandboxAfter::Idle).await;
    world
        .post(OPERATOR, &path(&idle, "/exec"), &json!({"argv": ["ls"]}))
        .await
        .ok(200);
    assert_eq!(world.sandboxes.calls.lock().unwrap().len(), 1);
}
