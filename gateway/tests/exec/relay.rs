//! What a process in a sandbox says, and what of it reaches the caller.

use std::time::Duration;

use bex_gateway::exec::ExecLimits;
use bex_proto::exec::{
    EndMark, ExecCode, FrameKind, LogWindow, Operation, WindowEnding, WindowHeader, write_bytes,
    write_json,
};
use bex_proto::transcript::sha256_hex;
use bex_proto::{TurnNo, limits};
use bytes::{Bytes, BytesMut};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};

use crate::house::{House, Say, body, eventually, ring};

fn read() -> Operation {
    Operation::ReadTranscript {
        turn: TurnNo(1),
        offset: 0,
    }
}

fn run() -> Operation {
    Operation::Run {
        argv: vec!["/bin/cat".into()],
        stdin: Some("x".into()),
    }
}

/// What a whole window looks like on the wire of a sandbox.
fn window(log: &[u8], nonce: &str) -> BytesMut {
    let mut out = BytesMut::new();
    let header = WindowHeader {
        status: Some(r#"{"state":"idle"}"#.into()),
        log: Some(LogWindow {
            generation: None,
            log_id: "l1".into(),
            offset: 0,
            length: log.len() as u64,
            size: log.len() as u64,
            sha256: sha256_hex(log),
            ending: WindowEnding::Line,
        }),
    };
    write_json(&mut out, FrameKind::Header, &header);
    write_bytes(&mut out, FrameKind::Stdout, log);
    let end = EndMark {
        nonce: nonce.to_owned(),
        exit_code: 0,
    };
    write_json(&mut out, FrameKind::End, &end);
    out
}

/// A log of 3 MiB whose bytes differ everywhere.
fn log() -> Vec<u8> {
    (0u32..750_000).flat_map(u32::to_le_bytes).collect()
}

#[tokio::test]
async fn a_window_arrives_whole_however_it_was_torn() {
    let house = House::new().await;
    house.script(|request| {
        let wire = window(&log(), &request.nonce);
        wire.chunks(977).map(|c| Say::Bytes(c.to_vec())).collect()
    });
    let answer = house.call(&read()).await;
    assert_eq!(answer.exit().exit_code, 0);
    assert_eq!(answer.bytes(FrameKind::Stdout), log());
    let header: WindowHeader =
        serde_json::from_slice(&answer.bytes(FrameKind::Header)).expect("a header");
    assert_eq!(header.log.map(|l| l.sha256), Some(sha256_hex(&log())));
    assert_eq!(
        answer
            .frames()
            .iter()
            .filter(|f| f.kind == FrameKind::End)
            .count(),
        0
    );
    let text = house.metrics.text();
    let counted = "bex_gateway_exec_total{op=\"read-transcript\",result=\"ok\"} 1";
    assert!(text.contains(counted), "{text}");
}

#[tokio::test]
async fn a_commands_output_and_code_come_back() {
    let house = House::new().await;
    house.script(|request| {
        let mut out = BytesMut::new();
        write_bytes(&mut out, FrameKind::Stdout, "h\u{e9}".as_bytes());
        write_bytes(&mut out, FrameKind::Stderr, b"oops");
        let end = EndMark {
            nonce: request.nonce,
            exit_code: 137,
        };
        write_json(&mut out, FrameKind::End, &end);
        vec![Say::Bytes(out.to_vec())]
    });
    let answer = house.call(&run()).await;
    assert_eq!(answer.exit().exit_code, 137);
    assert_eq!(answer.bytes(FrameKind::Stdout), "h\u{e9}".as_bytes());
    assert_eq!(answer.bytes(FrameKind::Stderr), b"oops");
}

#[tokio::test]
async fn output_without_its_end_mark_is_a_broken_transport_with_the_bytes_that_came() {
    let house = House::new().await;
    house.script(|request| {
        let wire = window(&log(), &request.nonce);
        vec![Say::Bytes(wire[..wire.len() / 2].to_vec())]
    });
    let answer = house.call(&read()).await;
    assert_eq!(answer.error().code, ExecCode::ExecTransport);
    let got = answer.bytes(FrameKind::Stdout);
    assert!(
        got.len() > 1_000_000 && log().starts_with(&got),
        "{}",
        got.len()
    );
}

#[tokio::test]
async fn nothing_at_all_is_a_status() {
    let house = House::new().await;
    house.script(|_| Vec::new());
    let answer = house.call(&read()).await;
    assert_eq!(answer.problem(), (502, "exec_transport".to_owned()));
}

#[tokio::test]
async fn an_end_mark_of_another_request_is_none() {
    let house = House::new().await;
    house.script(|_| vec![Say::Bytes(window(b"line\n", "somebody-elses").to_vec())]);
    let answer = house.call(&read()).await;
    assert_eq!(answer.error().code, ExecCode::ExecTransport);
    assert_eq!(answer.bytes(FrameKind::Stdout), b"line\n");
}

#[tokio::test]
async fn bytes_that_are_no_frames_are_a_broken_transport() {
    let house = House::new().await;
    house.script(|_| vec![Say::Bytes(b"sh: bex-driver: not found\n".to_vec())]);
    let answer = house.call(&read()).await;
    assert_eq!(answer.problem(), (502, "exec_transport".to_owned()));
}

#[tokio::test]
async fn a_command_that_prints_for_ever_is_cut_at_its_limit() {
    let house = House::new().await;
    house.script(|_| {
        let mut out = BytesMut::new();
        write_bytes(&mut out, FrameKind::Stdout, &vec![b'y'; 3 * 1024 * 1024]);
        vec![Say::Bytes(out.to_vec()), Say::Hang]
    });
    let answer = house.call(&run()).await;
    assert_eq!(answer.error().code, ExecCode::OutputLimit);
    assert_eq!(
        answer.bytes(FrameKind::Stdout).len() as u64,
        limits::RUN_OUTPUT_BYTES
    );
    eventually(|| !house.alive()).await;
}

fn impatient() -> ExecLimits {
    ExecLimits {
        read: Duration::from_millis(200),
        run: Duration::from_millis(200),
        driver: Duration::from_millis(200),
        ..ExecLimits::default()
    }
}

#[tokio::test]
async fn a_process_that_never_ends_is_ended() {
    let house = House::with(impatient(), Some(ring("e1", 'e'))).await;
    // before the first frame: a status
    house.script(|_| vec![Say::Hang]);
    let answer = house.call(&run()).await;
    assert_eq!(answer.problem(), (504, "exec_timeout".to_owned()));
    eventually(|| !house.alive()).await;
    // after it: a frame, behind what was said
    house.script(|_| {
        let mut out = BytesMut::new();
        write_bytes(&mut out, FrameKind::Stdout, b"so far");
        vec![Say::Bytes(out.to_vec()), Say::Hang]
    });
    let answer = house.call(&run()).await;
    assert_eq!(answer.error().code, ExecCode::ExecTimeout);
    assert_eq!(answer.bytes(FrameKind::Stdout), b"so far");
    eventually(|| !house.alive()).await;
}

#[tokio::test]
async fn a_caller_that_leaves_ends_the_process() {
    let house = House::new().await;
    house.script(|_| {
        let mut out = BytesMut::new();
        write_bytes(&mut out, FrameKind::Stdout, b"begun");
        vec![Say::Bytes(out.to_vec()), Say::Hang]
    });
    let request = Request::builder()
        .method(Method::POST)
        .uri("/v1/exec")
        .header("x-bex-exec-ticket", house.claims(&run()).sign(&house.ring))
        .body(Full::new(Bytes::from(body(&run()))))
        .expect("a request");
    let mut answer = house.begin(request).await;
    let first = answer
        .body_mut()
        .frame()
        .await
        .expect("a frame")
        .expect("bytes");
    assert!(first.into_data().expect("data").ends_with(b"begun"));
    assert!(house.alive());
    drop(answer);
    eventually(|| !house.alive()).await;
    eventually(|| house.metrics.exec.active.get() == 0).await;
}

#[tokio::test]
async fn a_caller_that_leaves_before_the_first_frame_ends_the_process_too() {
    let house = House::new().await;
    house.script(|_| vec![Say::Hang]);
    let ticket = house.claims(&run()).sign(&house.ring);
    let call = house.ask(Some(&ticket), body(&run()));
    let waited = tokio::select! {
        answer = call => Some(answer),
        () = eventually(|| house.alive()) => None,
    };
    assert!(
        waited.is_none(),
        "nothing was said, so there is no answer: {waited:?}"
    );
    eventually(|| !house.alive()).await;
}
