//! An api of one's own on a loopback port, and short words for what tests say often.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use bex_api::auth::{Authenticator, ServiceTokens, Verifier};
use bex_api::exec_client::{ExecFailure, ExecTarget};
use bex_api::export::Exporter;
use bex_api::http::{Activity, Api, Reports, SandboxCalls, router, serve};
use bex_api::metrics::Metrics;
use bex_api::notices::Notices;
use bex_api::package::SharedPackager;
use bex_api::profiles::{Deployment, Profiles};
use bex_api::proof::ProofRing;
use bex_api::remote::{Announcer, Builders};
use bex_api::tickets::AttachTickets;
use bex_proto::driver::{TurnDigest, TurnEnd, TurnState};
use bex_proto::ids::PartId;
use bex_proto::ticket::{AttachClaims, KeyRing};
use bex_proto::transcript::{Part, inspect, sha256_hex};
use bex_proto::{Generation, SessionId, TurnNo, limits};
use bex_store::dispatch::{BeginDelivery, BeginGeneration, Delivery, NewSandbox, Step};
use bex_store::listen::{Listener, Source};
use bex_store::settle::{Cause, SandboxAfter, Settle, Settled};
use bex_store::transcript::{Append, AppendOutcome, Marks};
use bex_store::{Db, DbConfig};
use bex_testpg::Database;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::replay::Made;

pub const VIEWER: &str = "viewer-token";
pub const OPERATOR: &str = "operator-token";
pub const ADMIN: &str = "admin-token";
/// An admin of another workspace.
pub const STRANGER: &str = "stranger-token";
/// An admin of every workspace.
pub const EVERYWHERE: &str = "everywhere-token";

/// How long the turns verb waits in these tests.
pub const TURN_WAIT: Duration = Duration::from_millis(300);

/// A gateway that answers as it is told.
#[derive(Default)]
pub struct Scripted {
    pub activity: Mutex<Option<Activity>>,
    pub refusal: Mutex<Option<ExecFailure>>,
    pub frames: Mutex<Bytes>,
    pub calls: Mutex<Vec<String>>,
}

impl Scripted {
    fn call(&self, text: String) -> Result<(), ExecFailure> {
        self.calls.lock().unwrap().push(text);
        self.refusal.lock().unwrap().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl SandboxCalls for Scripted {
    async fn activity(&self, _: &ExecTarget, _: TurnNo, _: u64) -> Activity {
        self.activity.lock().unwrap().unwrap_or(Activity::Speaking)
    }

    async fn stop(&self, target: &ExecTarget, turn: TurnNo) -> Result<(), ExecFailure> {
        self.call(format!("stop {} {turn}", target.pod_uid))
    }

    async fn run(
        &self,
        target: &ExecTarget,
        subject: &str,
        argv: Vec<String>,
        stdin: Option<String>,
    ) -> Result<Body, ExecFailure> {
        self.call(format!(
            "run {} {subject} {argv:?} {stdin:?}",
            target.pod_uid
        ))?;
        Ok(Body::from(self.frames.lock().unwrap().clone()))
    }
}

pub struct World {
    pub db: Db,
    pub database: Database,
    pub sandboxes: Arc<Scripted>,
    pub ring: KeyRing,
    pub proof: Arc<ProofRing>,
    pub address: SocketAddr,
    pub metrics: Metrics,
    pub packages_dir: tempfile::TempDir,
    packages: Option<SharedPackager>,
    client: Client<HttpConnector, Full<Bytes>>,
    _cancel: DropGuard,
}

/// One answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub fn ok(self, status: u16) -> Value {
        assert_eq!(
            self.status,
            status,
            "{}",
            String::from_utf8_lossy(&self.body)
        );
        self.json()
    }

    /// A problem with this code; its status is the code's own.
    #[track_caller]
    pub fn refused(self, code: &str) -> Value {
        let problem = self.json();
        assert_eq!(
            problem["code"],
            code,
            "{}",
            String::from_utf8_lossy(&self.body)
        );
        assert_eq!(problem["status"], self.status);
        assert_eq!(self.header("content-type"), "application/problem+json");
        problem
    }
}

impl World {
    pub async fn new() -> Self {
        Self::with_live_limit(100).await
    }

    pub async fn with_live_limit(live_limit: u32) -> Self {
        // a gate takes its time to check itself
        Self::with(live_limit, |_| None).await
    }

    /// With a maker of packages of one's own.
    pub async fn with_packages(make: impl FnOnce(Made<'_>) -> Option<SharedPackager>) -> Self {
        Self::with(100, make).await
    }

    async fn with(live_limit: u32, make: impl FnOnce(Made<'_>) -> Option<SharedPackager>) -> Self {
        let key = bex_store::migrate::schema_fingerprint();
        let build = |url: String| async move {
            bex_store::migrate(&DbConfig::new(url, "test"))
                .await
                .map(|_| ())
        };
        let database = bex_testpg::server()
            .unwrap()
            .database_from(&key, build)
            .await
            .unwrap();
        // as the api's own role, so that a missing grant fails here
        let separator = if database.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{separator}options=-c%20role%3Dbex_api", database.url);
        let db = Db::connect(&DbConfig::new(url, "test")).unwrap();
        let cancel = CancellationToken::new();
        let notices = Notices::default();
        let listener =
            Listener::start(Source::Listen(DbConfig::new(&database.url, "test"))).unwrap();
        let mut heard = notices.subscribe();
        tokio::spawn(notices.clone().pump(listener, cancel.clone()));
        // from its first event on the listener misses nothing
        heard.next().await;

        let ring = KeyRing::parse(&format!("k:{}", "ab".repeat(32))).unwrap();
        let profiles = r#"{"profiles":{"demo":{"agent":{"kind":"acp","argv":["/bin/true"]}},
            "command":{"agent":{"kind":"command"},"args":"caller"}}}"#;
        let sandboxes = Arc::new(Scripted::default());
        let proof = ProofRing::parse(&format!("p:{}", "cd".repeat(32))).unwrap();
        let proof = Arc::new(proof);
        let all_metrics = Metrics::default();
        let metrics = all_metrics.http.clone();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let packages_dir = tempfile::tempdir().unwrap();
        let packages = make(Made {
            db: &db,
            metrics: &all_metrics,
            address,
            dir: packages_dir.path(),
        });
        let builders = Builders::new(db.clone(), Default::default(), cancel.clone());
        tokio::spawn(builders.clone().run());
        let announcer = Announcer::default();
        tokio::spawn(announcer.clone().run(db.clone(), cancel.clone()));
        let api = Arc::new(Api {
            db: db.clone(),
            auth: Authenticator::new(vec![Verifier::ServiceTokens(tokens())]),
            profiles: Arc::new(Profiles::parse(profiles, Deployment::Local, None).unwrap()),
            tickets: AttachTickets::new(ring.clone(), "https://stream.example".into()),
            sandboxes: Arc::clone(&sandboxes) as Arc<dyn SandboxCalls>,
            notices,
            exports: Exporter::new(db.clone(), Some(Arc::clone(&proof)), Default::default()),
            proof: Some(Arc::clone(&proof)),
            retention_days: 0,
            live_limit,
            turn_wait: TURN_WAIT,
            metrics: metrics.clone(),
            builders,
            remote_metrics: Default::default(),
            announcer,
            reports: Reports::default(),
            packages: packages.clone(),
        });
        tokio::spawn(serve::serve(
            listener,
            "rest",
            router(api),
            metrics,
            cancel.clone(),
            Duration::ZERO,
        ));
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self {
            db,
            database,
            sandboxes,
            ring,
            proof,
            address,
            metrics: all_metrics,
            packages_dir,
            packages,
            client,
            _cancel: cancel.drop_guard(),
        }
    }

    /// Who makes packages here.
    pub fn packager(&self) -> &SharedPackager {
        self.packages.as_ref().unwrap()
    }

    pub async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let response = self.client.request(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        }
    }

    pub fn request(&self, token: &str, method: &str, path: &str) -> http::request::Builder {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address));
        if token.is_empty() {
            request
        } else {
            request.header("authorization", format!("Bearer {token}"))
        }
    }

    pub async fn get(&self, token: &str, path: &str) -> Answer {
        self.send(
            self.request(token, "GET", path)
                .body(Full::default())
                .unwrap(),
        )
        .await
    }

    pub async fn post(&self, token: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() {
            Bytes::new()
        } else {
            Bytes::from(body.to_string())
        };
        self.send(
            self.request(token, "POST", path)
                .body(Full::new(body))
                .unwrap(),
        )
        .await
    }

    pub async fn post_keyed(&self, token: &str, path: &str, key: &str, body: &Value) -> Answer {
        let request = self
            .request(token, "POST", path)
            .header("idempotency-key", key);
        self.send(
            request
                .body(Full::new(Bytes::from(body.to_string())))
                .unwrap(),
        )
        .await
    }

    pub async fn call(&self, token: &str, method: &str, path: &str) -> Answer {
        self.send(
            self.request(token, &method.to_uppercase(), path)
                .body(Full::default())
                .unwrap(),
        )
        .await
    }

    /// A session through the api, by the operator.
    pub async fn create(&self) -> SessionId {
        let session = self
            .post(OPERATOR, "/v1/agent-sessions", &create_body())
            .await
            .ok(201);
        session["id"].as_str().unwrap().parse().unwrap()
    }

    /// A session whose first turn is being spoken by generation 1.
    pub async fn running(&self) -> SessionId {
        let session = self.create().await;
        self.deliver(&session).await;
        session
    }

    /// A session whose first turn succeeded.
    pub async fn finished(&self, sandbox: SandboxAfter) -> SessionId {
        let session = self.running().await;
        self.settle(&session, TurnNo(1), Generation(1), sandbox)
            .await;
        session
    }

    /// What the dispatcher does.
    pub async fn deliver(&self, session: &SessionId) {
        let claims = self.db.claim_dispatches("test", 100).await.unwrap();
        let claim = claims
            .into_iter()
            .find(|claim| claim.session == *session)
            .unwrap();
        let sandbox = NewSandbox {
            kind: "local",
            namespace: "demo-sandbox",
            container: "sandbox",
            legacy: false,
            driver_kid: "k",
        };
        let begun = self.db.begin_generation(&claim, &sandbox).await.unwrap();
        let BeginGeneration::Begun { generation, .. } = begun else {
            panic!("{begun:?}")
        };
        assert_eq!(
            self.db
                .sandbox_ready(&claim, generation, "uid-1")
                .await
                .unwrap(),
            Step::Done
        );
        assert_eq!(
            self.db.begin_delivery(&claim, generation).await.unwrap(),
            BeginDelivery::Begun
        );
        assert_eq!(
            self.db.delivered(&claim, Delivery::Accepted).await.unwrap(),
            Step::Done
        );
    }

    /// What the Completer does when the driver ended an empty turn well; a sandbox that is to stop is gone then.
    pub async fn settle(
        &self,
        session: &SessionId,
        turn: TurnNo,
        generation: Generation,
        sandbox: SandboxAfter,
    ) {
        self.db.make_due(session).await.unwrap();
        let leases = self
            .db
            .claim_leases("test", 1000, limits::IDLE_GRACE)
            .await
            .unwrap();
        let lease = leases
            .into_iter()
            .find(|lease| lease.session == *session)
            .unwrap();
        let row = self.db.turn(session, turn).await.unwrap().unwrap();
        let mut digest = TurnDigest::default();
        for part in self
            .db
            .read_page(session, PartId::first_of(turn), 1000, 1 << 20)
            .await
            .unwrap()
        {
            digest.add(&part.bytes);
        }
        let end = TurnEnd {
            turn,
            parts: row.stored_parts,
            bytes: row.stored_bytes,
            sha256: digest.hex(),
            state: TurnState::Succeeded,
            dropped: None,
        };
        self.db
            .record_turn_end(session, generation, &end)
            .await
            .unwrap();
        let settle = Settle {
            turn,
            generation,
            cause: Cause::DriverEnded,
            legacy: None,
            sandbox,
            failure: None,
        };
        let settled = self.db.settle(&lease, &settle).await.unwrap();
        assert!(matches!(settled, Settled::Now { .. }), "{settled:?}");
        if sandbox == SandboxAfter::Stopping {
            // as after its teardown
            assert!(self.db.mark_gone(&lease, generation).await.unwrap());
        }
        self.db
            .release_lease(&lease, Duration::ZERO, bex_store::leases::Round::Done)
            .await
            .unwrap();
    }

    /// Stores parts of turn 1 by index.
    pub async fn append(&self, session: &SessionId, indexes: std::ops::Range<u32>) {
        let parts: Vec<Part> = indexes.map(part).collect();
        let batch = Append {
            session,
            turn: TurnNo(1),
            generation: Generation(1),
            parts: &parts,
            marks: Marks::Clean,
            harvest: None,
        };
        let outcome = self.db.append(batch).await.unwrap();
        assert!(matches!(outcome, AppendOutcome::Stored(_)), "{outcome:?}");
    }

    /// Parts of turn 1, from index 0.
    pub async fn speak(&self, session: &SessionId, parts: &[&str]) {
        let ids = (0..).map(|index| PartId::new(1, index));
        let parts: Vec<Part> = ids
            .zip(parts)
            .map(|(id, part)| Part {
                id,
                head: inspect(part.as_bytes()).unwrap(),
                bytes: Bytes::copy_from_slice(part.as_bytes()),
                spoken_at: None,
            })
            .collect();
        let batch = Append {
            session,
            turn: TurnNo(1),
            generation: Generation(1),
            parts: &parts,
            marks: Marks::Clean,
            harvest: None,
        };
        let outcome = self.db.append(batch).await.unwrap();
        assert!(matches!(outcome, AppendOutcome::Stored(_)), "{outcome:?}");
    }

    pub fn sql(&self, sql: &str) -> String {
        self.database.sql(sql).unwrap().trim().to_owned()
    }

    /// The claims behind a ticket of an answer.
    pub fn claims(&self, answer: &Value) -> AttachClaims {
        let now = jiff::Timestamp::now().as_second();
        AttachClaims::verify(answer["ticket"].as_str().unwrap(), &self.ring, now).unwrap()
    }
}

pub fn path(session: &SessionId, rest: &str) -> String {
    format!("/v1/agent-sessions/{session}{rest}")
}

pub fn create_body() -> Value {
    json!({"workspaceId": "demo", "kind": "interactive", "agent": {"profile": "demo"}, "prompt": "do it"})
}

pub fn text_of(index: u32) -> String {
    format!(r#"{{"type":"text-delta","id":"1",  "delta":"part {index}"}}"#)
}

fn part(index: u32) -> Part {
    let text = text_of(index);
    Part {
        id: PartId::new(1, index),
        head: inspect(text.as_bytes()).unwrap(),
        bytes: Bytes::from(text),
        spoken_at: None,
    }
}

fn tokens() -> ServiceTokens {
    let entry = |token: &str, workspace: &str, role: &str| {
        let subject = format!("svc:{}", token.trim_end_matches("-token"));
        json!({"sha256": sha256_hex(token.as_bytes()), "subject": subject, "workspaces": [workspace], "role": role})
    };
    let file = json!([
        entry(VIEWER, "demo", "viewer"),
        entry(OPERATOR, "demo", "operator"),
        entry(ADMIN, "demo", "admin"),
        entry(STRANGER, "other", "admin"),
        entry(EVERYWHERE, "*", "admin"),
    ]);
    ServiceTokens::parse(&file.to_string()).unwrap()
}
