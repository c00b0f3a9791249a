//! Who loses access loses it within a second.

use std::time::{Duration, Instant};

use bex_tests::client::Ending;
use http::Method;

use super::*;

const SOON: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_viewer_and_a_revoked_machine_are_stopped_within_a_second() {
    let (mut stack, machine) = begin(StackOptions::default()).await;
    let second = stack.add_gateway().await.unwrap();
    let session = new_session(&stack, &machine, "interactive").await;
    let other = new_session(&stack, &machine, "interactive").await;
    let events = lines(&conversation(0..2), 0);
    let last = events.len() as u64 - 1;
    machine.says(&session, &events).await.unwrap();
    machine.says(&other, &events).await.unwrap();
    let open = async |at, session, who: &str| {
        let mut viewer = try_follow(&stack, at, session, who, None)
            .await
            .unwrap()
            .unwrap();
        viewer.until(|event| event.id == Some(last)).await.unwrap();
        viewer
    };
    let (first, second) = (stack.addresses.attach, second.attach);
    let mut cut = [
        open(first, &session, "svc:viewer").await,
        open(second, &session, "svc:viewer").await,
    ];
    let mut spared = [
        open(second, &session, "svc:operator").await,
        open(first, &other, "svc:viewer").await,
    ];
    let before = stack.viewer().remote_ticket(&session).await.unwrap();
    let body = json!({"workspaceId": WORKSPACE, "sessionId": session, "subject": "svc:viewer"});
    let begun = Instant::now();
    let revoked = stack.admin().revoke(&body).await.unwrap();
    assert_eq!(revoked.status, 201, "{}", revoked.json());
    for viewer in &mut cut {
        assert_eq!(viewer.to_end().await.unwrap(), Ending::Cut);
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        let end = format!("access was revoked; resume after {last}");
        assert_eq!(viewer.of_kind("error")[0]["errorText"], end);
    }
    let refused = Viewer::follow(second, &session, &before.ticket, None).await;
    let refusal = refused.unwrap().unwrap_err();
    assert_eq!((refusal.status, refusal.code.as_str()), (403, "revoked"));

    let revoke = format!("/v1/machines/{}/revoke", machine.id);
    let begun = Instant::now();
    let done = stack
        .admin()
        .call(Method::POST, &revoke, None)
        .await
        .unwrap();
    assert_eq!(done.status, 200, "{}", done.json());
    let more = lines(&conversation(2..3), last + 1);
    let refused = machine.report(&session, &more).await.unwrap();
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (401, "unauthenticated".into())
    );
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let who = "SELECT subject FROM audit_events WHERE action = 'machine.revoke'";
    assert_eq!(stack.sql(who).unwrap().trim(), "svc:admin");

    // nothing of the refused report is there, and nobody else was cut off
    let view = stack.viewer().remote(&session).await.unwrap();
    assert_eq!(view["counters"]["nextEventIndex"], last + 1);
    for session in [&session, &other] {
        let stop = format!("/v1/remote-sessions/{session}/stop");
        let stopped = stack
            .operator()
            .call(Method::POST, &stop, None)
            .await
            .unwrap();
        assert_eq!(stopped.status, 202, "{}", stopped.json());
    }
    for viewer in &mut spared {
        viewer
            .until(|event| told(event).as_deref() == Some("ending"))
            .await
            .unwrap();
    }
    stack.stop().await.unwrap();
}
