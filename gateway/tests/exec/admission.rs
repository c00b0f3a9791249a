//! Who is let in, in which order, and that no refusal costs a ticket.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bex_gateway::exec::ExecLimits;
use bex_gateway::sandbox::Look;
use bex_proto::TurnNo;
use bex_proto::exec::{EndMark, FrameKind, Operation, WindowHeader, write_json};
use bex_proto::transcript::sha256_hex;
use bytes::{Bytes, BytesMut};
use http::{Method, Request};
use http_body_util::Full;

use crate::house::{Answer, House, Say, body, ring};

pub fn observe() -> Operation {
    Operation::Observe {
        turn: TurnNo(1),
        offset: 0,
    }
}

fn run() -> Operation {
    Operation::Run {
        argv: vec!["/bin/true".into()],
        stdin: None,
    }
}

/// A process that answers observe with an empty window.
fn script_empty_window(house: &House) {
    house.script(|request| {
        let mut out = BytesMut::new();
        let header = WindowHeader {
            status: None,
            log: None,
        };
        write_json(&mut out, FrameKind::Header, &header);
        let end = EndMark {
            nonce: request.nonce,
            exit_code: 0,
        };
        write_json(&mut out, FrameKind::End, &end);
        vec![Say::Bytes(out.to_vec())]
    });
}

fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.problem(), (status, code.to_owned()));
}

#[tokio::test]
async fn a_listener_without_keys_is_not_configured() {
    let house = House::with(ExecLimits::default(), None).await;
    refused(&house.call(&observe()).await, 503, "not_configured");
}

#[tokio::test]
async fn only_posts_to_the_one_route() {
    let house = House::new().await;
    let get = Request::builder()
        .uri("/v1/exec")
        .body(Full::new(Bytes::new()))
        .expect("a request");
    let answer = house.send(get).await;
    refused(&answer, 405, "method_not_allowed");
    assert_eq!(answer.headers["allow"], "POST");
    let other = Request::builder()
        .method(Method::POST)
        .uri("/v1/other")
        .body(Full::new(Bytes::new()))
        .expect("a request");
    refused(&house.send(other).await, 404, "not_found");
}

#[tokio::test]
async fn a_ticket_must_be_there_whole_fresh_and_ours() {
    let house = House::new().await;
    script_empty_window(&house);
    let claims = house.claims(&observe());
    let good = claims.sign(&house.ring);
    let mut expired = claims.clone();
    (expired.iat, expired.exp) = (claims.iat - 200, claims.iat - 100);
    let mut sessionless = claims.clone();
    sessionless.ses = None;
    for bad in [
        None,
        Some("garbage".to_owned()),
        Some(good[..good.len() - 4].to_owned()),
        Some(expired.sign(&house.ring)),
        Some(sessionless.sign(&house.ring)),
        Some(claims.sign(&ring("e1", 'f'))),
        Some(claims.sign(&ring("e2", 'e'))),
    ] {
        let answer = house.ask(bad.as_deref(), body(&observe())).await;
        refused(&answer, 401, "ticket_invalid");
    }
    // none of that cost the ticket; using it does
    assert_eq!(
        house
            .ask(Some(&good), body(&observe()))
            .await
            .exit()
            .exit_code,
        0
    );
    refused(
        &house.ask(Some(&good), body(&observe())).await,
        401,
        "ticket_used",
    );
    assert_eq!(house.started(), 1);
}

#[tokio::test]
async fn a_ticket_is_for_one_body_and_one_operation() {
    let house = House::new().await;
    script_empty_window(&house);
    let claims = house.claims(&observe());
    let good = claims.sign(&house.ring);
    let other = Operation::Observe {
        turn: TurnNo(2),
        offset: 0,
    };
    refused(
        &house.ask(Some(&good), body(&other)).await,
        403,
        "action_mismatch",
    );
    // a digest that fits another operation than the ticket's
    let mut crossed = house.claims(&observe());
    crossed.body = sha256_hex(&body(&run()));
    let answer = house
        .ask(Some(&crossed.sign(&house.ring)), body(&run()))
        .await;
    refused(&answer, 403, "action_mismatch");
    assert_eq!(
        house
            .ask(Some(&good), body(&observe()))
            .await
            .exit()
            .exit_code,
        0
    );
}

#[tokio::test]
async fn bodies_are_bounded_and_understood() {
    let house = House::new().await;
    let signed = |bytes: &[u8]| {
        let mut claims = house.claims(&observe());
        claims.body = sha256_hex(bytes);
        claims.sign(&house.ring)
    };
    let large = vec![b' '; bex_proto::limits::EXEC_REQUEST_BYTES + 1];
    refused(
        &house.ask(Some(&signed(&large)), large).await,
        413,
        "body_too_large",
    );
    for (text, code) in [
        ("{", "invalid_json"),
        (r#"{"op":"format-disk"}"#, "invalid_request"),
        (
            r#"{"op":"observe","turn":1,"offset":0,"path":"/etc"}"#,
            "unknown_field",
        ),
    ] {
        let answer = house.ask(Some(&signed(text.as_bytes())), text.into()).await;
        refused(&answer, 400, code);
    }
}

#[tokio::test]
async fn a_revocation_stops_people_and_not_the_harvest() {
    let house = House::new().await;
    script_empty_window(&house);
    house.records.revoked.store(true, Ordering::SeqCst);
    let mut claims = house.claims(&run());
    claims.sub = "user:1".into();
    refused(
        &house
            .ask(Some(&claims.sign(&house.ring)), body(&run()))
            .await,
        403,
        "revoked",
    );
    assert!(house.records.burnt.lock().expect("no panic").is_empty());
    assert_eq!(house.call(&observe()).await.exit().exit_code, 0);
}

#[tokio::test]
async fn store_trouble_refuses() {
    let house = House::new().await;
    script_empty_window(&house);
    house.records.broken.store(true, Ordering::SeqCst);
    refused(&house.call(&observe()).await, 503, "unavailable");
    assert_eq!(house.started(), 0);
}

#[tokio::test]
async fn the_target_is_looked_at_first() {
    let house = House::new().await;
    script_empty_window(&house);
    for (look, status, code) in [
        (Look::Gone, 404, "sandbox_terminated"),
        (Look::Unknown, 502, "exec_transport"),
        (Look::NotYet, 502, "exec_transport"),
    ] {
        house.look(look);
        refused(&house.call(&observe()).await, status, code);
    }
    // one that is being removed may still be read, and nothing else
    let turn = Operation::Turn {
        turn: TurnNo(1),
        priming: None,
    };
    let removed = Look::Running {
        address: "127.0.0.1:1".parse().expect("an address"),
        terminating: true,
    };
    for (reads, look) in [(0, removed), (1, Look::Leaving)] {
        house.look(look);
        for operation in [run(), turn.clone()] {
            refused(&house.call(&operation).await, 404, "sandbox_terminated");
        }
        assert_eq!(house.started(), reads);
        assert_eq!(house.call(&observe()).await.exit().exit_code, 0);
    }
    // a life that the store does not know
    *house.records.row.lock().expect("no panic") = None;
    refused(&house.call(&observe()).await, 404, "sandbox_terminated");
}

#[tokio::test]
async fn a_full_house_says_so_and_users_leave_room_for_the_harvest() {
    let limits = ExecLimits {
        parallel: 2,
        run_parallel: 1,
        ..ExecLimits::default()
    };
    let house = House::with(limits, Some(ring("e1", 'e'))).await;
    house.script(|request| match request.operation {
        Operation::Run { .. } => {
            let mut out = BytesMut::new();
            bex_proto::exec::write_bytes(&mut out, FrameKind::Stdout, b"begun");
            vec![Say::Bytes(out.to_vec()), Say::Hang]
        }
        _ => vec![],
    });
    let request = |operation: &Operation| {
        Request::builder()
            .method(Method::POST)
            .uri("/v1/exec")
            .header(
                "x-bex-exec-ticket",
                house.claims(operation).sign(&house.ring),
            )
            .body(Full::new(Bytes::from(body(operation))))
            .expect("a request")
    };
    let hanging = house.begin(request(&run())).await;
    assert_eq!(hanging.status(), 200);
    let refusal = house.call(&run()).await;
    refused(&refusal, 429, "overloaded");
    assert_eq!(refusal.headers["retry-after"], "1");
    // the harvest still has a seat; its broken script shows that it was let in
    refused(&house.call(&observe()).await, 502, "exec_transport");
    drop(hanging);
    crate::house::eventually(|| house.metrics.exec.active.get() == 0).await;
    script_empty_window(&house);
    assert_eq!(house.call(&observe()).await.exit().exit_code, 0);
}

#[tokio::test]
async fn a_used_ticket_is_remembered_for_every_clock_that_may_still_accept_it() {
    let house = House::new().await;
    script_empty_window(&house);
    assert_eq!(house.call(&observe()).await.status, 200);
    // it expires in a minute; ours may be fast by the skew while another's is slow by it
    let least = Duration::from_secs(59) + bex_proto::limits::TICKET_SKEW * 2;
    assert!(*house.records.kept.lock().expect("no panic") >= least);
}
