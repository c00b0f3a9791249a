//! A log of 16 MiB through one WebSocket, whole or not at all.

use std::time::Duration;

use bex_proto::exec::ExecCode;
use bex_testk8s::{Cut, ExecPlan, Options, Style, Transport};

use super::world::{STYLES, World, read};
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
        world.nothing_is_left().await;
        eventually(|| exec.counts().exit == Some(0)).await;
        // before it is entered and when it has ended, and no more
        let looks = world.cluster.requests();
        assert_eq!(looks.iter().filter(|r| r.resource == "pods").count(), 2);
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
async fn frames_of_1_32767_32768_32769_bytes_with_standard_error_between() {
    for style in [Style::V1_36, Style::V1_29] {
        let (world, log) = world(style).await;
        let plans = [
            ExecPlan::new()
                .sizes(&[1, 32_767, 32_768, 32_769])
                .noise(100),
            ExecPlan::new().sizes(&[32_767]).noise(1),
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
        world.nothing_is_left().await;
    }
}

#[tokio::test]
async fn cut_at_9_of_16_mib_whatever_is_said() {
    for style in STYLES {
        for how in [Cut::FalseSuccess, Cut::Close, Cut::Eof] {
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
            world.nothing_is_left().await;
        }
    }
}

#[tokio::test]
async fn a_status_before_the_last_bytes_of_output() {
    for style in [Style::V1_36, Style::V1_29] {
        let (world, log) = world(style).await;
        for held in [5 * MIB, 1] {
            world.cluster.next_exec(ExecPlan::new().status_before(held));
            let (bytes, failures) = world.harvest().await;
            assert_eq!((bytes == log, failures.len()), (true, 0), "{held}");
        }
        world.nothing_is_left().await;
    }
}

#[tokio::test]
async fn no_status_at_all() {
    for style in [Style::V1_36, Style::V1_29] {
        let (world, log) = world(style).await;
        world.cluster.next_exec(ExecPlan::new().no_status());
        let (bytes, failures) = world.harvest().await;
        assert_eq!((bytes == log, failures.len()), (true, 0), "{style:?}");
        world.nothing_is_left().await;
    }
}

#[tokio::test]
async fn output_that_is_never_closed_though_the_status_came() {
    for style in [Style::V1_36, Style::V1_29] {
        let (world, log) = world(style).await;
        world.cluster.next_exec(ExecPlan::new().never_closed());
        let (bytes, failures) = world.harvest().await;
        assert_eq!((bytes == log, failures.len()), (true, 0), "{style:?}");
        world.nothing_is_left().await;
    }
}

/// What ends an exec that stands still after 9 of 16 MiB, whose server then says what that release says.
async fn struck(style: Style, disaster: impl AsyncFnOnce(&World)) {
    let (world, log) = world(style).await;
    let at = 9 * MIB as u64;
    world
        .cluster
        .next_exec(ExecPlan::new().stall_after(at, bex_testk8s::Stall::Answering));
    let strike = async {
        eventually(|| {
            let execs = world.cluster.execs();
            execs.first().is_some_and(|e| e.counts().sent == at)
        })
        .await;
        disaster(&world).await;
    };
    let ((bytes, failures), ()) = tokio::join!(world.harvest(), strike);
    assert!(bytes == log, "{style:?}");
    let transport = |code: &ExecCode| *code == ExecCode::ExecTransport;
    assert!(!failures.is_empty() && failures.iter().all(transport));
    world.nothing_is_left().await;
}

#[tokio::test]
async fn the_api_server_is_restarted_meanwhile() {
    for style in STYLES {
        struck(style, async |world| {
            let away = Duration::from_millis(50);
            world.cluster.restart_api_server(away).await;
        })
        .await;
    }
}

/// v5 says Success, v4 nothing.
#[tokio::test]
async fn the_runtime_is_restarted_meanwhile() {
    for style in STYLES {
        struck(style, async |world| world.cluster.restart_runtime()).await;
    }
}

/// Up to 1.35 v5 says Success.
#[tokio::test]
async fn the_kubelet_is_restarted_meanwhile() {
    for style in STYLES {
        struck(style, async |world| world.cluster.restart_kubelet()).await;
    }
}

#[tokio::test]
async fn what_the_process_says_is_continued_where_a_line_was_cut() {
    let (world, log) = world(Style::V1_36).await;
    let rest = world.call(&read(WHOLE as u64 / 2)).await;
    let bytes = rest.bytes(bex_proto::exec::FrameKind::Stdout);
    assert!(bytes == log[WHOLE / 2..]);
}
