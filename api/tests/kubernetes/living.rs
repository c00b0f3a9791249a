//! Made, found again, looked at, removed.

use std::collections::BTreeMap;
use std::time::Duration;

use bex_api::sandbox::{
    CreateError, DeleteError, Deleted, Lifecycle, Look, SecretKey, Secrets, TurnLife,
};
use bex_proto::TurnNo;
use bex_proto::launch::{LegacyTurn, POD_DRIVER_BIN, pod_of};
use bex_testk8s::{Image, Refusal};
use serde_json::json;

use super::support::{IMAGE, NS, cluster, driver_bin, lifecycle, lifecycle_with, name, pace, plan};

/// The image has agents and no driver; an init container puts ours there, which speaks either form.
#[tokio::test(flavor = "multi_thread")]
async fn an_init_container_brings_the_driver() {
    let cluster = cluster().await;
    cluster.image("agents:1", Image::pause());
    cluster.image(
        "driver:1",
        Image::pause().file(POD_DRIVER_BIN, driver_bin()),
    );
    let template = json!({"image": "agents:1", "driverImage": "driver:1"});
    let lifecycle = lifecycle_with(&cluster, &[NS], template).await;
    let old = LegacyTurn {
        turn: TurnNo(1),
        prompt: "said by an older one".into(),
    };
    for legacy in [None, Some(old)] {
        let plan = bex_api::sandbox::SandboxPlan { legacy, ..plan() };
        let made = lifecycle.create(&plan).await.unwrap();
        let pod = cluster.pod(NS, &made.pod).unwrap();
        let init = &pod["status"]["initContainerStatuses"][0];
        assert_eq!(init["state"]["terminated"]["exitCode"], 0, "{init}");
        let dir = cluster.pod_dir(&pod).join("volumes");
        assert!(dir.join("bin/bex-driver").is_file());
        if plan.legacy.is_some() {
            // one log and no generation
            let log = dir.join("driver/session.jsonl");
            cluster
                .eventually(NS, &made.pod, |_| {
                    std::fs::read_to_string(&log).is_ok_and(|l| l.contains("said by an older one"))
                })
                .await;
        }
        lifecycle.delete(&name(&plan, Some(&made))).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_made_once_found_again_and_removed() {
    let cluster = cluster().await;
    let (lifecycle, plan) = (lifecycle(&cluster).await, plan());
    let made = lifecycle.create(&plan).await.unwrap();
    assert_eq!(
        (&*made.namespace, &*made.pod),
        (NS, &*pod_of(&plan.session, plan.generation))
    );
    let pod = cluster.pod(NS, &made.pod).unwrap();
    assert_eq!(pod["metadata"]["uid"], made.pod_uid);
    assert_eq!(lifecycle.create(&plan).await.unwrap(), made, "its own pod");
    assert_eq!(cluster.pods(NS).len(), 1);

    let sandbox = name(&plan, Some(&made));
    assert_eq!(lifecycle.look(&sandbox).await, Look::Running);
    assert_eq!(
        lifecycle.list().await.unwrap(),
        std::slice::from_ref(&sandbox)
    );
    assert_eq!(lifecycle.turn_life(&sandbox).await, TurnLife::Enough);
    cluster.edit_pod(NS, &made.pod, |pod| {
        pod["spec"]["activeDeadlineSeconds"] = json!(86_400);
    });
    assert_eq!(lifecycle.turn_life(&sandbox).await, TurnLife::TooShort);

    assert_eq!(lifecycle.delete(&sandbox).await.unwrap(), Deleted);
    assert!(cluster.pod(NS, &made.pod).is_none(), "seen to be gone");
    assert_eq!(lifecycle.look(&sandbox).await, Look::Gone);
    assert_eq!(
        lifecycle.delete(&sandbox).await.unwrap(),
        Deleted,
        "once more"
    );
    // whatever took its name between our look and our word, it is not that one that goes
    let deletions = cluster.deletions();
    let uids: Vec<_> = deletions.iter().map(|d| d.uid.as_deref()).collect();
    assert_eq!(uids, [Some(&*made.pod_uid)]);
    let requests = cluster.requests();
    assert!(
        requests
            .iter()
            .all(|r| r.resource == "pods" && r.namespace == NS),
        "{requests:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_looked_at_by_one_list() {
    let cluster = cluster().await;
    let lifecycle = lifecycle(&cluster).await;
    let mut all = Vec::new();
    for _ in 0..4 {
        let plan = plan();
        let made = lifecycle.create(&plan).await.unwrap();
        all.push(name(&plan, Some(&made)));
    }
    assert!(cluster.kill_container(NS, &all[1].pod));
    let failed = |pod: &serde_json::Value| pod["status"]["phase"] == "Failed";
    cluster.eventually(NS, &all[1].pod, failed).await;
    assert!(cluster.delete_pod(NS, &all[2].pod, Some(0)));
    all[3].pod_uid = Some("an-earlier-one".into());
    let mut elsewhere = all[0].clone();
    elsewhere.namespace = "nobodys".into();
    all.push(elsewhere);
    let before = cluster.requests().len();
    assert_eq!(
        lifecycle.look_at_all(&all).await,
        [
            Look::Running,
            Look::Gone,
            Look::Gone,
            Look::Gone,
            Look::Unknown
        ]
    );
    assert_eq!(
        cluster.requests().len(),
        before + 2,
        "one for each namespace"
    );
    cluster.refuse("list", "pods", Refusal::Unavailable);
    assert_eq!(lifecycle.look_at_all(&all[..2]).await, [Look::Unknown; 2]);
}

/// A list is bounded: a pod behind its end is not gone.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_behind_a_lists_end_is_not_gone() {
    const LISTED: usize = 10_000;
    let cluster = cluster().await;
    let (lifecycle, plan) = (lifecycle(&cluster).await, plan());
    let made = lifecycle.create(&plan).await.unwrap();
    let sandbox = name(&plan, Some(&made));
    let mut pod = cluster.pod(NS, &made.pod).unwrap();
    pod["metadata"] = json!({"labels": pod["metadata"]["labels"]});
    pod["spec"] = json!({});
    // by name before the sandbox's
    for n in 0..LISTED {
        cluster.put_pod(NS, &format!("a{n:05}"), pod.clone());
    }
    let all = [sandbox];
    assert_eq!(lifecycle.look_at_all(&all).await, [Look::Unknown]);
    assert!(cluster.delete_pod(NS, "a00000", Some(0)));
    assert_eq!(lifecycle.look_at_all(&all).await, [Look::Running]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_another_uid_is_another_ones() {
    let cluster = cluster().await;
    let (lifecycle, plan) = (lifecycle(&cluster).await, plan());
    let made = lifecycle.create(&plan).await.unwrap();
    let mut before = name(&plan, Some(&made));
    before.pod_uid = Some("an-earlier-one".into());
    assert_eq!(lifecycle.look(&before).await, Look::Gone);
    assert_eq!(lifecycle.delete(&before).await.unwrap(), Deleted);
    assert!(cluster.pod(NS, &made.pod).is_some(), "not that one");
    // while it is being made nobody knows its UID
    assert_eq!(lifecycle.look(&name(&plan, None)).await, Look::Running);
    assert_eq!(lifecycle.delete(&name(&plan, None)).await.unwrap(), Deleted);
    assert!(cluster.pod(NS, &made.pod).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_under_the_name_is_neither_taken_nor_removed() {
    let cluster = cluster().await;
    let (lifecycle, plan) = (lifecycle(&cluster).await, plan());
    let pod = pod_of(&plan.session, plan.generation);
    cluster.create_pod(NS, &pod, IMAGE).unwrap();
    let error = lifecycle.create(&plan).await.unwrap_err();
    assert!(matches!(error, CreateError::Impossible(_)), "{error:?}");
    assert_eq!(lifecycle.list().await.unwrap(), []);
    assert_eq!(lifecycle.delete(&name(&plan, None)).await.unwrap(), Deleted);
    assert!(cluster.pod(NS, &pod).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_seen_is_not_gone() {
    let cluster = cluster().await;
    let (lifecycle, plan) = (lifecycle(&cluster).await, plan());
    let made = lifecycle.create(&plan).await.unwrap();
    let sandbox = name(&plan, Some(&made));
    for refusal in [
        Refusal::Unavailable,
        Refusal::Forbidden,
        Refusal::Unauthorized,
        Refusal::TooManyRequests,
        Refusal::EmptyForbidden,
    ] {
        cluster.refuse("get", "pods", refusal);
        assert_eq!(lifecycle.look(&sandbox).await, Look::Unknown, "{refusal:?}");
    }
    cluster.refuse("delete", "pods", Refusal::Unavailable);
    let error = lifecycle.delete(&sandbox).await.unwrap_err();
    assert!(matches!(error, DeleteError::Failed { .. }), "{error:?}");
    cluster.kill_api_server();
    assert_eq!(lifecycle.look(&sandbox).await, Look::Unknown);
    assert!(lifecycle.delete(&sandbox).await.is_err());
    assert!(lifecycle.list().await.is_err());
    cluster.start_api_server().await.unwrap();
    assert_eq!(lifecycle.look(&sandbox).await, Look::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_seen_however_it_came() {
    let cluster = cluster().await;
    let lifecycle = lifecycle(&cluster).await;
    for end in ["finished", "crashed", "deleted"] {
        let plan = plan();
        let made = lifecycle.create(&plan).await.unwrap();
        match end {
            "finished" => assert!(cluster.finish(NS, &made.pod, 0)),
            "crashed" => assert!(cluster.kill_container(NS, &made.pod)),
            _ => assert!(cluster.delete_pod(NS, &made.pod, Some(0))),
        }
        if end != "deleted" {
            let ended = |pod: &serde_json::Value| {
                pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed"
            };
            cluster.eventually(NS, &made.pod, ended).await;
        }
        let sandbox = name(&plan, Some(&made));
        assert_eq!(lifecycle.look(&sandbox).await, Look::Gone, "{end}");
        assert_eq!(lifecycle.delete(&sandbox).await.unwrap(), Deleted, "{end}");
        assert!(cluster.pod(NS, &made.pod).is_none(), "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_stays_is_not_called_gone() {
    let cluster = cluster().await;
    let (patient, plan) = (lifecycle(&cluster).await, plan());
    let mut short = pace();
    // less than the grace, in which the driver can still be read
    short.gone = Duration::from_secs(1);
    let hasty = patient.clone().with_pace(short);
    let made = patient.create(&plan).await.unwrap();
    let sandbox = name(&plan, Some(&made));
    let error = hasty.delete(&sandbox).await.unwrap_err();
    assert!(matches!(error, DeleteError::StillRunning), "{error:?}");
    assert_eq!(patient.look(&sandbox).await, Look::Running);
    assert_eq!(patient.delete(&sandbox).await.unwrap(), Deleted);
    assert!(cluster.pod(NS, &made.pod).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_gets_the_clusters_secrets_and_its_pod_does_not_show_them() {
    let cluster = cluster().await;
    cluster.apply(
        &json!({"kind": "Secret", "metadata": {"name": "git", "namespace": NS},
        "stringData": {"token": "hunter2hunter2"}}),
    );
    let lifecycle = lifecycle_with(
        &cluster,
        &[NS],
        json!({"image": IMAGE, "labels": {"team": "x"}}),
    )
    .await;
    let mut plan = plan();
    let key = SecretKey {
        secret: "git".into(),
        key: "token".into(),
    };
    plan.secrets = Secrets::References(BTreeMap::from([("TOKEN".into(), key)]));
    let made = lifecycle.create(&plan).await.unwrap();
    let pod = cluster.pod(NS, &made.pod).unwrap();
    assert!(!pod.to_string().contains("hunter2"));
    assert_eq!(pod["metadata"]["labels"]["team"], "x");

    plan.secrets = Secrets::Values(BTreeMap::from([("TOKEN".into(), "hunter2".into())]));
    plan.generation.0 += 1;
    let error = lifecycle.create(&plan).await.unwrap_err();
    assert!(matches!(error, CreateError::Impossible(_)), "{error:?}");
}
