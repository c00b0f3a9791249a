//! The binary with sandboxes that are pods: delivered, watched and read, all through a double of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;

use bex_proto::driver::DriverKey;
use bex_proto::exec::{self, Exit, Frame, FrameDecoder, FrameKind, Operation};
use bex_proto::launch::{
    AgentSpec as LaunchAgent, CONTAINER, Isolation, Launch, POD_DRIVER_BIN, POD_DRIVER_DIR, pod_of,
};
use bex_proto::ticket::{ExecClaims, KeyRing, random_jti};
use bex_proto::transcript::sha256_hex;
use bex_proto::{Generation, SessionId, TurnNo};
use bex_store::dispatch::{BeginDelivery, BeginGeneration, Delivery, NewSandbox, Step};
use bex_store::{Db, DbConfig};
use bex_testk8s::{Cluster, Image, Options, Transport, rights};
use bex_testpg::Database;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use jiff::Timestamp;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::house::{
    Gateway, Login, PATIENCE, database, gateway, get, http1, session, stream_of, until,
};

const NS: &str = "acme-sandbox";
const IMAGE: &str = "sandbox:1";
const PROMPT: &str = "say this again";

fn ring(kid: char) -> KeyRing {
    KeyRing::parse(&format!("{kid}:{}", String::from(kid).repeat(64))).expect("a ring")
}

/// The driver's binary beside this test's own, or in `BEX_BIN_DIR`.
fn driver_bin() -> PathBuf {
    let beside = PathBuf::from(env!("CARGO_BIN_EXE_bex-gateway"));
    let dir =
        std::env::var_os("BEX_BIN_DIR").map_or_else(|| beside.with_file_name(""), PathBuf::from);
    let binary = dir.join("bex-driver");
    assert!(
        binary.exists(),
        "{} is missing: cargo build -p bex-driver",
        binary.display()
    );
    binary
}

async fn cluster() -> Cluster {
    let options = Options {
        transport: Transport::Tls,
        ..Options::default()
    };
    let cluster = Cluster::start(options).await.expect("a cluster");
    cluster.namespace(NS);
    cluster.image(IMAGE, Image::pause().file(POD_DRIVER_BIN, driver_bin()));
    cluster.grant(NS, ("bex", "gateway"), rights::GATEWAY);
    cluster
}

/// A pod as the api makes one, with an agent that repeats its prompt.
fn pod(session: &SessionId, generation: Generation) -> Value {
    let launch = Launch {
        session: session.clone(),
        workspace: "acme".parse().expect("an id"),
        generation,
        key: DriverKey::derive(ring('d').signing_key().1, session, generation).to_hex(),
        listen: "0.0.0.0:8787".parse().expect("an address"),
        dir: POD_DRIVER_DIR.into(),
        workdir: "/tmp".into(),
        agent: LaunchAgent::Command {
            argv: vec!["/bin/cat".into()],
            env: Default::default(),
            credential_files: Vec::new(),
        },
        secrets: Default::default(),
        legacy: None,
        isolation: Isolation::None,
    };
    let launch = serde_json::to_string(&launch).expect("plain data");
    json!({"metadata": {"name": pod_of(session, generation), "annotations": {"bex/launch": launch}},
        "spec": {"restartPolicy": "Never",
            "volumes": [{"name": "driver", "emptyDir": {}}, {"name": "launch", "downwardAPI": {"items":
                [{"path": "launch.json", "fieldRef": {"fieldPath": "metadata.annotations['bex/launch']"}}]}}],
            "containers": [{"name": CONTAINER, "image": IMAGE,
                "command": [POD_DRIVER_BIN, "serve", "--launch", "/etc/bex/launch.json"],
                "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8787}},
                "volumeMounts": [{"name": "driver", "mountPath": POD_DRIVER_DIR},
                    {"name": "launch", "mountPath": "/etc/bex"}]}]}})
}

/// A session whose pod is ready and whose turn is recorded as being delivered; and the pod.
async fn delivered(database: &Database, cluster: &Cluster) -> (SessionId, Value) {
    let db = Db::connect(&DbConfig::new(database.url.clone(), "test")).expect("a pool");
    let session = session(database, PROMPT).await;
    let claims = db.claim_dispatches("test", 10).await.expect("claims");
    let sandbox = NewSandbox {
        kind: "kubernetes",
        namespace: NS,
        container: CONTAINER,
        legacy: false,
        driver_kid: "d",
    };
    let begun = db
        .begin_generation(&claims[0], &sandbox)
        .await
        .expect("begun");
    let BeginGeneration::Begun { generation, .. } = begun else {
        panic!("no generation")
    };
    cluster.create(NS, pod(&session, generation)).expect("made");
    let made = cluster.ready(NS, &pod_of(&session, generation)).await;
    let uid = made["metadata"]["uid"].as_str().expect("a uid");
    assert_eq!(
        db.sandbox_ready(&claims[0], generation, uid)
            .await
            .expect("ready"),
        Step::Done
    );
    let begun = db
        .begin_delivery(&claims[0], generation)
        .await
        .expect("delivering");
    assert_eq!(begun, BeginDelivery::Begun);
    assert_eq!(
        db.delivered(&claims[0], Delivery::Accepted)
            .await
            .expect("delivered"),
        Step::Done
    );
    (session, made)
}

async fn send(to: SocketAddr, request: Request<Full<Bytes>>) -> Response<Incoming> {
    let mut connection = http1(to).await;
    connection.send_request(request).await.expect("an answer")
}

/// Asks the exec listener; the answer up to its body.
async fn begin(
    to: SocketAddr,
    session: &SessionId,
    pod: &Value,
    operation: &Operation,
) -> Response<Incoming> {
    let body = serde_json::to_vec(operation).expect("plain data");
    let now = Timestamp::now().as_second();
    let word = |name: &str| pod["metadata"][name].as_str().expect("a word").to_owned();
    let claims = ExecClaims {
        sub: "system:agent-session-completer".into(),
        ws: "acme".parse().expect("an id"),
        ses: Some(session.clone()),
        generation: Generation(1),
        pod: word("name"),
        pod_uid: word("uid"),
        ns: NS.into(),
        container: CONTAINER.into(),
        op: operation.name(),
        body: sha256_hex(&body),
        iat: now,
        exp: now + 60,
        jti: random_jti(),
    };
    let request = Request::post("/v1/exec")
        .header(exec::TICKET_HEADER, claims.sign(&ring('e')))
        .body(Full::new(body.into()))
        .expect("a request");
    let answer = send(to, request).await;
    assert_eq!(answer.status(), 200, "{:?}", answer.headers());
    answer
}

/// The whole answer's frames.
async fn ask(
    to: SocketAddr,
    session: &SessionId,
    pod: &Value,
    operation: &Operation,
) -> Vec<Frame> {
    let answer = begin(to, session, pod, operation).await;
    let body = answer
        .into_body()
        .collect()
        .await
        .expect("a whole body")
        .to_bytes();
    let mut decoder = FrameDecoder::default();
    decoder.push(&body);
    std::iter::from_fn(|| decoder.next_frame().expect("well-formed")).collect()
}

async fn attach(to: SocketAddr, session: &SessionId) -> Response<Incoming> {
    let answer = send(to, stream_of(to, session, "u")).await;
    assert_eq!(answer.status(), 200);
    answer
}

fn binary(login: &Login<'_>, cluster: &Cluster) -> Gateway {
    let mut command = gateway(&login.url());
    command
        .env("BEX_LISTEN_DATABASE_URL", login.url())
        .env("BEX_SANDBOX_KIND", "kubernetes")
        .env(
            "BEX_KUBECONFIG",
            cluster.kubeconfig("bex", "gateway").expect("a kubeconfig"),
        )
        .env("BEX_POD_NETWORKS", cluster.pod_network())
        .env("BEX_SANDBOX_NAMESPACES", NS);
    Gateway::start(command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_in_a_pod_is_delivered_watched_and_read() {
    let (database, cluster) = (database().await, cluster().await);
    let login = Login::new(&database);
    let (session, pod) = delivered(&database, &cluster).await;
    let mut gateway = binary(&login, &cluster);
    let at = gateway.ready();

    // a viewer is there before the turn begins, and is shown it through the pod's address
    let mut viewer = attach(at.attach, &session).await;
    until(&mut viewer, "data-bex-live").await;
    let turn = Operation::Turn {
        turn: TurnNo(1),
        priming: None,
    };
    let delivered = ask(at.exec, &session, &pod, &turn).await;
    let exit: Exit = serde_json::from_slice(&delivered[0].payload).expect("an exit");
    assert_eq!(exit.exit_code, 0);
    until(&mut viewer, PROMPT).await;

    // the log is read by exec, and says the same
    let observe = Operation::Observe {
        turn: TurnNo(1),
        offset: 0,
    };
    let frames = ask(at.exec, &session, &pod, &observe).await;
    let log: Vec<u8> = frames
        .iter()
        .filter(|f| f.kind == FrameKind::Stdout)
        .flat_map(|f| f.payload.to_vec())
        .collect();
    assert!(String::from_utf8_lossy(&log).contains(PROMPT));
    assert_eq!(frames.last().map(|f| f.kind), Some(FrameKind::Exit));

    // what was shown is stored
    let stored = || {
        let count =
            format!("SELECT parts > 0 FROM transcript_heads WHERE session_id = '{session}'");
        database.sql(&count).expect("counted")
    };
    level("stored", || stored().contains('t')).await;
    drop(viewer);
    gateway.signal(Signal::SIGTERM);
    let (code, log) = gateway.end();
    assert_eq!(code, Some(0), "{log}");
    let loud = log
        .lines()
        .filter(|line| line.contains("\"ERROR\""))
        .collect::<Vec<_>>();
    assert!(loud.is_empty(), "{loud:?}");
    let requests = cluster.requests();
    assert!(
        requests
            .iter()
            .all(|r| r.user == "system:serviceaccount:bex:gateway"),
        "{requests:?}"
    );
    assert!(
        requests.iter().all(|r| r.verb == "get"),
        "it looks and enters, nothing else"
    );
}

/// What is denied is named by the probe as long as it is denied, and where in the log; once ready, a process stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_denied_stops_a_roll_out_and_nothing_that_runs() {
    let (database, cluster) = (database().await, cluster().await);
    let login = Login::new(&database);
    let account = ("bex", "gateway");
    cluster.grant(NS, account, &[("pods", &["get"]), ("pods/exec", &["get"])]);
    let mut gateway = binary(&login, &cluster);
    let admin = gateway.ready().admin;
    level("denied", || {
        let (status, body) = get(admin, "/readyz");
        status == 503 && body.contains("cluster rights: create pods/exec missing")
    })
    .await;
    let (status, body) = get(admin, "/healthz");
    assert_eq!(status, 200, "{body}");
    cluster.grant(NS, account, rights::GATEWAY);
    level("given", || get(admin, "/readyz").0 == 200).await;
    cluster.grant(NS, account, &[]);
    assert_eq!(get(admin, "/readyz").0, 200, "it runs on");
    gateway.signal(Signal::SIGTERM);
    let (_, log) = gateway.end();
    let told = log.lines().find(|l| l.contains("does not give a right"));
    assert!(told.is_some_and(|l| l.contains(NS)), "{log}");
}

/// Nobody denied anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_says_nothing_keeps_no_gateway_away() {
    let (database, cluster) = (database().await, cluster().await);
    let login = Login::new(&database);
    cluster.kill_api_server();
    let mut gateway = binary(&login, &cluster);
    let admin = gateway.ready().admin;
    level("ready", || get(admin, "/readyz").0 == 200).await;
    gateway.signal(Signal::SIGTERM);
    let (_, log) = gateway.end();
    assert!(
        log.contains("nobody tells what may be done in the cluster"),
        "{log}"
    );
}

#[tokio::test]
async fn without_a_cluster_it_does_not_start() {
    let database = database().await;
    let login = Login::new(&database);
    for (name, value, code) in [
        ("BEX_POD_NETWORKS", "", 64),
        ("BEX_POD_NETWORKS", "10.0.0.0/99", 64),
        ("BEX_KUBECONFIG", "relative", 64),
        ("BEX_POD_DRIVER_BIN", "bex-driver", 64),
        ("BEX_SANDBOX_NAMESPACES", "acme-sandbox,../kube-system", 64),
        ("BEX_KUBECONFIG", "/nonexistent", 1),
    ] {
        let mut command = gateway(&login.url());
        command
            .env("BEX_SANDBOX_KIND", "kubernetes")
            .env("BEX_POD_NETWORKS", "10.0.0.0/8")
            .env(name, value);
        let (ended, log) = Gateway::start(command).end();
        assert_eq!(ended, Some(code), "{name}={value}: {log}");
        assert!(code != 64 || log.contains(name), "{log}");
    }
}

/// Looks again and again, for a bounded time.
async fn level(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a living process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line
        .and_then(|line| line.split_whitespace().next())
        .expect("a number");
    kib.parse::<u64>().expect("a number") * 1024
}

/// Fifty windows of 16 MiB at once, whose callers stop reading in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_harvest_costs_the_gateway_at_most_a_mebibyte() {
    const HARVESTS: usize = 50;
    let (database, cluster) = (database().await, cluster().await);
    let login = Login::new(&database);
    let (session, pod) = delivered(&database, &cluster).await;
    let mut log = json!({"type": "log", "generation": 1, "logId": "l1", "turn": 9}).to_string();
    let line = json!({"type": "ui-message", "turn": 9, "partIndex": 0, "part": "x".repeat(4000)})
        .to_string();
    while log.len() + line.len() + 2 < 16 << 20 {
        log.push('\n');
        log += &line;
    }
    log.push('\n');
    let driver = cluster.pod_dir(&pod).join("volumes/driver");
    std::fs::write(driver.join("session-9.jsonl"), &log).expect("a file");
    let mut gateway = binary(&login, &cluster);
    let at = gateway.ready();
    let read = Operation::ReadTranscript {
        turn: TurnNo(9),
        offset: 0,
    };
    // what the first one costs is not each one's
    let first = begin(at.exec, &session, &pod, &read).await;
    first.into_body().collect().await.expect("a whole body");
    let before = resident(gateway.pid());

    let begun = (0..HARVESTS).map(|_| begin(at.exec, &session, &pod, &read));
    let answers = futures::future::join_all(begun).await;
    // every buffer between process and caller is full when nothing moves any more
    let sent = || {
        cluster
            .execs()
            .iter()
            .map(|exec| exec.counts().sent)
            .sum::<u64>()
    };
    let mut seen = 0;
    level("nothing moves", || {
        let before = std::mem::replace(&mut seen, sent());
        seen == before && seen >= (HARVESTS << 20) as u64
    })
    .await;
    let each = (resident(gateway.pid()) - before) / HARVESTS as u64;
    assert!(each <= 1 << 20, "{each} bytes each");
    drop(answers);
    level("nothing is left running", || {
        let execs = cluster.execs();
        execs.iter().all(|exec| exec.processes().is_empty())
    })
    .await;
}
