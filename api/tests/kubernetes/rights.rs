//! The api's service account: each right is needed for something, and together they are enough.

use std::time::Duration;

use bex_api::sandbox::{Lifecycle, Look};
use bex_store::ClusterRights;
use bex_testk8s::{Cluster, rights};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::support::{API, NS, cluster, lifecycle, name, plan};

/// What the departures' watch needs from its start to its first word.
const HEARD: Duration = Duration::from_secs(20);

/// The account has all rights but `verb`.
fn without(cluster: &Cluster, verb: &str) {
    let [(resource, verbs)] = rights::API else {
        panic!("rights to one resource")
    };
    let left: Vec<&str> = verbs.iter().copied().filter(|v| *v != verb).collect();
    assert!(left.len() < verbs.len(), "{verb} is a right");
    cluster.grant(NS, API, &[(*resource, &left)]);
}

fn refusals(cluster: &Cluster) -> Vec<String> {
    let requests = cluster.requests();
    let refused = requests.iter().filter(|r| r.status == 403);
    refused
        .map(|r| format!("{} {}", r.verb, r.resource))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_rights_together_are_enough() {
    let cluster = cluster().await;
    let (lifecycle, plan) = (lifecycle(&cluster).await, plan());
    let (say, mut heard) = mpsc::channel(4);
    let cancel = CancellationToken::new();
    let watch = tokio::spawn(lifecycle.clone().departures(say, cancel.clone()));
    let made = lifecycle.create(&plan).await.unwrap();
    let sandbox = name(&plan, Some(&made));
    assert_eq!(lifecycle.look(&sandbox).await, Look::Running);
    assert_eq!(lifecycle.list().await.unwrap().len(), 1);
    assert!(cluster.kill_container(NS, &made.pod));
    let told = tokio::time::timeout(HEARD, heard.recv()).await.unwrap();
    assert_eq!(told, Some(sandbox.clone()));
    lifecycle.delete(&sandbox).await.unwrap();
    cancel.cancel();
    watch.await.unwrap();
    assert_eq!(refusals(&cluster), [""; 0]);
    assert!(cluster.requests().iter().all(|r| r.resource == "pods"));
    assert!(cluster.execs().is_empty(), "it never execs");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_create_no_pod_is_made() {
    let cluster = cluster().await;
    without(&cluster, "create");
    assert!(lifecycle(&cluster).await.create(&plan()).await.is_err());
    assert_eq!(refusals(&cluster), ["create pods"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_get_nothing_is_known_and_nothing_is_gone() {
    let cluster = cluster().await;
    let (lifecycle, plan) = (lifecycle(&cluster).await, plan());
    let made = lifecycle.create(&plan).await.unwrap();
    let sandbox = name(&plan, Some(&made));
    without(&cluster, "get");
    assert_eq!(lifecycle.look(&sandbox).await, Look::Unknown);
    assert!(lifecycle.delete(&sandbox).await.is_err());
    assert!(cluster.pod(NS, &made.pod).is_some());
    assert_eq!(refusals(&cluster), ["get pods"; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_list_there_is_no_sweep() {
    let cluster = cluster().await;
    without(&cluster, "list");
    assert!(lifecycle(&cluster).await.list().await.is_err());
    assert_eq!(refusals(&cluster), ["list pods"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_delete_the_pod_stays_and_is_not_called_gone() {
    let cluster = cluster().await;
    let (lifecycle, plan) = (lifecycle(&cluster).await, plan());
    let made = lifecycle.create(&plan).await.unwrap();
    without(&cluster, "delete");
    assert!(lifecycle.delete(&name(&plan, Some(&made))).await.is_err());
    assert!(cluster.pod(NS, &made.pod).is_some());
    assert_eq!(refusals(&cluster), ["delete pods"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_missing_is_named_before_it_is_needed() {
    let cluster = cluster().await;
    let lifecycle = lifecycle(&cluster).await;
    let asked = async || lifecycle.rights().ask(ClusterRights::Unasked).await;
    assert_eq!(asked().await, ClusterRights::Given);
    for verb in ["create", "get", "list", "watch", "delete"] {
        without(&cluster, verb);
        let expected = ClusterRights::Lacking(vec![format!("{verb} pods")]);
        assert_eq!(asked().await, expected);
    }
    cluster.kill_api_server();
    assert_eq!(asked().await, ClusterRights::Unknown, "nobody can say");
}

/// It is only slower: what changes is looked at instead.
#[tokio::test(flavor = "multi_thread")]
async fn without_watch_everything_is_found_by_looking() {
    let cluster = cluster().await;
    without(&cluster, "watch");
    let (lifecycle, plan) = (lifecycle(&cluster).await, plan());
    let made = lifecycle.create(&plan).await.unwrap();
    lifecycle.delete(&name(&plan, Some(&made))).await.unwrap();
    assert!(cluster.pod(NS, &made.pod).is_none());
    let refused = refusals(&cluster);
    assert!(
        !refused.is_empty() && refused.iter().all(|r| r == "watch pods"),
        "{refused:?}"
    );
}
