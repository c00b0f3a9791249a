//! A log of 16 MiB through one WebSocket, whole or not at all.

use std::time::Duration;

use bex_proto::exec::ExecCode;
use bex_testk8s::{Cut, ExecPlan, Options, Style, Transport};

use super::world::{World, read};
use crate::house::eventually;

const MIB: usize = 1 << 20;
/// A whole window, cut at its last line.
const WHOLE: usize = 16 * MIB - 4096;

async fn world(style: Style) -> (World, Vec<u8>) {
    let world = World::new(Options {
        style,
        ..Options::default()
    })
    .await;
    let log = world.log(WHOLE);
    (world, log)
}

#[tokio::test]
async fn every_release_gives_the_whole_log() {
    for (style, protocol) in [
        (Style::V1_36, "v5.channel.k8s.io"),
        (Style::V1_34, "v5.channel.k8s.io"),
        (Style::V1_29, "v4.channel.k8s.io"),
    ] {
        let (world, log) = world(style).await;
        let (bytes, failures) = world.harvest().await;
        assert_eq!((bytes == log, failures.len()), (true, 0), "{style:?}");
        let exec = world.exec();
        assert_eq!(exec.protocol, protocol);
        assert_eq!(
            exec.argv,
            [
                "/opt/bex/bex-driver",
                "exec",
                "--dir",
                "/var/lib/bex/driver"
            ],
            "what is asked is not in argv"
        );
        let counts = exec.counts();
        assert_eq!((counts.fragments, counts.half_closed), (0, false));
        assert!(counts.stdin > 0 && counts.largest <= 32 * 1024);
        eventually(|| exec.processes().is_empty()).await;
        assert_eq!(exec.counts().exit, Some(0));
    }
}

#[tokio::test]
async fn over_tls_too() {
    let world = World::new(Options {
        transport: Transport::Tls,
        ..Options::default()
    })
    .await;
    let log = world.log(MIB);
    assert!(world.cluster.url().starts_with("https"));
    let (bytes, failures) = world.harvest().await;
    assert_eq!((bytes == log, failures.len()), (true, 0));
}

#[tokio::test]
async fn frames_of_any_size_with_standard_error_between() {
    let (world, log) = world(Style::V1_36).await;
    let plans = [
        ExecPlan::new()
            .sizes(&[1, 32_767, 32_768, 32_769])
            .noise(100),
        ExecPlan::new().sizes(&[32_769]).noise(1),
        ExecPlan::new().fragments(),
    ];
    for plan in plans {
        world.cluster.next_exec(plan.clone());
        let (bytes, failures) = world.harvest().await;
        assert_eq!((bytes == log, failures.len()), (true, 0), "{plan:?}");
    }
    // a byte a frame, for less of it
    let small = world.log(50_000);
    world
        .cluster
        .next_exec(ExecPlan::new().sizes(&[1]).noise(1));
    let (bytes, failures) = world.harvest().await;
    assert_eq!((bytes == small, failures.len()), (true, 0));
}

#[tokio::test]
async fn success_over_half_of_the_bytes_is_no_success() {
    for (style, how) in [
        (Style::V1_36, Cut::FalseSuccess),
        (Style::V1_34, Cut::FalseSuccess),
        (Style::V1_29, Cut::Eof),
        (Style::V1_36, Cut::Close),
        (Style::V1_36, Cut::Eof),
    ] {
        let (world, log) = world(style).await;
        world
            .cluster
            .next_exec(ExecPlan::new().cut_after(9 * MIB as u64, how));
        let (bytes, failures) = world.harvest().await;
        assert_eq!(failures, [ExecCode::ExecTransport], "{style:?} {how:?}");
        assert!(bytes == log, "continued from its offset");
        let sent = world.cluster.execs()[1].counts().sent;
        assert!(
            sent < 8 * MIB as u64,
            "only the rest was read again: {sent}"
        );
        for exec in world.cluster.execs() {
            eventually(|| exec.processes().is_empty()).await;
        }
    }
}

#[tokio::test]
async fn a_status_is_neither_needed_nor_waited_for() {
    let (world, log) = world(Style::V1_36).await;
    for plan in [
        ExecPlan::new().status_before(5 * MIB),
        ExecPlan::new().status_before(1),
        ExecPlan::new().no_status(),
        ExecPlan::new().never_closed(),
    ] {
        world.cluster.next_exec(plan.clone());
        let (bytes, failures) = world.harvest().await;
        assert_eq!((bytes == log, failures.len()), (true, 0), "{plan:?}");
    }
}

#[tokio::test]
async fn the_api_server_and_the_runtime_may_be_restarted_meanwhile() {
    for what in ["api server", "runtime", "kubelet"] {
        let (world, log) = world(Style::V1_34).await;
        // the exec stands still until the disaster comes
        world
            .cluster
            .next_exec(ExecPlan::new().stall_after(3 * MIB as u64, bex_testk8s::Stall::Answering));
        let disaster = async {
            eventually(|| {
                world
                    .cluster
                    .execs()
                    .first()
                    .is_some_and(|e| e.counts().sent == 3 * MIB as u64)
            })
            .await;
            match what {
                "api server" => {
                    world
                        .cluster
                        .restart_api_server(Duration::from_millis(50))
                        .await
                }
                "runtime" => world.cluster.restart_runtime(),
                _ => world.cluster.restart_kubelet(),
            }
        };
        let ((bytes, failures), ()) = tokio::join!(world.harvest(), disaster);
        assert!(bytes == log, "{what}");
        assert!(!failures.is_empty() && failures.iter().all(|f| *f == ExecCode::ExecTransport));
        for exec in world.cluster.execs() {
            eventually(|| exec.processes().is_empty()).await;
        }
    }
}

#[tokio::test]
async fn what_the_process_says_is_continued_where_a_line_was_cut() {
    let (world, log) = world(Style::V1_36).await;
    let rest = world.call(&read(WHOLE as u64 / 2)).await;
    let bytes = rest.bytes(bex_proto::exec::FrameKind::Stdout);
    assert!(bytes == log[WHOLE / 2..]);
}
