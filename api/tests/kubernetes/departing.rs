//! Pods that leave though nobody here removed them are heard of.

use std::time::Duration;

use bex_api::sandbox::{Lifecycle, Look, SandboxName, TurnLife};
use bex_testk8s::Cluster;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::support::{NS, cluster, lifecycle, name, plan};

const PATIENCE: Duration = Duration::from_secs(30);

struct Watch {
    heard: mpsc::Receiver<SandboxName>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl Watch {
    async fn start(cluster: &Cluster) -> Self {
        let (say, heard) = mpsc::channel(16);
        let cancel = CancellationToken::new();
        let task = tokio::spawn(lifecycle(cluster).await.departures(say, cancel.clone()));
        Self {
            heard,
            cancel,
            task,
        }
    }

    async fn next(&mut self) -> SandboxName {
        let next = tokio::time::timeout(PATIENCE, self.heard.recv()).await;
        next.expect("it is heard of").expect("the watch goes on")
    }

    async fn stop(mut self) {
        self.cancel.cancel();
        tokio::time::timeout(PATIENCE, self.task)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(self.heard.recv().await, None, "each is told once");
    }
}

/// Waits until so many watches of all pods were begun.
async fn watches(cluster: &Cluster, wanted: usize) {
    let begun = async {
        let of = |r: &bex_testk8s::RequestSeen| r.verb == "watch" && r.name.is_empty();
        while cluster.requests().iter().filter(|r| of(r)).count() < wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, begun)
        .await
        .expect("a watch is begun");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_is_heard_when_it_begins_and_when_it_has_ended() {
    let cluster = cluster().await;
    let mut watch = Watch::start(&cluster).await;
    watches(&cluster, 1).await;
    let (lifecycle, plan) = (lifecycle(&cluster).await, plan());
    let made = lifecycle.create(&plan).await.unwrap();
    let sandbox = name(&plan, Some(&made));
    assert!(cluster.delete_pod(NS, &made.pod, Some(3600)));
    assert_eq!(watch.next().await, sandbox, "while it can still be read");
    assert!(cluster.pod(NS, &made.pod).is_some());
    assert_eq!(lifecycle.look(&sandbox).await, Look::Running);
    assert_eq!(lifecycle.turn_life(&sandbox).await, TurnLife::TooShort);
    assert!(cluster.delete_pod(NS, &made.pod, Some(0)));
    assert_eq!(watch.next().await, sandbox);
    watch.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_heard_behind_every_gap_of_the_watch() {
    let cluster = cluster().await;
    let mut watch = Watch::start(&cluster).await;
    let lifecycle = lifecycle(&cluster).await;
    let (crashed, lost) = (plan(), plan());
    let made = [
        lifecycle.create(&crashed).await.unwrap(),
        lifecycle.create(&lost).await.unwrap(),
    ];
    watches(&cluster, 1).await;
    assert!(cluster.kill_container(NS, &made[0].pod));
    assert_eq!(watch.next().await, name(&crashed, Some(&made[0])));
    // the API server is away while the other one goes
    cluster.kill_api_server();
    assert!(cluster.delete_pod(NS, &made[1].pod, Some(0)));
    cluster.expire_watches();
    let back = async {
        // connections that were killed may hold the port for a moment
        while cluster.start_api_server().await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
    assert_eq!(watch.next().await, name(&lost, Some(&made[1])));
    watch.stop().await;
}
