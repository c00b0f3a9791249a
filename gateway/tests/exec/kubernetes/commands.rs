//! A user's command in a pod.

use std::time::Duration;

use bex_proto::exec::{ExecCode, FrameKind};
use bex_testk8s::{ExecPlan, Options};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};

use super::world::{NS, STYLES, World, run};
use crate::house::{body, eventually};

#[tokio::test]
async fn exit_codes_0_3_127_and_signals_are_the_commands_own() {
    for style in STYLES {
        let world = World::of(style).await;
        for (script, code) in [
            ("true", 0),
            ("exit 3", 3),
            ("nosuchcommand", 127),
            ("kill -15 $$", 143),
            ("kill -9 $$", 137),
        ] {
            let exit = world.call(&run(script, None)).await.exit();
            assert_eq!((exit.exit_code, exit.hint), (code, None), "{script}");
        }
        let said = world
            .call(&run("cat; echo oops >&2; exit 3", Some("given")))
            .await;
        assert_eq!(
            (said.bytes(FrameKind::Stdout), said.bytes(FrameKind::Stderr)),
            (b"given".to_vec(), b"oops\n".to_vec())
        );
        world.nothing_is_left().await;
    }
}

#[tokio::test]
async fn the_clusters_success_does_not_hide_a_commands_failure() {
    let world = World::new(Options::default()).await;
    world.cluster.next_exec(ExecPlan::new().says_success());
    assert_eq!(world.call(&run("exit 3", None)).await.exit().exit_code, 3);
}

#[tokio::test]
async fn a_large_input_arrives_in_frames_that_servers_take() {
    let world = World::new(Options::default()).await;
    let input = "0123456789abcdef".repeat(60_000);
    let said = world.call(&run("wc -c", Some(&input))).await;
    assert_eq!(
        said.bytes(FrameKind::Stdout),
        format!("{}\n", input.len()).into_bytes()
    );
    let counts = world.exec().counts();
    assert_eq!(
        (counts.largest <= 32 * 1024, counts.fragments),
        (true, 0),
        "{counts:?}"
    );
}

#[tokio::test]
async fn a_vanished_caller_leaves_nothing_running() {
    for style in STYLES {
        let world = World::of(style).await;
        let operation = run("sleep 600 & echo up; sleep 600", None);
        let ticket = world.ticket(&operation, &world.uid, "sandbox");
        let request = Request::builder()
            .method(Method::POST)
            .uri("/v1/exec")
            .header("x-bex-exec-ticket", ticket)
            .body(Full::new(Bytes::from(body(&operation))))
            .expect("a request");
        let mut answer = world.house.begin(request).await;
        answer
            .body_mut()
            .frame()
            .await
            .expect("a frame")
            .expect("bytes");
        let exec = world.exec();
        assert!(!exec.processes().is_empty());
        drop(answer);
        world.nothing_is_left().await;
    }
}

#[tokio::test]
async fn a_process_whose_end_mark_is_missing_is_no_exit() {
    let world = World::new(Options::default()).await;
    // the in-sandbox side itself is killed: the cluster says 137, or even Success
    for plan in [
        ExecPlan::new(),
        ExecPlan::new().says_success(),
        ExecPlan::new().no_status(),
        ExecPlan::new().never_closed(),
    ] {
        world.cluster.next_exec(plan.clone());
        let before = tokio::time::Instant::now();
        let answer = world.call(&run("echo up; kill -9 $PPID", None)).await;
        let code = match answer.status.as_u16() {
            200 => answer.error().code,
            _ => ExecCode::ExecTransport,
        };
        assert_eq!(code, ExecCode::ExecTransport, "{plan:?}");
        assert!(
            before.elapsed() < Duration::from_secs(10),
            "within the bounds"
        );
        world.nothing_is_left().await;
    }
}

/// What a command leaves behind holds its output open; it goes with the command.
#[tokio::test]
async fn output_that_a_child_keeps_open_ends_with_its_command() {
    for style in STYLES {
        let world = World::of(style).await;
        let said = world.call(&run("sleep 600 & echo up; exit 3", None)).await;
        assert_eq!(said.exit().exit_code, 3, "{style:?}");
        assert_eq!(said.bytes(FrameKind::Stdout), b"up\n");
        world.nothing_is_left().await;
    }
}

#[tokio::test]
async fn a_kill_is_explained_by_the_pod() {
    let world = World::new(Options::default()).await;
    let command = run("sleep 1; kill -9 $$", None);
    let (answer, ()) = tokio::join!(world.call(&command), async {
        eventually(|| !world.cluster.execs().is_empty()).await;
        world.cluster.delete_pod(NS, &world.pod, Some(30));
    });
    let exit = answer.exit();
    assert_eq!(
        (exit.exit_code, exit.hint.as_deref()),
        (137, Some("pod_deleted"))
    );
}
