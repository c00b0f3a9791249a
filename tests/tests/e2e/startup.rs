//! What stops a start, and what a graceful end looks like.

use bex_tests::client::{Ending, NewSession};
use bex_tests::stack::{LogRules, WORKSPACE};
use bex_tests::{Stack, StackOptions};

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_grant_stops_the_gateway_with_its_name() {
    let mut stack = Stack::start(StackOptions {
        logs: LogRules {
            expected: vec!["turns:SELECT"],
        },
        ..StackOptions::default()
    })
    .await
    .unwrap();
    stack
        .sql("REVOKE SELECT ON turns FROM bex_gateway")
        .unwrap();
    let (code, log) = stack.failed_gateway_start().await.unwrap();
    assert_ne!(code, 0);
    assert!(log.contains("turns:SELECT"), "{log}");
    stack.sql("GRANT SELECT ON turns TO bex_gateway").unwrap();
    stack.restart_gateway().await.unwrap();
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_gateway_tells_its_viewers_where_to_resume() {
    let mut stack = Stack::start(StackOptions::default()).await.unwrap();
    let new = NewSession::new(WORKSPACE, "demo", "work on parts=40 gate=go");
    let session = stack.operator().create(&new).await.unwrap();
    let mut viewer = stack.watch(&session).await.unwrap();
    viewer.until(|e| e.kind() == "text-delta").await.unwrap();
    // ends with 0 within its grace, although a stream is open
    stack.restart_gateway().await.unwrap();
    assert_eq!(viewer.to_end().await.unwrap(), Ending::Cut);
    let errors = viewer.of_kind("error");
    assert_eq!(errors.len(), 1, "{errors:?}");
    let cursor = viewer.cursor().unwrap();
    let text = errors[0]["errorText"].as_str().unwrap();
    assert!(text.ends_with(&format!("resume after {cursor}")), "{text}");
    let mut resumed = stack.watch_from(&session, Some(cursor)).await.unwrap();
    stack.open_gate(&session, "go").unwrap();
    assert_eq!(resumed.to_end().await.unwrap(), Ending::Done);
    let parts = bex_tests::scenario::stored(&stack.operator(), &session)
        .await
        .unwrap();
    let both: Vec<_> = viewer.parts().into_iter().chain(resumed.parts()).collect();
    bex_tests::scenario::saw_everything(&parts, &both).unwrap();
    stack.stop().await.unwrap();
}
