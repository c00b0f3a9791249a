//! A listener with everything around it scripted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bex_gateway::exec::{Exec, ExecDeps, ExecLimits, ExecRecords, SandboxRecord};
use bex_gateway::metrics::Metrics;
use bex_gateway::sandbox::{ExecPipe, ExecStartError, Look, Process, TargetRef, Targets};
use bex_gateway::serve::{ServeOptions, Serving, serve};
use bex_proto::exec::{ExecError, Exit, Frame, FrameDecoder, FrameKind, Operation, SandboxRequest};
use bex_proto::ticket::{ExecClaims, KeyRing, random_jti};
use bex_proto::transcript::sha256_hex;
use bex_proto::{Generation, SessionId, TurnNo};
use bex_store::StoreError;
use bex_store::tickets::Burn;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};

pub const GENERATION: Generation = Generation(2);

pub fn ring(kid: &str, digit: char) -> KeyRing {
    KeyRing::parse(&format!("{kid}:{}", String::from(digit).repeat(64))).expect("a ring")
}

/// What a scripted in-sandbox process prints.
pub type Script = Arc<dyn Fn(SandboxRequest) -> Vec<Say> + Send + Sync>;

/// One thing such a process does.
pub enum Say {
    /// Prints.
    Bytes(Vec<u8>),
    /// Neither prints nor ends.
    Hang,
}

/// Sandboxes as a test wants them.
pub struct ScriptedTargets {
    pub look: Mutex<Look>,
    pub script: Mutex<Script>,
    /// Processes started, and those still held.
    pub started: AtomicU64,
    pub alive: Arc<AtomicBool>,
}

impl ScriptedTargets {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            look: Mutex::new(running("127.0.0.1:1".parse().expect("an address"))),
            script: Mutex::new(Arc::new(|_| Vec::new())),
            started: AtomicU64::new(0),
            alive: Arc::new(AtomicBool::new(false)),
        })
    }
}

struct Keep(Arc<AtomicBool>);

impl Process for Keep {}

impl Drop for Keep {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[async_trait]
impl Targets for ScriptedTargets {
    async fn look(&self, _: &TargetRef) -> Look {
        *self.look.lock().expect("no panic")
    }

    async fn exec(
        &self,
        target: &TargetRef,
        request: SandboxRequest,
    ) -> Result<ExecPipe, ExecStartError> {
        self.look(target).await.lets_in(&request.operation)?;
        self.started.fetch_add(1, Ordering::SeqCst);
        self.alive.store(true, Ordering::SeqCst);
        let said = self.script.lock().expect("no panic")(request);
        let (mut theirs, ours): (DuplexStream, DuplexStream) = tokio::io::duplex(4096);
        tokio::spawn(async move {
            for one in said {
                match one {
                    Say::Bytes(bytes) => {
                        if theirs.write_all(&bytes).await.is_err() {
                            return;
                        }
                    }
                    Say::Hang => std::future::pending().await,
                }
            }
        });
        Ok(ExecPipe {
            output: Box::pin(ours),
            process: Box::new(Keep(Arc::clone(&self.alive))),
        })
    }
}

/// The store as a test wants it.
#[derive(Default)]
pub struct ScriptedRecords {
    pub burnt: Mutex<BTreeSet<String>>,
    /// How long the last one is kept.
    pub kept: Mutex<Duration>,
    pub prompts: Mutex<BTreeMap<u32, String>>,
    pub revoked: AtomicBool,
    pub broken: AtomicBool,
    pub row: Mutex<Option<SandboxRecord>>,
}

impl ScriptedRecords {
    fn check(&self) -> Result<(), StoreError> {
        if self.broken.load(Ordering::SeqCst) {
            Err(StoreError::Missing { what: "database" })
        } else {
            Ok(())
        }
    }
}

#[async_trait]
impl ExecRecords for ScriptedRecords {
    async fn burn(&self, jti: &str, keep: Duration) -> Result<Burn, StoreError> {
        self.check()?;
        *self.kept.lock().expect("no panic") = keep;
        let fresh = self.burnt.lock().expect("no panic").insert(jti.to_owned());
        Ok(if fresh { Burn::Burnt } else { Burn::Used })
    }

    async fn is_revoked(&self, _: &ExecClaims, _: &SessionId) -> Result<bool, StoreError> {
        Ok(self.revoked.load(Ordering::SeqCst))
    }

    async fn sandbox(
        &self,
        _: &SessionId,
        _: Generation,
    ) -> Result<Option<SandboxRecord>, StoreError> {
        Ok(self.row.lock().expect("no panic").clone())
    }

    async fn prompt(
        &self,
        _: &SessionId,
        turn: TurnNo,
        _: Generation,
    ) -> Result<Option<String>, StoreError> {
        Ok(self.prompts.lock().expect("no panic").get(&turn.0).cloned())
    }
}

/// A running listener.
pub struct House {
    pub address: SocketAddr,
    pub session: SessionId,
    pub targets: Arc<ScriptedTargets>,
    pub records: Arc<ScriptedRecords>,
    pub metrics: Arc<Metrics>,
    pub ring: KeyRing,
    pub driver_ring: KeyRing,
    _serving: Serving,
}

impl House {
    pub async fn new() -> Self {
        Self::with(ExecLimits::default(), Some(ring("e1", 'e'))).await
    }

    pub async fn with(limits: ExecLimits, exec_keys: Option<KeyRing>) -> Self {
        let scripted = ScriptedTargets::new();
        Self::build(
            limits,
            exec_keys,
            scripted.clone(),
            scripted,
            SessionId::random(),
        )
        .await
    }

    /// Over real sandboxes; the scripted ones are not asked.
    pub async fn over(targets: Arc<dyn Targets>, session: SessionId) -> Self {
        let limits = ExecLimits::default();
        Self::build(
            limits,
            Some(ring("e1", 'e')),
            targets,
            ScriptedTargets::new(),
            session,
        )
        .await
    }

    async fn build(
        limits: ExecLimits,
        exec_keys: Option<KeyRing>,
        targets: Arc<dyn Targets>,
        scripted: Arc<ScriptedTargets>,
        session: SessionId,
    ) -> Self {
        let records = Arc::new(ScriptedRecords::default());
        *records.row.lock().expect("no panic") = Some(SandboxRecord {
            legacy: false,
            driver_kid: "d1".into(),
        });
        let metrics = Arc::new(Metrics::new());
        let driver_ring = ring("d1", 'd');
        let exec = Arc::new(Exec::new(ExecDeps {
            records: records.clone(),
            targets,
            driver_keys: Arc::new(driver_ring.clone()),
            exec_keys,
            metrics: metrics.exec.clone(),
            limits,
        }));
        let (listener, address) = listen().await;
        let options = ServeOptions {
            name: "exec",
            connections: 16,
        };
        let serving = serve(
            listener,
            options,
            metrics.serve.clone(),
            move |request, peer| Arc::clone(&exec).handle(request, peer),
        );
        Self {
            address,
            session,
            targets: scripted,
            records,
            metrics,
            ring: ring("e1", 'e'),
            driver_ring,
            _serving: serving,
        }
    }

    pub fn look(&self, look: Look) {
        *self.targets.look.lock().expect("no panic") = look;
    }

    pub fn script(&self, script: impl Fn(SandboxRequest) -> Vec<Say> + Send + Sync + 'static) {
        *self.targets.script.lock().expect("no panic") = Arc::new(script);
    }

    pub fn started(&self) -> u64 {
        self.targets.started.load(Ordering::SeqCst)
    }

    pub fn alive(&self) -> bool {
        self.targets.alive.load(Ordering::SeqCst)
    }

    /// Claims that fit `operation`.
    pub fn claims(&self, operation: &Operation) -> ExecClaims {
        let now = jiff::Timestamp::now().as_second();
        ExecClaims {
            sub: "system:agent-session-completer".into(),
            ws: "demo".parse().expect("an id"),
            ses: Some(self.session.clone()),
            generation: GENERATION,
            pod: format!("{}-g{GENERATION}", self.session),
            pod_uid: "uid-1".into(),
            ns: "demo-sandbox".into(),
            container: "sandbox".into(),
            op: operation.name(),
            body: sha256_hex(&body(operation)),
            iat: now,
            exp: now + 60,
            jti: random_jti(),
        }
    }

    /// One good request.
    pub async fn call(&self, operation: &Operation) -> Answer {
        self.ask(
            Some(&self.claims(operation).sign(&self.ring)),
            body(operation),
        )
        .await
    }

    pub async fn ask(&self, ticket: Option<&str>, body: Vec<u8>) -> Answer {
        let mut request = Request::builder().method(Method::POST).uri("/v1/exec");
        if let Some(ticket) = ticket {
            request = request.header("x-bex-exec-ticket", ticket);
        }
        self.send(
            request
                .body(Full::new(Bytes::from(body)))
                .expect("a request"),
        )
        .await
    }

    pub async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        Answer::read(self.begin(request).await).await
    }

    /// Up to the head of the answer.
    pub async fn begin(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let socket = TcpStream::connect(self.address)
            .await
            .expect("a connection");
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket))
            .await
            .expect("a handshake");
        tokio::spawn(connection);
        sender.send_request(request).await.expect("an answer")
    }
}

pub fn body(operation: &Operation) -> Vec<u8> {
    serde_json::to_vec(operation).expect("plain data")
}

pub fn running(address: SocketAddr) -> Look {
    Look::Running {
        address,
        terminating: false,
    }
}

pub async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    async fn read(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = body
            .collect()
            .await
            .expect("a whole body")
            .to_bytes()
            .to_vec();
        Self {
            status: head.status,
            headers: head.headers,
            body,
        }
    }

    /// The problem's code; the document must be one.
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(
            self.headers["content-type"], "application/problem+json",
            "{self:?}"
        );
        let problem: serde_json::Value = serde_json::from_slice(&self.body).expect("json");
        assert_eq!(problem["status"], self.status.as_u16());
        (
            self.status.as_u16(),
            problem["code"].as_str().expect("a code").to_owned(),
        )
    }

    pub fn frames(&self) -> Vec<Frame> {
        assert_eq!(self.status, 200, "{self:?}");
        assert_eq!(self.headers["content-type"], "application/vnd.bex.exec");
        let mut decoder = FrameDecoder::default();
        decoder.push(&self.body);
        let mut frames = Vec::new();
        while let Some(frame) = decoder.next_frame().expect("well-formed") {
            frames.push(frame);
        }
        assert!(!decoder.is_torn());
        frames
    }

    /// Bytes of one kind.
    pub fn bytes(&self, kind: FrameKind) -> Vec<u8> {
        let frames = self.frames();
        frames
            .iter()
            .filter(|f| f.kind == kind)
            .flat_map(|f| f.payload.to_vec())
            .collect()
    }

    /// The last frame, which must be an exit.
    pub fn exit(&self) -> Exit {
        let frames = self.frames();
        let last = frames.last().expect("a frame");
        assert_eq!(last.kind, FrameKind::Exit, "{last:?}");
        serde_json::from_slice(&last.payload).expect("an exit")
    }

    /// The last frame, which must be an error.
    pub fn error(&self) -> ExecError {
        let frames = self.frames();
        let last = frames.last().expect("a frame");
        assert_eq!(last.kind, FrameKind::Error, "{last:?}");
        serde_json::from_slice(&last.payload).expect("an error")
    }
}

/// Waits until `level` holds, 10 s at most.
pub async fn eventually(level: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !level() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the level was never reached"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
