//! Revocations end running streams and void older tickets; nothing else is touched.

use bex_proto::SessionId;
use bex_tests::client::{Ending, NewSession, Viewer};
use bex_tests::stack::WORKSPACE;
use bex_tests::{Stack, StackOptions};
use serde_json::json;

async fn hanging(stack: &Stack) -> (SessionId, Viewer) {
    let new = NewSession::new(WORKSPACE, "demo", "hang parts=10");
    let session = stack.operator().create(&new).await.unwrap();
    let mut viewer = stack.watch(&session).await.unwrap();
    viewer.until(|e| e.kind() == "text-delta").await.unwrap();
    (session, viewer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_session_is_cut_and_another_goes_on() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let (session, mut cut) = hanging(&stack).await;
    let (other, mut spared) = hanging(&stack).await;
    let before = stack.operator().read_ticket(&session).await.unwrap();
    let denied = stack
        .operator()
        .revoke(&json!({"workspaceId": WORKSPACE}))
        .await
        .unwrap();
    assert_eq!(denied.status, 403, "only an administrator revokes");
    let body = json!({"workspaceId": WORKSPACE, "sessionId": session});
    let revoked = stack.admin().revoke(&body).await.unwrap();
    assert_eq!(revoked.status, 201, "{}", revoked.json());

    assert_eq!(
        cut.to_end().await.unwrap(),
        Ending::Cut,
        "[DONE] is only said of a true end"
    );
    let errors = cut.of_kind("error");
    assert_eq!(errors.len(), 1, "{errors:?}");
    let headers = [(bex_proto::ticket::ATTACH_HEADER, before.ticket.as_str())];
    let path = bex_tests::client::stream_path(&session);
    let outcome = Viewer::request(
        stack.addresses.attach,
        http::Method::GET,
        &path,
        &headers,
        bytes::Bytes::new(),
    );
    let refusal = outcome.await.unwrap().expect_err("an older ticket is void");
    assert_eq!((refusal.status, refusal.code.as_str()), (403, "revoked"));

    // the other session was not matched: its stream is alive until its own end
    stack.operator().verb(&other, "turns/1/stop").await.unwrap();
    assert_eq!(spared.to_end().await.unwrap(), Ending::Done);
    stack.stop().await.unwrap();
}
