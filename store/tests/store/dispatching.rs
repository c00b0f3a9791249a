//! The outbox and the dispatcher's steps.

use bex_proto::session::{FailureReason, Phase, TruncationReason, Verdict};
use bex_proto::{Generation, TurnNo};
use bex_store::dispatch::{Attempt, BeginDelivery, BeginGeneration, Delivery, Step};
use bex_store::sandboxes::SandboxState;
use std::time::Duration;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_claimed_turn_is_nobody_elses_until_the_lease_ends() {
    let store = Store::new().await;
    let session = store.create().await;
    let first = store.claim_dispatch(&session).await;
    assert!(
        store
            .db
            .claim_dispatches("other", 10)
            .await
            .unwrap()
            .is_empty()
    );
    store.sql("UPDATE dispatches SET until = now() - interval '1 second'");
    let second = store.claim_dispatch(&session).await;
    assert!(second.fence > first.fence);
    // every step of the first claim changes nothing any more
    assert_eq!(
        store
            .db
            .begin_generation(&first, &new_sandbox())
            .await
            .unwrap(),
        BeginGeneration::Stale
    );
    assert_eq!(
        store
            .db
            .begin_delivery(&first, Generation(0))
            .await
            .unwrap(),
        BeginDelivery::Stale
    );
    assert_eq!(
        store
            .db
            .delivered(&first, Delivery::Accepted)
            .await
            .unwrap(),
        Step::Stale
    );
    assert_eq!(
        store
            .db
            .provisioning_failed(&first, FailureReason::ProvisioningFailed)
            .await
            .unwrap(),
        Step::Stale
    );
    assert!(!store.db.renew_dispatch(&first).await.unwrap());
    assert!(
        !store
            .db
            .retry_dispatch(&first, Attempt::Failed, Duration::ZERO)
            .await
            .unwrap()
    );
    assert!(store.db.renew_dispatch(&second).await.unwrap());
    assert!(
        store
            .db
            .retry_dispatch(&second, Attempt::Waited, Duration::from_secs(3600))
            .await
            .unwrap()
    );
    assert!(
        store
            .db
            .claim_dispatches("test", 10)
            .await
            .unwrap()
            .is_empty(),
        "not due for an hour"
    );
    store.db.make_dispatch_due(&session).await.unwrap();
    let third = store.claim_dispatch(&session).await;
    assert_eq!(third.attempts, 2, "to wait is no attempt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_generation_is_raised_only_before_delivery_begins() {
    let store = Store::new().await;
    let session = store.create().await;
    let claim = store.claim_dispatch(&session).await;
    let begun = store
        .db
        .begin_generation(&claim, &new_sandbox())
        .await
        .unwrap();
    assert_eq!(begun, BeginGeneration::Begun { generation: G1 });
    let row = store.db.sandbox(&session, G1).await.unwrap().unwrap();
    assert_eq!(row.pod, format!("{session}-g1"));
    // the first sandbox never became ready: a second life, and the first is to be removed
    let again = store
        .db
        .begin_generation(&claim, &new_sandbox())
        .await
        .unwrap();
    assert!(matches!(
        again,
        BeginGeneration::Begun {
            generation: Generation(2),
            ..
        }
    ));
    assert_eq!(
        store.db.sandbox(&session, G1).await.unwrap().unwrap().state,
        SandboxState::Stopping
    );
    assert_eq!(
        store.db.sandbox_ready(&claim, G1, "u1").await.unwrap(),
        Step::Moved
    );
    assert_eq!(
        store.db.begin_delivery(&claim, G1).await.unwrap(),
        BeginDelivery::Moved
    );
    assert_eq!(
        store
            .db
            .sandbox_ready(&claim, Generation(2), "u2")
            .await
            .unwrap(),
        Step::Done
    );
    assert_eq!(
        store
            .db
            .begin_delivery(&claim, Generation(2))
            .await
            .unwrap(),
        BeginDelivery::Begun
    );
    assert_eq!(
        store
            .db
            .begin_generation(&claim, &new_sandbox())
            .await
            .unwrap(),
        BeginGeneration::DeliveryBegun
    );
    assert_eq!(
        store
            .db
            .begin_delivery(&claim, Generation(2))
            .await
            .unwrap(),
        BeginDelivery::Again
    );
    assert_eq!(
        store
            .db
            .provisioning_failed(&claim, FailureReason::ProvisioningFailed)
            .await
            .unwrap(),
        Step::Moved
    );
    assert_eq!(
        store
            .db
            .delivered(&claim, Delivery::Accepted)
            .await
            .unwrap(),
        Step::Done
    );
    assert_eq!(
        store
            .db
            .delivered(&claim, Delivery::Accepted)
            .await
            .unwrap(),
        Step::Stale,
        "the outbox row is gone"
    );
    assert_eq!(
        store.db.session(&session).await.unwrap().unwrap().phase,
        Phase::Running
    );
    let turn = store.db.turn(&session, T1).await.unwrap().unwrap();
    assert!(turn.delivered_at.is_some());
    assert_eq!(turn.delivery_mode, bex_proto::session::DeliveryMode::Fresh);
    let latest = store.db.latest_sandbox(&session).await.unwrap().unwrap();
    assert_eq!(
        (latest.generation, latest.state, latest.pod_uid.as_deref()),
        (Generation(2), SandboxState::Turn, Some("u2"))
    );
    assert_eq!(
        store.db.living_sandboxes_of(&session).await.unwrap().len(),
        2
    );
    assert_eq!(store.db.driver_kids_in_use().await.unwrap(), ["k1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn failed_provisioning_settles_the_turn_and_the_session_together() {
    let store = Store::new().await;
    let session = store.create().await;
    let claim = store.claim_dispatch(&session).await;
    store
        .db
        .begin_generation(&claim, &new_sandbox())
        .await
        .unwrap();
    assert_eq!(
        store
            .db
            .provisioning_failed(&claim, FailureReason::SandboxImpossible)
            .await
            .unwrap(),
        Step::Done
    );
    let row = store.db.session(&session).await.unwrap().unwrap();
    assert_eq!(
        (row.phase, row.failure_reason.as_deref()),
        (Phase::Failed, Some("sandbox_impossible"))
    );
    let turn = store.db.turn(&session, T1).await.unwrap().unwrap();
    assert_eq!(
        (turn.verdict, turn.reason),
        (
            Verdict::Truncated,
            Some(TruncationReason::ProvisioningFailed)
        )
    );
    assert_eq!(
        store.db.sandbox(&session, G1).await.unwrap().unwrap().state,
        SandboxState::Stopping
    );
    assert!(store.db.open_turn(&session).await.unwrap().is_none());
    assert_eq!(store.sql("SELECT count(*) FROM dispatches"), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_canceled_session_did_not_fail() {
    let store = Store::new().await;
    let session = store.create().await;
    let claim = store.claim_dispatch(&session).await;
    store.db.request_cancel(&session).await.unwrap();
    let failed = FailureReason::ProvisioningFailed;
    let step = store.db.provisioning_failed(&claim, failed).await.unwrap();
    assert_eq!(step, Step::Done);
    let row = store.db.session(&session).await.unwrap().unwrap();
    assert_eq!((row.phase, row.failure_reason), (Phase::Canceled, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_canceled_session_is_not_dispatched() {
    let store = Store::new().await;
    let session = store.create().await;
    let claim = store.claim_dispatch(&session).await;
    store.db.request_cancel(&session).await.unwrap();
    assert_eq!(
        store
            .db
            .begin_generation(&claim, &new_sandbox())
            .await
            .unwrap(),
        BeginGeneration::Moved
    );
    let lease = store.lease(&session).await;
    let mut end = settle(
        TurnNo(1),
        bex_store::settle::Cause::Canceled,
        bex_store::settle::SandboxAfter::Stopping,
    );
    end.generation = Generation(0);
    store.db.settle(&lease, &end).await.unwrap();
    assert_eq!(
        store.db.session(&session).await.unwrap().unwrap().phase,
        Phase::Canceled
    );
    assert_eq!(store.sql("SELECT count(*) FROM dispatches"), "0");
}
