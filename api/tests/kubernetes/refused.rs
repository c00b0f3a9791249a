//! Why a pod is not made, in words that people understand.

use std::collections::BTreeMap;
use std::time::Duration;

use bex_api::sandbox::{Again, CreateError, Lifecycle, Look, SecretKey, Secrets};
use bex_proto::session::FailureReason;
use bex_testk8s::{Image, Refusal, rights};
use serde_json::json;

use super::support::{API, IMAGE, NS, cluster, lifecycle, lifecycle_with, name, pace, plan};

fn why(error: CreateError) -> (FailureReason, Again) {
    match error {
        CreateError::Refused { reason, again, .. } => (reason, again),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_missing_is_told() {
    let cluster = cluster().await;
    let template = json!({"image": IMAGE});
    let lifecycle = lifecycle_with(&cluster, &["beta-sandbox"], template).await;
    let mut plan = plan();
    let expected = (FailureReason::NamespaceMissing, Again::Never);
    // nothing is asked of a namespace that is not configured
    assert_eq!(why(lifecycle.create(&plan).await.unwrap_err()), expected);
    assert!(cluster.requests().is_empty());
    cluster.grant("beta-sandbox", API, rights::API);
    plan.workspace = "beta".parse().unwrap();
    assert_eq!(why(lifecycle.create(&plan).await.unwrap_err()), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_used_up_is_told_and_tried_again() {
    let cluster = cluster().await;
    cluster.namespace_with_quota(NS, 1);
    let lifecycle = lifecycle(&cluster).await;
    let (first, second) = (plan(), plan());
    let made = lifecycle.create(&first).await.unwrap();
    assert_eq!(
        why(lifecycle.create(&second).await.unwrap_err()),
        (FailureReason::QuotaExceeded, Again::ForSomeAttempts)
    );
    lifecycle.delete(&name(&first, Some(&made))).await.unwrap();
    lifecycle.create(&second).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_and_rules_that_are_missing_are_told() {
    let cluster = cluster().await;
    let lifecycle = lifecycle(&cluster).await;
    cluster.refuse("create", "pods", Refusal::Forbidden);
    let plan = plan();
    assert_eq!(
        why(lifecycle.create(&plan).await.unwrap_err()),
        (FailureReason::SandboxRefused, Again::ForSomeAttempts)
    );
    cluster.refuse("create", "pods", Refusal::TooManyRequests);
    assert_eq!(
        why(lifecycle.create(&plan).await.unwrap_err()),
        (FailureReason::ProvisioningFailed, Again::ForSomeAttempts)
    );
    lifecycle.create(&plan).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_pulled_is_told() {
    let cluster = cluster().await;
    for (image, reason, template) in [
        ("a:1", "ImagePullBackOff", json!({"image": "a:1"})),
        ("b:1", "ErrImageNeverPull", json!({"image": "b:1"})),
        (
            "c:1",
            "ImagePullBackOff",
            json!({"image": IMAGE, "driverImage": "c:1"}),
        ),
    ] {
        cluster.image(image, Image::missing(reason));
        let lifecycle = lifecycle_with(&cluster, &[NS], template).await;
        let plan = plan();
        assert_eq!(
            why(lifecycle.create(&plan).await.unwrap_err()),
            (FailureReason::ImageUnavailable, Again::Never),
            "{reason}"
        );
        // what was made of it is still there, and is removed by its name
        assert_eq!(lifecycle.look(&name(&plan, None)).await, Look::Running);
        lifecycle.delete(&name(&plan, None)).await.unwrap();
        assert_eq!(lifecycle.look(&name(&plan, None)).await, Look::Gone);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_may_still_succeed_is_waited_for() {
    let cluster = cluster().await;
    cluster.image("late:1", Image::missing("ErrImagePull"));
    let mut patient = pace();
    (patient.slice, patient.hope) = (Duration::from_millis(300), Duration::from_secs(3600));
    let lifecycle = lifecycle_with(&cluster, &[NS], json!({"image": "late:1"})).await;
    let lifecycle = lifecycle.with_pace(patient);
    assert_eq!(
        why(lifecycle.create(&plan()).await.unwrap_err()),
        (FailureReason::ImageUnavailable, Again::WhileTimeLasts)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_missing_is_told() {
    let cluster = cluster().await;
    let lifecycle = lifecycle(&cluster).await;
    let mut plan = plan();
    let key = SecretKey {
        secret: "none".into(),
        key: "token".into(),
    };
    plan.secrets = Secrets::References(BTreeMap::from([("TOKEN".into(), key)]));
    assert_eq!(
        why(lifecycle.create(&plan).await.unwrap_err()),
        (FailureReason::SecretMissing, Again::Never)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_room_is_waited_for() {
    let cluster = cluster().await;
    let mut short = pace();
    short.slice = Duration::from_millis(300);
    let template = json!({"image": IMAGE, "nodeSelector": {"disk": "none"}});
    let lifecycle = lifecycle_with(&cluster, &[NS], template)
        .await
        .with_pace(short);
    let plan = plan();
    for _ in 0..2 {
        assert_eq!(
            why(lifecycle.create(&plan).await.unwrap_err()),
            (FailureReason::ClusterFull, Again::WhileTimeLasts)
        );
    }
    assert_eq!(cluster.pods(NS).len(), 1, "the same pod is asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_ends_at_once_is_no_sandbox() {
    let cluster = cluster().await;
    cluster.image(
        "bad:1",
        Image::pause().file("/opt/bex/bex-driver", "/bin/false"),
    );
    let lifecycle = lifecycle_with(&cluster, &[NS], json!({"image": "bad:1"})).await;
    let error = lifecycle.create(&plan()).await.unwrap_err();
    assert!(matches!(error, CreateError::Ended), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_while_it_is_made_is_no_sandbox() {
    let cluster = cluster().await;
    cluster.image("late:1", Image::missing("ErrImagePull"));
    let mut patient = pace();
    patient.hope = Duration::from_secs(3600);
    let lifecycle = lifecycle_with(&cluster, &[NS], json!({"image": "late:1"}))
        .await
        .with_pace(patient);
    let plan = plan();
    let pod = name(&plan, None).pod;
    let making = tokio::spawn({
        let plan = plan.clone();
        async move { lifecycle.create(&plan).await }
    });
    let is_watched = async {
        while !cluster.requests().iter().any(|r| r.verb == "watch") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), is_watched)
        .await
        .unwrap();
    assert!(cluster.delete_pod(NS, &pod, Some(0)));
    let error = making.await.unwrap().unwrap_err();
    assert!(matches!(error, CreateError::Ended), "{error:?}");
}
