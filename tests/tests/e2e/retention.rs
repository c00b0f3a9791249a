//! What is kept no longer is gone, what is kept is not touched.

use bex_proto::session::Phase;
use bex_tests::client::NewSession;
use bex_tests::scenario::{STEP, reaches, settled};
use bex_tests::stack::WORKSPACE;
use bex_tests::{Stack, StackOptions, eventually};
use http::{Method, StatusCode};

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_is_deleted_with_all_that_runs_in_it_and_a_hold_prevents_it() {
    let stack = Stack::start(StackOptions {
        api_env: vec![("BEX_RETENTION_TICK_MS".into(), "200".into())],
        ..StackOptions::default()
    })
    .await
    .unwrap();
    let (api, admin) = (stack.operator(), stack.admin());
    let create = async |prompt: &str| {
        let new = NewSession::new(WORKSPACE, "demo", prompt);
        api.create(&new).await.unwrap()
    };
    let idle = create("done parts=3").await;
    settled(&api, &idle, 1).await.unwrap();
    let running = create("waits gate=never parts=3").await;
    reaches(&api, &running, Phase::Running).await.unwrap();

    let hold = format!("/v1/agent-sessions/{idle}/legal-hold");
    let refused = api.call(Method::POST, &hold, None).await.unwrap();
    assert_eq!(refused.code(), "forbidden");
    let held = admin.call(Method::POST, &hold, None).await.unwrap();
    assert_eq!(held.json()["legalHold"], true, "{}", held.json());
    assert_eq!(admin.delete(&idle).await.unwrap().code(), "legal_hold");
    let workspace = format!("/v1/workspaces/{WORKSPACE}");
    let refused = admin.call(Method::DELETE, &workspace, None).await.unwrap();
    assert_eq!(refused.code(), "legal_hold");
    let free = admin.call(Method::DELETE, &hold, None).await.unwrap();
    assert_eq!(free.json()["legalHold"], false, "{}", free.json());

    let begun = admin.call(Method::DELETE, &workspace, None).await.unwrap();
    assert_eq!(begun.status, StatusCode::ACCEPTED, "{}", begun.json());
    let new = NewSession::new(WORKSPACE, "demo", "too late");
    assert!(api.create(&new).await.is_err());
    eventually("nothing of the workspace is left", STEP, async || {
        let left = stack.sql(
            "SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM transcript_parts) + (SELECT count(*) FROM deletions)
                    + (SELECT count(*) FROM workspace_policies)",
        );
        (left.ok()?.trim() == "0").then_some(())
    })
    .await
    .unwrap();
    let told = stack
        .sql("SELECT action FROM audit_events WHERE session_id IS NULL ORDER BY id")
        .unwrap();
    let told: Vec<_> = told.split_whitespace().collect();
    assert_eq!(told, ["workspace.delete", "workspace.deleted"]);
    // the workspace may be used again
    create("anew parts=1").await;
    stack.stop().await.unwrap();
}
