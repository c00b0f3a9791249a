//! What happens to the pod while a process runs in it.

use std::time::Duration;

use bex_proto::exec::ExecCode;
use bex_testk8s::{ExecPlan, Options, Stall};
use serde_json::json;

use super::world::{NS, STYLES, World, read, run, world_pod};
use crate::house::eventually;

/// A command that would run for long, and what happens when it is running.
async fn interrupted(world: &World, act: impl AsyncFnOnce()) -> ExecCode {
    let command = run("echo up; sleep 600", None);
    let (answer, ()) = tokio::join!(world.call(&command), async {
        eventually(|| {
            world
                .cluster
                .execs()
                .last()
                .is_some_and(|e| e.counts().sent > 0)
        })
        .await;
        act().await;
    });
    let code = answer.error().code;
    world.nothing_is_left().await;
    code
}

#[tokio::test]
async fn deleted() {
    for style in STYLES {
        for grace in [0, 1] {
            let world = World::of(style).await;
            let code = interrupted(&world, async || {
                world.cluster.delete_pod(NS, &world.pod, Some(grace));
            })
            .await;
            assert_eq!(code, ExecCode::SandboxTerminated, "{style:?} {grace}");
        }
    }
}

#[tokio::test]
async fn its_container_restarted_in_place() {
    for style in STYLES {
        let world = World::of(style).await;
        let code = interrupted(&world, async || {
            world.cluster.restart_container(NS, &world.pod);
        })
        .await;
        // the pod lives on, and so does its log where it is on a volume
        assert_eq!(code, ExecCode::ExecTransport, "{style:?}");
    }
}

#[tokio::test]
async fn its_deadline_reached_while_the_status_lags() {
    let mut world = World::without_pod(Options {
        status_lag: Duration::from_millis(700),
        ..Options::default()
    })
    .await;
    let mut pod = world_pod(&world.session);
    pod["spec"]["activeDeadlineSeconds"] = json!(1);
    world = world.with_pod(pod).await;
    let code = interrupted(&world, async || {}).await;
    assert_eq!(
        code,
        ExecCode::SandboxTerminated,
        "read again until the status told"
    );
}

/// A name that changed hands between the look and the exec: the end mark is good, but whose is it?
#[tokio::test]
async fn another_life_in_its_place() {
    let world = World::new(Options::default()).await;
    world.log(4 << 20);
    world
        .cluster
        .next_exec(ExecPlan::new().stall_after(1 << 20, Stall::Answering));
    let read = read(0);
    let (answer, ()) = tokio::join!(world.call(&read), async {
        eventually(|| {
            world
                .cluster
                .execs()
                .last()
                .is_some_and(|e| e.counts().sent == 1 << 20)
        })
        .await;
        world.cluster.edit_pod(NS, &world.pod, |p| {
            p["status"]["containerStatuses"][0]["containerID"] = json!("containerd://other")
        });
        world.cluster.restart_runtime();
    });
    assert_eq!(answer.error().code, ExecCode::ExecTransport);

    let slow = run("sleep 1; echo done", None);
    let (answer, ()) = tokio::join!(world.call(&slow), async {
        eventually(|| world.cluster.execs().len() == 2).await;
        world.cluster.edit_pod(NS, &world.pod, |p| {
            p["status"]["containerStatuses"][0]["containerID"] = json!("containerd://third")
        });
    });
    assert_eq!(
        answer.error().code,
        ExecCode::ExecTransport,
        "an end mark of nobody knows whom"
    );
    world.nothing_is_left().await;
}
