//! The exec client against a scripted listener.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bex_api::exec_client::{ExecClient, ExecFailure, ExecTarget, SandboxRpc, Windows, read_window};
use bex_proto::exec::{
    CONTENT_TYPE, ExecCode, ExecError, Exit, FrameKind, LogWindow, Operation, TICKET_HEADER,
    WindowEnding, WindowHeader, write_bytes, write_json,
};
use bex_proto::problem::{Code, Problem};
use bex_proto::ticket::{ExecClaims, KeyRing};
use bex_proto::transcript::sha256_hex;
use bex_proto::{Generation, SessionId, TurnNo, limits};
use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

type Script = Box<dyn FnMut(Operation, ExecClaims) -> Response<Full<Bytes>> + Send>;

fn ring() -> KeyRing {
    KeyRing::parse(&format!("e:{}", "cd".repeat(32))).expect("a ring")
}

fn target() -> ExecTarget {
    ExecTarget {
        workspace: "acme".parse().expect("an id"),
        session: SessionId::random(),
        generation: Generation(3),
        namespace: "acme-sandbox".into(),
        pod: "pod".into(),
        pod_uid: "uid".into(),
        container: "sandbox".into(),
    }
}

/// Answers each call with what the script says, after checking that the ticket is this call's.
async fn listener(script: Script) -> ExecClient {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let script = Arc::new(Mutex::new(script));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let script = Arc::clone(&script);
            let answer = service_fn(move |request: Request<Incoming>| {
                let script = Arc::clone(&script);
                async move {
                    assert_eq!(request.uri().path(), "/v1/exec");
                    let ticket = request.headers()[TICKET_HEADER]
                        .to_str()
                        .expect("a ticket")
                        .to_owned();
                    let body = request
                        .into_body()
                        .collect()
                        .await
                        .expect("a body")
                        .to_bytes();
                    let now = jiff::Timestamp::now().as_second();
                    let claims = ExecClaims::verify(&ticket, &ring(), now).expect("a valid ticket");
                    let operation: Operation = serde_json::from_slice(&body).expect("an operation");
                    assert_eq!(
                        (&claims.body, claims.op),
                        (&sha256_hex(&body), operation.name())
                    );
                    Ok::<_, Infallible>((script.lock().expect("one at a time"))(operation, claims))
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(socket), answer),
            );
        }
    });
    ExecClient::new(&url.parse().expect("a URL"), ring())
}

fn framed(wire: BytesMut) -> Response<Full<Bytes>> {
    Response::builder()
        .header("content-type", CONTENT_TYPE)
        .body(Full::new(wire.freeze()))
        .expect("a response")
}

fn exit() -> BytesMut {
    let mut wire = BytesMut::new();
    write_json(
        &mut wire,
        FrameKind::Exit,
        &Exit {
            exit_code: 0,
            hint: None,
        },
    );
    wire
}

fn problem(code: Code) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(&Problem::new(code)).expect("plain data");
    Response::builder()
        .status(code.status())
        .body(Full::new(body.into()))
        .expect("a response")
}

#[tokio::test]
async fn each_call_has_a_ticket_of_its_own_that_names_its_sandbox_and_nothing_else() {
    let target = target();
    let named = target.clone();
    let mut seen = Vec::new();
    let client = listener(Box::new(move |_, claims| {
        assert!(!seen.contains(&claims.jti), "single use");
        seen.push(claims.jti.clone());
        assert_eq!(claims.sub, "system:agent-session-completer");
        assert_eq!(
            (&claims.ws, claims.ses.as_ref()),
            (&named.workspace, Some(&named.session))
        );
        assert_eq!(
            (claims.generation, claims.pod_uid.as_str()),
            (Generation(3), "uid")
        );
        assert_eq!(claims.exp - claims.iat, 60);
        framed(exit())
    }))
    .await;
    assert_eq!(client.deliver_turn(&target, TurnNo(1), None).await, Ok(()));
    assert_eq!(client.stop(&target, TurnNo(1)).await, Ok(()));
}

#[tokio::test]
async fn refusals_are_typed_by_their_code_and_a_bare_404_says_nothing_of_the_sandbox() {
    let busy = || {
        let mut wire = BytesMut::new();
        write_json(
            &mut wire,
            FrameKind::Error,
            &ExecError {
                code: ExecCode::Busy,
                message: String::new(),
            },
        );
        framed(wire)
    };
    let bare = || {
        Response::builder()
            .status(404)
            .body(Full::new(Bytes::from("not found")))
            .expect("a response")
    };
    let cases: Vec<(Response<Full<Bytes>>, ExecFailure)> = vec![
        (problem(Code::SandboxTerminated), ExecFailure::Terminated),
        (problem(Code::Revoked), ExecFailure::Revoked),
        (problem(Code::ExecTimeout), ExecFailure::Timeout),
        (problem(Code::ExecTransport), ExecFailure::Transport),
        (problem(Code::TurnInFlight), ExecFailure::Busy),
        (busy(), ExecFailure::Busy),
        (problem(Code::TicketInvalid), ExecFailure::Refused(401)),
        (problem(Code::Unavailable), ExecFailure::Refused(503)),
        (bare(), ExecFailure::Refused(404)),
        (framed(BytesMut::new()), ExecFailure::Transport),
    ];
    let (mut answers, failures): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    answers.reverse();
    let client = listener(Box::new(move |_, _| {
        answers.pop().expect("as many answers as calls")
    }))
    .await;
    for failure in failures {
        assert_eq!(
            client.deliver_turn(&target(), TurnNo(1), None).await,
            Err(failure)
        );
    }
    let nobody = ExecClient::new(&"http://127.0.0.1:1".parse().expect("a URL"), ring());
    assert_eq!(
        nobody.stop(&target(), TurnNo(1)).await,
        Err(ExecFailure::Unreachable)
    );
}

/// A window from `offset` of `log`, `sent` bytes of it, with or without its end.
fn window(log: &[u8], offset: u64, sent: usize, log_id: &str, end: bool) -> Response<Full<Bytes>> {
    let rest = &log[usize::try_from(offset).expect("small")..];
    let header = LogWindow {
        generation: Some(Generation(3)),
        log_id: log_id.into(),
        offset,
        length: rest.len() as u64,
        size: log.len() as u64,
        sha256: sha256_hex(rest),
        ending: WindowEnding::Line,
    };
    let mut wire = BytesMut::new();
    write_json(
        &mut wire,
        FrameKind::Header,
        &WindowHeader {
            status: Some("{}".into()),
            log: Some(header),
        },
    );
    write_bytes(&mut wire, FrameKind::Stdout, &rest[..sent.min(rest.len())]);
    if end {
        wire.extend_from_slice(&exit());
    }
    framed(wire)
}

fn offset_of(operation: &Operation) -> u64 {
    match operation {
        Operation::Observe { offset, .. } | Operation::ReadTranscript { offset, .. } => *offset,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_cut_window_is_continued_from_its_bytes_and_proved_as_one() {
    let log: Vec<u8> = (0..500_000u32)
        .flat_map(|n| format!("{n}\n").into_bytes())
        .collect();
    let whole = log.clone();
    let mut calls = 0;
    let client = listener(Box::new(move |operation, _| {
        calls += 1;
        assert_eq!(
            matches!(operation, Operation::Observe { .. }),
            calls <= 2,
            "status is asked for once more where there is much to read"
        );
        // all of it, for which there is no room yet; success over less than was promised, then no end at all, then the rest
        let sent = [usize::MAX, 1_000_000, 700_000, usize::MAX][calls - 1];
        let end = calls != 3;
        window(&log, offset_of(&operation), sent, "a", end)
    }))
    .await;
    let read = read_window(&client, &windows(), &target(), TurnNo(1), 0)
        .await
        .expect("a window");
    let (header, bytes) = read.log.expect("a log");
    assert_eq!((bytes.len(), header.offset), (whole.len(), 0));
    assert_eq!(bytes, whole);
    assert_eq!(read.status.as_deref(), Some("{}"));
}

/// A process's own.
fn windows() -> Windows {
    Windows::new(Default::default())
}

#[tokio::test]
async fn who_needs_a_window_waits_for_one_and_nobody_else_does() {
    let large = vec![b'\n'; usize::try_from(limits::HARVEST_SMALL_BYTES).expect("fits") + 1];
    let (large_turn, small_turn) = (TurnNo(1), TurnNo(2));
    let asked = Arc::new(AtomicU32::new(0));
    let (log, counted) = (large.clone(), Arc::clone(&asked));
    let client = listener(Box::new(move |operation, _| match operation {
        Operation::Observe { turn, .. } if turn == large_turn => {
            counted.fetch_add(1, Ordering::SeqCst);
            window(&log, 0, usize::MAX, "a", true)
        }
        _ => window(b"one\n", 0, usize::MAX, "a", true),
    }))
    .await;
    let (windows, mut held) = (windows(), Vec::new());
    for _ in 0..limits::HARVEST_WINDOWS {
        held.push(windows.take().await);
    }
    let waits = {
        let (client, windows) = (client.clone(), windows.clone());
        tokio::spawn(async move { read_window(&client, &windows, &target(), large_turn, 0).await })
    };
    crate::world::eventually("it is asked for", async || asked.load(Ordering::SeqCst) > 0).await;
    for _ in 0..10 {
        let small = read_window(&client, &windows, &target(), small_turn, 0).await;
        let small = small.expect("a window");
        assert!(small.held.is_none() && small.log.is_some_and(|(_, bytes)| bytes.len() == 4));
    }
    assert!(!waits.is_finished());
    assert_eq!(asked.load(Ordering::SeqCst), 1, "not before there is room");
    held.pop();
    let read = waits.await.expect("no panic").expect("a window");
    assert!(read.log.is_some_and(|(_, bytes)| bytes == large));
    assert!(read.held.is_some(), "kept with its bytes");
}

#[tokio::test]
async fn a_window_that_can_not_be_proved_gives_nothing() {
    let log = b"one\ntwo\nthree\n".to_vec();
    // continued from another log
    let other = log.clone();
    let mut calls = 0;
    let client = listener(Box::new(move |operation, _| {
        calls += 1;
        window(
            &other,
            offset_of(&operation),
            if calls == 1 { 4 } else { usize::MAX },
            &format!("log {calls}"),
            true,
        )
    }))
    .await;
    assert_eq!(
        read_window(&client, &windows(), &target(), TurnNo(1), 0)
            .await
            .err(),
        Some(ExecFailure::Transport)
    );
    // never more than a few bytes
    let short = log.clone();
    let client = listener(Box::new(move |operation, _| {
        window(&short, offset_of(&operation), 1, "a", true)
    }))
    .await;
    assert_eq!(
        read_window(&client, &windows(), &target(), TurnNo(1), 0)
            .await
            .err(),
        Some(ExecFailure::Transport)
    );
    // the sandbox goes away in between
    let mut calls = 0;
    let client = listener(Box::new(move |operation, _| {
        calls += 1;
        if calls == 1 {
            window(&log, offset_of(&operation), 4, "a", false)
        } else {
            problem(Code::SandboxTerminated)
        }
    }))
    .await;
    assert_eq!(
        read_window(&client, &windows(), &target(), TurnNo(1), 0)
            .await
            .err(),
        Some(ExecFailure::Terminated)
    );
}
