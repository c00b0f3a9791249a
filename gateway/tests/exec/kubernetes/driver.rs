//! The driver in a pod, through the pod's address.

use std::time::Duration;

use bex_proto::exec::{FrameKind, Operation};
use bex_proto::launch::{CONTAINER, POD_DRIVER_BIN, POD_DRIVER_DIR, pod_of};
use bex_proto::{SessionId, TurnNo};
use bex_testk8s::{Cluster, Image, Options};
use serde_json::{Value, json};

use super::world::{IMAGE, NS, World, launch, read, run, uid};
use crate::house::{GENERATION, eventually};

/// A pod with a real driver, launched by an annotation.
fn pod(session: &SessionId) -> Value {
    let launch = serde_json::to_string(&launch(session)).expect("plain data");
    json!({"metadata": {"name": pod_of(session, GENERATION), "annotations": {"bex/launch": launch}},
        "spec": {"restartPolicy": "Never",
            "volumes": [{"name": "driver", "emptyDir": {}}, {"name": "launch", "downwardAPI": {"items":
                [{"path": "launch.json", "fieldRef": {"fieldPath": "metadata.annotations['bex/launch']"}}]}}],
            "containers": [{"name": CONTAINER, "image": IMAGE,
                "command": [POD_DRIVER_BIN, "serve", "--launch", "/etc/bex/launch.json"],
                "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8787}},
                "volumeMounts": [{"name": "driver", "mountPath": POD_DRIVER_DIR}, {"name": "launch", "mountPath": "/etc/bex"}]}]}})
}

fn turn() -> Operation {
    Operation::Turn {
        turn: TurnNo(1),
        priming: None,
    }
}

#[tokio::test]
async fn a_turn_is_delivered_through_the_pods_address_and_read_back_by_exec() {
    let world = World::without_pod(Options::default()).await;
    let pod = pod(&world.session);
    let world = world.with_pod(pod).await;
    world
        .house
        .records
        .prompts
        .lock()
        .expect("no panic")
        .insert(1, "say this again".into());
    assert_eq!(world.call(&turn()).await.exit().exit_code, 0);
    let said =
        || std::fs::read_to_string(world.driver_dir().join("session-1.jsonl")).unwrap_or_default();
    eventually(|| said().contains("\"turn-end\"")).await;
    let (bytes, failures) = world.harvest().await;
    assert_eq!(
        (String::from_utf8_lossy(&bytes).into_owned(), failures.len()),
        (said(), 0)
    );
    assert!(said().contains("say this again"));
    let pwd = world.call(&run("echo in the pod", None)).await;
    assert_eq!(pwd.bytes(FrameKind::Stdout), b"in the pod\n");
}

/// The address of a pod that ended belongs to another tenant's pod by now.
#[tokio::test]
async fn a_reused_address_is_neither_dialled_nor_believed() {
    let world = World::without_pod(Options::default()).await;
    let ours = pod(&world.session);
    let world = world.with_pod(ours).await;
    let alive = world.cluster.ready(NS, &world.pod).await;
    let ip = alive["status"]["podIP"].clone();
    world.cluster.finish(NS, &world.pod, 0);
    world
        .cluster
        .eventually(NS, &world.pod, |p| p["status"]["phase"] == "Succeeded")
        .await;
    let stranger = SessionId::random();
    let mut theirs = pod(&stranger);
    theirs["metadata"]["annotations"][Cluster::IP_ANNOTATION] = ip.clone();
    world.cluster.create(NS, theirs).expect("made");
    let theirs = world
        .cluster
        .ready(NS, &pod_of(&stranger, GENERATION))
        .await;
    assert_eq!(theirs["status"]["podIP"], ip, "two pods with one address");
    world
        .house
        .records
        .prompts
        .lock()
        .expect("no panic")
        .insert(1, "a secret of ours".into());
    assert_eq!(
        world.call(&turn()).await.problem(),
        (404, "sandbox_terminated".into())
    );

    // and should the status lie, the stranger cannot prove to be ours
    world
        .cluster
        .edit_pod(NS, &world.pod, |p| p["status"] = alive["status"].clone());
    assert_eq!(
        world.call(&turn()).await.problem(),
        (502, "exec_transport".into())
    );
    let told = world
        .cluster
        .pod_dir(&theirs)
        .join("volumes/driver/session-1.jsonl");
    assert!(!told.exists(), "it was told nothing");
    assert_ne!(uid(&theirs), world.uid);
}

#[tokio::test]
async fn only_a_ready_pod_in_the_configured_ranges_is_dialled() {
    let world = World::without_pod(Options::default()).await;
    world.cluster.image(
        IMAGE,
        Image::pause().file(POD_DRIVER_BIN, crate::real::driver_bin()),
    );
    let mut quiet = pod(&world.session);
    quiet["spec"]["containers"][0]["command"] = Value::Null;
    quiet["spec"]["containers"][0]["readinessProbe"] = Value::Null;
    let world = world.with_pod(quiet).await;
    world
        .house
        .records
        .prompts
        .lock()
        .expect("no panic")
        .insert(1, "p".into());
    let listener = {
        let pod = world.cluster.pod(NS, &world.pod).expect("the pod");
        let ip = pod["status"]["podIP"]
            .as_str()
            .expect("an address")
            .to_owned();
        tokio::net::TcpListener::bind((ip, 8787))
            .await
            .expect("the pod's port")
    };
    for edit in [
        |p: &mut Value| p["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]),
        |p: &mut Value| {
            p["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
            p["status"]["podIP"] = json!("127.0.0.1");
        },
        |p: &mut Value| p["status"]["podIP"] = json!("169.254.169.254"),
    ] {
        world.cluster.edit_pod(NS, &world.pod, edit);
        assert_eq!(
            world.call(&turn()).await.problem(),
            (502, "exec_transport".into())
        );
    }
    let dialled = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(dialled.is_err(), "nobody came");
    assert_eq!(
        world.call(&read(0)).await.exit().exit_code,
        0,
        "exec needs no address"
    );
}
