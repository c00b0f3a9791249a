//! Cancel, archive, delete.

use bex_proto::SessionId;
use bex_store::settle::SandboxAfter;
use serde_json::Value;

use crate::support::*;

#[tokio::test]
async fn cancel_may_be_repeated_and_ends_only_what_is_active() {
    let world = World::new().await;
    let session = world.running().await;
    for _ in 0..2 {
        let shown = world
            .post(OPERATOR, &path(&session, "/cancel"), &Value::Null)
            .await
            .ok(200);
        assert_eq!(shown["phase"], "canceling");
    }
    assert_eq!(
        world.sql("SELECT count(*) FROM audit_events WHERE action = 'session.cancel'"),
        "1"
    );
    let done = world.finished(SandboxAfter::Stopping).await;
    let shown = world
        .post(OPERATOR, &path(&done, "/cancel"), &Value::Null)
        .await
        .ok(200);
    assert_eq!(shown["phase"], "completed");
    world
        .post(
            OPERATOR,
            &path(&SessionId::random(), "/cancel"),
            &Value::Null,
        )
        .await
        .refused("not_found");
}

#[tokio::test]
async fn archiving_twice_keeps_the_first_time_and_no_phase_moves() {
    let world = World::new().await;
    let session = world.running().await;
    let first = world
        .post(OPERATOR, &path(&session, "/archive"), &Value::Null)
        .await
        .ok(200);
    let second = world
        .post(OPERATOR, &path(&session, "/archive"), &Value::Null)
        .await
        .ok(200);
    assert!(first["archivedAt"].is_string());
    assert_eq!(first, second);
    assert_eq!(first["phase"], "running");
    let back = world
        .post(OPERATOR, &path(&session, "/unarchive"), &Value::Null)
        .await
        .ok(200);
    assert!(back.get("archivedAt").is_none());
}

#[tokio::test]
async fn delete_waits_for_the_living_and_the_law() {
    let world = World::new().await;
    let delete = async |session: &SessionId| world.call(ADMIN, "DELETE", &path(session, "")).await;
    let running = world.running().await;
    delete(&running).await.refused("not_deletable");
    let idle = world.finished(SandboxAfter::Idle).await;
    delete(&idle).await.refused("not_deletable");
    let session = world.finished(SandboxAfter::Stopping).await;
    let hold = path(&session, "/legal-hold");
    world.call(ADMIN, "POST", &hold).await.ok(200);
    delete(&session).await.refused("legal_hold");
    world.call(ADMIN, "DELETE", &hold).await.ok(200);
    let gone = delete(&session).await;
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    delete(&session).await.refused("not_found");
    world
        .get(VIEWER, &path(&session, ""))
        .await
        .refused("not_found");
    assert_eq!(
        world.sql(&format!(
            "SELECT count(*) FROM turns WHERE session_id = '{session}'"
        )),
        "0"
    );
    assert_eq!(
        world.sql("SELECT session_id FROM audit_events WHERE action = 'session.delete'"),
        session.to_string()
    );
}

#[tokio::test]
async fn a_failed_session_says_why_in_words() {
    let world = World::new().await;
    let session = world.create().await;
    world.sql(&format!(
        "UPDATE sessions SET phase = 'failed', failure_reason = 'provisioning_failed' WHERE id = '{session}'"
    ));
    let shown = world.get(VIEWER, &path(&session, "")).await.ok(200);
    assert_eq!(shown["failureReason"], "provisioning_failed");
    assert_eq!(shown["failureRetryable"], true);
    assert_eq!(shown["failureMessage"], "The sandbox could not be started.");
}
