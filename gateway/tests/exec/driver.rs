//! `turn` and `stop` against a fake driver.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bex_gateway::driver_client::{CallError, DialError, DriverConnection};
use bex_gateway::metrics::Metrics;
use bex_gateway::sandbox::{Look, TargetRef};
use bex_gateway::serve::{self, ResponseBody, ServeOptions, Serving};
use bex_proto::driver::{DriverKey, TurnRequest};
use bex_proto::exec::{ExecCode, Operation};
use bex_proto::ids::PartIndex;
use bex_proto::ticket::{DriverGrant, DriverOp, KeyRing, turn_digest};
use bex_proto::{SessionId, TurnNo};
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::house::{GENERATION, House, listen, ring, running};

/// What this thread logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn hear(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// How a fake driver answers a call behind `hello`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Status(u16),
    Redirect,
    NoProof,
    ForeignProof,
    RefusesHello,
    ImpostorHello,
    HugeHeaders,
}

struct FakeDriver {
    address: SocketAddr,
    /// Path, grant and body of each granted call.
    seen: Arc<Mutex<Vec<(String, DriverGrant, Bytes)>>>,
    _serving: Serving,
}

impl FakeDriver {
    async fn start(session: SessionId, ring: &KeyRing, manner: Manner) -> Self {
        let key = DriverKey::derive(ring.signing_key().1, &session, GENERATION);
        let (listener, address) = listen().await;
        let seen: Arc<Mutex<Vec<_>>> = Arc::default();
        let calls = Arc::clone(&seen);
        let options = ServeOptions {
            name: "driver",
            connections: 8,
        };
        let handle = move |request: Request<Incoming>, _| {
            let (key, session, calls) = (key.clone(), session.clone(), Arc::clone(&calls));
            async move { answer(request, &key, &session, &calls, manner).await }
        };
        let serving = serve::serve(listener, options, Metrics::new().serve.clone(), handle);
        Self {
            address,
            seen,
            _serving: serving,
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    key: &DriverKey,
    session: &SessionId,
    calls: &Mutex<Vec<(String, DriverGrant, Bytes)>>,
    manner: Manner,
) -> Response<ResponseBody> {
    let now = jiff::Timestamp::now().as_second();
    let token = request.headers()["x-bex-driver-grant"]
        .to_str()
        .expect("ascii");
    let grant = DriverGrant::verify(token, key, now).expect("a good grant");
    let path = request.uri().to_string();
    let hello = path == "/hello";
    let body = request
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    calls
        .lock()
        .expect("no panic")
        .push((path, grant.clone(), body));
    let proof = key.proof(&grant.jti, session, GENERATION);
    let response = Response::builder();
    let response = match (hello, manner) {
        (true, Manner::RefusesHello) => response.status(401),
        (true, Manner::ImpostorHello) => response.status(200),
        (true, _) => response.status(200).header("x-bex-driver-proof", proof),
        (false, Manner::Status(status)) => {
            response.status(status).header("x-bex-driver-proof", proof)
        }
        (false, Manner::Redirect) => response
            .status(307)
            .header("x-bex-driver-proof", proof)
            .header("location", "http://127.0.0.1:9/turn"),
        (false, Manner::HugeHeaders) => response
            .status(202)
            .header("x-bex-driver-proof", proof)
            .header("x-padding", "x".repeat(64 * 1024)),
        (false, Manner::ForeignProof) => {
            let foreign = key.proof("another-jti", session, GENERATION);
            response.status(202).header("x-bex-driver-proof", foreign)
        }
        (false, _) => response.status(202),
    };
    response.body(serve::full("said")).expect("a response")
}

fn turn() -> Operation {
    Operation::Turn {
        turn: TurnNo(3),
        priming: Some("before".into()),
    }
}

async fn with(manner: Manner) -> (House, FakeDriver) {
    let house = House::new().await;
    let driver = FakeDriver::start(house.session.clone(), &house.driver_ring, manner).await;
    house.look(running(driver.address));
    let prompt = (3, "fix it".to_owned());
    house
        .records
        .prompts
        .lock()
        .expect("no panic")
        .extend([prompt]);
    (house, driver)
}

#[tokio::test]
async fn a_turn_is_delivered_with_the_stored_prompt_under_a_grant_for_it() {
    let (house, driver) = with(Manner::Status(202)).await;
    assert_eq!(house.call(&turn()).await.exit().exit_code, 0);
    let seen = driver.seen.lock().expect("no panic").clone();
    let [(hello, hello_grant, _), (path, grant, body)] = &seen[..] else {
        panic!("{} calls", seen.len())
    };
    assert_eq!(
        (hello.as_str(), hello_grant.op),
        ("/hello", DriverOp::Hello)
    );
    assert_eq!(
        (path.as_str(), grant.op, grant.trn),
        ("/turn", DriverOp::Turn, Some(TurnNo(3)))
    );
    assert_eq!(grant.body, Some(turn_digest("fix it", Some("before"))));
    assert_ne!(grant.jti, hello_grant.jti);
    let request: TurnRequest = serde_json::from_slice(body).expect("a turn request");
    assert_eq!(
        (request.turn, request.prompt.as_str()),
        (TurnNo(3), "fix it")
    );
    assert_eq!(request.priming.as_deref(), Some("before"));
}

#[tokio::test]
async fn a_stop_is_one_call() {
    let (house, driver) = with(Manner::Status(202)).await;
    let answer = house.call(&Operation::Stop { turn: TurnNo(3) }).await;
    assert_eq!(answer.exit().exit_code, 0);
    let seen = driver.seen.lock().expect("no panic").clone();
    assert_eq!(seen[1].0, "/stop");
    assert_eq!(
        (seen[1].1.op, seen[1].1.trn),
        (DriverOp::Stop, Some(TurnNo(3)))
    );
    assert_eq!(seen[1].2, r#"{"turn":3}"#);
}

#[tokio::test]
async fn a_busy_driver_is_a_proper_answer() {
    let (house, _driver) = with(Manner::Status(409)).await;
    assert_eq!(house.call(&turn()).await.error().code, ExecCode::Busy);
}

#[tokio::test]
async fn what_is_not_a_drivers_answer_is_a_broken_transport() {
    for manner in [
        Manner::Redirect,
        Manner::NoProof,
        Manner::ForeignProof,
        Manner::HugeHeaders,
        Manner::ImpostorHello,
        Manner::Status(500),
    ] {
        let (house, driver) = with(manner).await;
        let answer = house.call(&turn()).await;
        assert_eq!(answer.problem(), (502, "exec_transport".to_owned()));
        let calls = driver.seen.lock().expect("no panic").len();
        let expected = if manner == Manner::ImpostorHello {
            1
        } else {
            2
        };
        assert_eq!(
            calls, expected,
            "nothing is said to an unproved peer, nothing is said twice"
        );
    }
}

#[tokio::test]
async fn a_refused_hello_is_said_once_more() {
    let (house, driver) = with(Manner::RefusesHello).await;
    let answer = house.call(&turn()).await;
    assert_eq!(answer.problem(), (502, "exec_transport".to_owned()));
    let seen = driver.seen.lock().expect("no panic").clone();
    assert_eq!(seen.len(), 2);
    assert!(
        seen[1].1.iat > seen[0].1.iat,
        "with a grant of a later second"
    );
}

#[tokio::test]
async fn a_turn_of_another_generation_is_not_delivered() {
    let (house, driver) = with(Manner::Status(202)).await;
    house.records.prompts.lock().expect("no panic").clear();
    let answer = house.call(&turn()).await;
    assert_eq!(answer.problem(), (404, "sandbox_terminated".to_owned()));
    assert!(driver.seen.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn a_legacy_driver_takes_neither_turn_nor_stop() {
    let (house, driver) = with(Manner::Status(202)).await;
    house
        .records
        .row
        .lock()
        .expect("no panic")
        .as_mut()
        .expect("a row")
        .legacy = true;
    assert_eq!(
        house.call(&turn()).await.problem(),
        (501, "unsupported".to_owned())
    );
    assert!(driver.seen.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_looked_at_again() {
    let (house, _driver) = with(Manner::Status(202)).await;
    let (listener, address) = listen().await;
    drop(listener);
    house.look(running(address));
    let log = Log::default();
    let _logging = log.hear();
    assert_eq!(
        house.call(&turn()).await.problem(),
        (502, "exec_transport".to_owned())
    );
    let said = log.text();
    assert!(
        said.contains("cannot connect to the driver: Connection refused"),
        "{said}"
    );
    house.look(Look::Gone);
    assert_eq!(
        house.call(&turn()).await.problem(),
        (404, "sandbox_terminated".to_owned())
    );
}

fn target(session: &SessionId) -> TargetRef {
    TargetRef {
        session: session.clone(),
        generation: GENERATION,
        namespace: "demo-sandbox".into(),
        pod: "p".into(),
        pod_uid: "u".into(),
        container: "sandbox".into(),
        legacy: false,
        driver_kid: "d1".into(),
    }
}

#[tokio::test]
async fn a_stream_names_turn_and_index_and_gives_the_bytes() {
    let (session, ring) = (SessionId::random(), ring("d1", 'd'));
    let driver = FakeDriver::start(session.clone(), &ring, Manner::Status(200)).await;
    let connection = DriverConnection::open(driver.address, &target(&session), &ring)
        .await
        .expect("a driver");
    let mut stream = connection
        .stream(TurnNo(3), PartIndex(91))
        .await
        .expect("a stream");
    let mut bytes = Vec::new();
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece.expect("bytes"));
    }
    assert_eq!(bytes, b"said");
    let seen = driver.seen.lock().expect("no panic").clone();
    assert_eq!(seen[1].0, "/stream?turn=3&from=91");
    assert_eq!(
        (seen[1].1.op, seen[1].1.trn),
        (DriverOp::Stream, Some(TurnNo(3)))
    );
}

#[tokio::test]
async fn a_driver_that_will_not_speak_a_turn_says_so() {
    let (session, ring) = (SessionId::random(), ring("d1", 'd'));
    let driver = FakeDriver::start(session.clone(), &ring, Manner::Status(404)).await;
    let connection = DriverConnection::open(driver.address, &target(&session), &ring)
        .await
        .expect("a driver");
    let refused = connection
        .stream(TurnNo(3), PartIndex(0))
        .await
        .expect_err("refused");
    assert!(matches!(refused, CallError::NotSpoken), "{refused:?}");
}

#[tokio::test]
async fn a_sandbox_of_a_removed_key_is_not_dialled() {
    let session = SessionId::random();
    let ring = ring("d2", 'd');
    let nowhere = "127.0.0.1:1".parse().expect("an address");
    let refused = DriverConnection::open(nowhere, &target(&session), &ring)
        .await
        .expect_err("no");
    assert!(matches!(refused, DialError::UnknownKey(_)), "{refused:?}");
}
