//! Every call but the health check needs a grant for exactly that call, once.

use bex_proto::driver::{DriverKey, TurnRequest};
use bex_proto::ids::{Generation, TurnNo};
use bex_proto::launch::Pace;
use bex_proto::ticket::{DriverGrant, DriverOp, turn_digest};
use http::Method;

use crate::sandbox::{Sandbox, parts};

async fn hello(sandbox: &Sandbox, token: Option<&str>) -> u16 {
    let response = sandbox
        .call(Method::GET, "/hello", token, String::new())
        .await;
    response.status().as_u16()
}

#[tokio::test]
async fn grants_are_refused_one_reason_at_a_time() {
    let sandbox = Sandbox::playing(parts(3), Pace::Max).start().await;
    let good = sandbox.grant(DriverOp::Hello, None);
    assert_eq!(hello(&sandbox, None).await, 401, "missing");
    assert_eq!(hello(&sandbox, Some("x.y.z")).await, 401, "garbled");
    let wrong_op = sandbox.grant(DriverOp::Stop, None);
    assert_eq!(
        hello(&sandbox, Some(&wrong_op.sign(&sandbox.key))).await,
        401,
        "other operation"
    );
    let other = DriverKey::derive(b"ring", &sandbox.launch.session, Generation(2));
    assert_eq!(
        hello(&sandbox, Some(&good.sign(&other))).await,
        401,
        "another generation's key"
    );
    let expired = DriverGrant {
        iat: good.iat - 100,
        exp: good.iat - 85,
        ..sandbox.grant(DriverOp::Hello, None)
    };
    assert_eq!(
        hello(&sandbox, Some(&expired.sign(&sandbox.key))).await,
        401,
        "expired"
    );
    let token = good.sign(&sandbox.key);
    assert_eq!(hello(&sandbox, Some(&token)).await, 200);
    assert_eq!(hello(&sandbox, Some(&token)).await, 401, "used");
    let health = sandbox
        .call(Method::GET, "/healthz", None, String::new())
        .await;
    assert_eq!(health.status(), 200);
}

#[tokio::test]
async fn a_grant_is_for_one_turn_and_one_body() {
    let sandbox = Sandbox::playing(parts(3), Pace::Max).start().await;
    let body = serde_json::to_string(&TurnRequest {
        turn: TurnNo(1),
        prompt: "real".into(),
        priming: None,
    })
    .expect("plain data");
    let grants = [
        (Some(2), Some(turn_digest("real", None))),
        (Some(1), Some(turn_digest("forged", None))),
        (Some(1), Some(turn_digest("real", Some("p")))),
        (Some(1), None),
        (None, Some(turn_digest("real", None))),
    ];
    for (turn, digest) in grants {
        let grant = DriverGrant {
            body: digest,
            ..sandbox.grant(DriverOp::Turn, turn)
        };
        let token = grant.sign(&sandbox.key);
        let response = sandbox
            .call(Method::POST, "/turn", Some(&token), body.clone())
            .await;
        assert_eq!(response.status(), 401, "{grant:?}");
    }
    let grant = sandbox.grant(DriverOp::Stream, Some(1)).sign(&sandbox.key);
    let response = sandbox
        .call(
            Method::GET,
            "/stream?turn=2&from=0",
            Some(&grant),
            String::new(),
        )
        .await;
    assert_eq!(response.status(), 401, "another turn's stream");
    assert!(!sandbox.log_path(1).exists(), "nothing was begun");
}

#[tokio::test]
async fn bodies_are_bounded_and_strict() {
    let sandbox = Sandbox::playing(parts(3), Pace::Max).start().await;
    for (body, status) in [
        ("x".repeat(3 * 1024 * 1024), 413),
        ("{\"turn\":1}".to_owned(), 400),
        ("{\"turn\":1,\"prompt\":\"p\",\"extra\":1}".to_owned(), 400),
    ] {
        let token = sandbox.grant(DriverOp::Turn, Some(1)).sign(&sandbox.key);
        let response = sandbox
            .call(Method::POST, "/turn", Some(&token), body)
            .await;
        assert_eq!(response.status(), status);
    }
}

#[tokio::test]
async fn a_restarted_driver_refuses_older_grants() {
    let mut sandbox = Sandbox::playing(parts(3), Pace::Max).start().await;
    let unused = sandbox.grant(DriverOp::Hello, None).sign(&sandbox.key);
    let spent = sandbox.grant(DriverOp::Hello, None).sign(&sandbox.key);
    assert_eq!(hello(&sandbox, Some(&spent)).await, 200);
    sandbox.kill().await;
    sandbox.restart().await;
    assert_eq!(
        hello(&sandbox, Some(&spent)).await,
        401,
        "the memory of spent ones is gone"
    );
    assert_eq!(hello(&sandbox, Some(&unused)).await, 401);
    let now = jiff::Timestamp::now().as_second();
    let later = DriverGrant {
        iat: now + 2,
        exp: now + 17,
        ..sandbox.grant(DriverOp::Hello, None)
    };
    assert_eq!(hello(&sandbox, Some(&later.sign(&sandbox.key))).await, 200);
}
