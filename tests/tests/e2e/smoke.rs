//! `bex-api smoke` against a running system, as an operator would run it.

use std::process::Output;

use bex_tests::stack::WORKSPACE;
use bex_tests::stack::bin_dir;
use bex_tests::{Stack, StackOptions};
use http::Method;
use tokio::process::Command;

async fn smoke(stack: &Stack, token: &str, prompt: &str) -> (Output, String) {
    let program = bin_dir().unwrap().join("bex-api");
    let run = Command::new(program)
        .args([
            "smoke",
            "--profile",
            "demo",
            "--timeout",
            "120",
            "--workspace",
            WORKSPACE,
        ])
        .args(["--url", &format!("http://{}", stack.addresses.api)])
        .args(["--prompt", prompt])
        .env_clear()
        .env("BEX_SMOKE_TOKEN", token)
        .output();
    let output = run.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_nobody_watches_is_stored_and_replayed() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let (output, said) = smoke(&stack, &stack.tokens.operator, "hello parts=40").await;
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in ["phase completed", "turn 1 complete", ", [DONE]\n", "\nok\n"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains(&stack.tokens.operator));
    // it leaves nothing in the list
    let list = format!("/v1/agent-sessions?workspaceId={WORKSPACE}");
    let listed = stack
        .operator()
        .call(Method::GET, &list, None)
        .await
        .unwrap();
    assert_eq!(listed.json()["items"].as_array().unwrap().len(), 0);

    // without a right nothing is created, and the exit code says so
    let (output, said) = smoke(&stack, &stack.tokens.viewer, "hello").await;
    assert_eq!(output.status.code(), Some(1), "{said}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("403") && !told.contains(&stack.tokens.viewer),
        "{told}"
    );
    stack.stop().await.unwrap();
}
