//! Silence is told from death. The times are a 75th of the real ones; two real minutes pass on a clock that jumps, in the tests of
//! `sandbox/kubernetes/channel`.

use std::time::Duration;

use bex_proto::exec::FrameKind;
use bex_testk8s::{ExecPlan, Options, Stall, Style};
use tokio::time::Instant;

use super::world::{PACE, World, read, run};

#[tokio::test]
async fn a_silent_command_outlives_everybody_who_cuts_what_is_idle() {
    for style in [Style::V1_36, Style::V1_29] {
        let world = World::new(Options {
            style,
            ..Options::default()
        })
        .await;
        // real: 2 min of silence past runtimes and proxies that cut after 30 s; here 8 pings past what cuts after 2 of them
        world
            .cluster
            .next_exec(ExecPlan::new().idle_cut(PACE.ping * 3));
        let answer = world.call(&run("sleep 1.7; echo done", None)).await;
        assert_eq!(answer.bytes(FrameKind::Stdout), b"done\n", "{style:?}");
        let counts = world.exec().counts();
        assert!(
            counts.pings >= 6 && counts.empties >= 6,
            "both are needed: {counts:?}"
        );
        world.nothing_is_left().await;
    }
}

#[tokio::test]
async fn a_peer_that_answers_nothing_is_gone() {
    let world = World::new(Options::default()).await;
    world.log(1 << 20);
    for plan in [
        ExecPlan::new().stall_after(1000, Stall::Dead),
        ExecPlan::new()
            .stall_after(1000, Stall::Answering)
            .no_pongs(),
    ] {
        world.cluster.next_exec(plan.clone());
        let before = Instant::now();
        let answer = world.call(&read(0)).await;
        let code = match answer.status.as_u16() {
            200 => answer.error().code.as_str().to_owned(),
            _ => answer.problem().1,
        };
        assert_eq!(code, "exec_transport", "{plan:?}");
        assert!(
            before.elapsed() < PACE.silence * 6,
            "{:?}",
            before.elapsed()
        );
    }
    world.nothing_is_left().await;
}

#[tokio::test]
async fn a_peer_that_answers_is_waited_for_until_the_deadline() {
    let world = World::new(Options::default()).await;
    world.log(1 << 20);
    world
        .cluster
        .next_exec(ExecPlan::new().stall_after(1000, Stall::Answering));
    let read = read(0);
    let waited = tokio::time::timeout(PACE.silence * 2, world.call(&read)).await;
    assert!(waited.is_err(), "silence alone is no end: {waited:?}");
    world.nothing_is_left().await;
}

#[tokio::test]
async fn a_slow_reader_is_no_silent_peer() {
    use http_body_util::BodyExt;
    let world = World::new(Options::default()).await;
    let log = world.log(8 << 20);
    let operation = read(0);
    let request = http::Request::post("/v1/exec")
        .header(
            "x-bex-exec-ticket",
            world.ticket(&operation, &world.uid, "sandbox"),
        )
        .body(http_body_util::Full::new(
            crate::house::body(&operation).into(),
        ))
        .expect("a request");
    let mut answer = world.house.begin(request).await;
    let first = answer
        .body_mut()
        .frame()
        .await
        .expect("a frame")
        .expect("bytes")
        .into_data()
        .expect("data");
    // longer than the silence that would end it
    tokio::time::sleep(PACE.silence * 2 + Duration::from_millis(100)).await;
    let mut bytes = first.to_vec();
    bytes.extend(
        answer
            .into_body()
            .collect()
            .await
            .expect("a whole body")
            .to_bytes(),
    );
    let mut decoder = bex_proto::exec::FrameDecoder::default();
    decoder.push(&bytes);
    let (mut got, mut last) = (0, None);
    while let Some(frame) = decoder.next_frame().expect("well-formed") {
        got += if frame.kind == FrameKind::Stdout {
            frame.payload.len()
        } else {
            0
        };
        last = Some(frame.kind);
    }
    assert_eq!((got, last), (log.len(), Some(FrameKind::Exit)));
}
