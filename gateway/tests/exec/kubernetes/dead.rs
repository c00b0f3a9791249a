//! Pods that cannot be entered: each says so by its status, whatever address it still shows.

use std::sync::Arc;

use bex_gateway::sandbox::kubernetes::KubernetesTargets;
use bex_proto::exec::Operation;
use bex_proto::{Generation, TurnNo};
use bex_testk8s::{ExecPlan, Image, Options, Refusal};
use serde_json::{Value, json};

use super::world::{IMAGE, NS, PACE, STYLES, World, config, read, run, world_pod};
use crate::house::{GENERATION, House};

fn gone() -> (u16, String) {
    (404, "sandbox_terminated".into())
}

fn transport() -> (u16, String) {
    (502, "exec_transport".into())
}

fn stop() -> Operation {
    Operation::Stop { turn: TurnNo(1) }
}

#[tokio::test]
async fn a_missing_pod() {
    let world = World::new(Options::default()).await;
    // gone between the look and the exec, which nobody can tell from a server's mistake
    world
        .cluster
        .next_exec(ExecPlan::new().refuse(Refusal::NotFound));
    assert_eq!(world.call(&read(0)).await.problem(), transport());
    world.cluster.delete_pod(NS, &world.pod, Some(0));
    for operation in [read(0), run("true", None), stop()] {
        assert_eq!(world.call(&operation).await.problem(), gone());
    }
    assert!(world.cluster.execs().is_empty());
}

/// A proxy before the API server says 404 too, and so does the server of a path that it does not serve.
#[tokio::test]
async fn a_404_that_is_not_the_api_servers_word_about_the_pod() {
    let mut world = World::new(Options::default()).await;
    let config = config(&world.cluster);
    let path = config.kubeconfig.as_deref().expect("a file");
    let text = std::fs::read_to_string(path).expect("a file");
    let mut file: Value = serde_json::from_str(&text).expect("a kubeconfig");
    file["clusters"][0]["cluster"]["server"] = json!(format!("{}/elsewhere", world.cluster.url()));
    std::fs::write(path, file.to_string()).expect("a file");
    let targets = KubernetesTargets::new(config).await.expect("a client");
    world.house = House::over(Arc::new(targets.with_pace(PACE)), world.session.clone()).await;
    for operation in [read(0), run("true", None), stop()] {
        assert_eq!(world.call(&operation).await.problem(), transport());
    }
}

#[tokio::test]
async fn another_pod_of_its_name() {
    let world = World::new(Options::default()).await;
    let other = world.call_as(&read(0), "another-uid", "sandbox").await;
    assert_eq!(other.problem(), gone());
    world.cluster.delete_pod(NS, &world.pod, Some(0));
    let again = world
        .cluster
        .create(NS, world_pod(&world.session))
        .expect("made");
    world.cluster.ready(NS, &world.pod).await;
    assert_eq!(world.call(&read(0)).await.problem(), gone());
    assert!(world.cluster.execs().is_empty(), "not even tried");
    let now = again["metadata"]["uid"].as_str().expect("a uid");
    let right = world.call_as(&read(0), now, "sandbox").await;
    assert_eq!(right.exit().exit_code, 0);
}

#[tokio::test]
async fn a_wrong_container() {
    let world = World::new(Options::default()).await;
    for operation in [read(0), run("true", None)] {
        let answer = world.call_as(&operation, &world.uid, "nosuch").await;
        assert_eq!(answer.problem(), transport());
    }
    assert!(world.cluster.execs().is_empty(), "not even tried");
    // the server's own word
    world
        .cluster
        .next_exec(ExecPlan::new().refuse(Refusal::WrongContainer));
    assert_eq!(world.call(&read(0)).await.problem(), transport());
}

#[tokio::test]
async fn names_that_the_api_does_not_give_are_not_asked_for() {
    let world = World::new(Options::default()).await;
    let operation = read(0);
    for change in [
        |claims: &mut bex_proto::ticket::ExecClaims| claims.ns = "demo/../kube-system".into(),
        |claims: &mut bex_proto::ticket::ExecClaims| claims.pod = "kube-proxy".into(),
        |claims: &mut bex_proto::ticket::ExecClaims| {
            claims.generation = Generation(GENERATION.0 + 1)
        },
    ] {
        let mut claims = world.house.claims(&operation);
        claims.pod_uid = world.uid.clone();
        change(&mut claims);
        let answer = world
            .house
            .ask(
                Some(&claims.sign(&world.house.ring)),
                crate::house::body(&operation),
            )
            .await;
        assert_eq!(answer.problem(), gone());
    }
    assert!(world.cluster.requests().is_empty());
}

#[tokio::test]
async fn pending_is_not_gone() {
    let elsewhere = |pod: &mut Value| pod["spec"]["nodeSelector"] = json!({"disk": "none"});
    let no_image = |pod: &mut Value| pod["spec"]["containers"][0]["image"] = json!("missing");
    let slow_init =
        |pod: &mut Value| pod["spec"]["initContainers"] = json!([{"name": "init", "image": IMAGE}]);
    for (what, change) in [
        ("no node", &elsewhere as &dyn Fn(&mut Value)),
        ("no image", &no_image),
        ("init", &slow_init),
    ] {
        let mut world = World::without_pod(Options::default()).await;
        world
            .cluster
            .image("missing", Image::missing("ErrImagePull"));
        let mut pod = world_pod(&world.session);
        change(&mut pod);
        let made = world.cluster.create(NS, pod).expect("made");
        world.uid = super::world::uid(&made);
        world
            .cluster
            .eventually(NS, &world.pod, |p| p["status"]["conditions"].is_array())
            .await;
        assert_eq!(world.call(&read(0)).await.problem(), transport(), "{what}");
        assert_eq!(world.call(&stop()).await.problem(), transport(), "{what}");
        world.cluster.delete_pod(NS, &world.pod, Some(0));
        assert_eq!(world.call(&read(0)).await.problem(), gone(), "{what}");
    }
}

/// A pod that has ended in some way shows its address still; nothing of it is tried.
async fn ended(end: impl FnOnce(&World) -> bool) {
    let world = World::new(Options::default()).await;
    assert!(end(&world), "the node has it");
    let state = world
        .cluster
        .eventually(NS, &world.pod, |p| {
            p["status"]["containerStatuses"][0]["state"]["running"].is_null()
        })
        .await;
    assert!(state["status"]["podIP"].is_string());
    for operation in [read(0), run("true", None), stop()] {
        assert_eq!(world.call(&operation).await.problem(), gone());
    }
    assert!(world.cluster.execs().is_empty(), "not even tried");
}

#[tokio::test]
async fn succeeded() {
    ended(|world| world.cluster.finish(NS, &world.pod, 0)).await;
}

#[tokio::test]
async fn failed() {
    ended(|world| world.cluster.finish(NS, &world.pod, 3)).await;
}

#[tokio::test]
async fn crash_loop_back_off() {
    ended(|world| world.cluster.crash_loop(NS, &world.pod)).await;
}

/// Between the look and the exec the container may die, and its death is told in two ways.
#[tokio::test]
async fn one_death_has_one_answer_however_it_is_told() {
    for style in STYLES {
        // the status still says that it runs: nobody can say that it is gone
        let world = World::of(style).await;
        let alive = world.cluster.pod(NS, &world.pod).expect("the pod")["status"].clone();
        world.cluster.finish(NS, &world.pod, 3);
        world
            .cluster
            .eventually(NS, &world.pod, |p| p["status"]["phase"] == "Failed")
            .await;
        world
            .cluster
            .edit_pod(NS, &world.pod, |p| p["status"] = alive);
        assert_eq!(
            world.call(&read(0)).await.problem(),
            transport(),
            "{style:?}"
        );
        let late = world.cluster.execs().len();
        assert_eq!(
            late,
            usize::from(style == bex_testk8s::Style::V1_34),
            "a 500, or a 101 and then the error: {style:?}"
        );
        world.nothing_is_left().await;
    }
}

#[tokio::test]
async fn a_pod_that_is_being_deleted_can_be_read_and_nothing_else() {
    let world = World::new(Options::default()).await;
    let log = world.log(100_000);
    world.cluster.delete_pod(NS, &world.pod, Some(30));
    assert_eq!(world.call(&stop()).await.problem(), gone());
    // its endpoints are taken away while it still runs
    world.cluster.edit_pod(NS, &world.pod, |p| {
        p["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
        p["status"]["containerStatuses"][0]["ready"] = json!(false);
    });
    let (bytes, failures) = world.harvest().await;
    assert_eq!((bytes == log, failures.len()), (true, 0));
    let turn = Operation::Turn {
        turn: TurnNo(1),
        priming: None,
    };
    for operation in [turn, stop(), run("true", None)] {
        assert_eq!(
            world.call(&operation).await.problem(),
            gone(),
            "{operation:?}"
        );
    }
    assert_eq!(world.cluster.execs().len(), 1, "the harvest's");
    world.nothing_is_left().await;
}
