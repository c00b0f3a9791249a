//! A sandbox of one test: a directory, a driver process, and what a gateway says to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use bex_proto::driver::{
    DriverKey, GRANT_HEADER, LogRecord, PROOF_HEADER, STATUS_FILE, Status, TurnEnd, TurnRequest,
    log_file,
};
use bex_proto::ids::{Generation, SessionId, TurnNo};
use bex_proto::launch::{
    AgentSpec, Isolation, LAUNCH_FILE, LISTENING_FILE, Launch, LegacyTurn, Listening, Pace,
};
use bex_proto::ticket::{DriverGrant, DriverOp, random_jti, turn_digest};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

pub const DRIVER: &str = env!("CARGO_BIN_EXE_bex-driver");
/// Far over what anything here takes; a wait ends when its level is reached.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Sandbox {
    pub root: TempDir,
    pub launch: Launch,
    pub key: DriverKey,
    pub stderr: PathBuf,
    child: Option<Child>,
}

impl Sandbox {
    /// A sandbox that is not started yet.
    pub fn new(agent: AgentSpec) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let (dir, workdir) = (root.path().join("driver"), root.path().join("work"));
        std::fs::create_dir(&dir).expect("a directory");
        std::fs::create_dir(&workdir).expect("a directory");
        let session = SessionId::random();
        let key = DriverKey::derive(b"ring", &session, Generation(1));
        let launch = Launch {
            session,
            workspace: "demo".parse().expect("an id"),
            generation: Generation(1),
            key: key.to_hex(),
            listen: "127.0.0.1:0".parse().expect("an address"),
            dir,
            workdir,
            agent,
            secrets: BTreeMap::new(),
            legacy: None,
            isolation: Isolation::None,
        };
        Self {
            stderr: root.path().join("stderr"),
            root,
            launch,
            key,
            child: None,
        }
    }

    /// One that plays these events.
    pub fn playing<E: AsRef<[u8]>>(events: impl IntoIterator<Item = E>, pace: Pace) -> Self {
        let file = PathBuf::new();
        let mut sandbox = Self::new(AgentSpec::Play { file, pace });
        let file = sandbox.root.path().join("recording.sse");
        let mut text = Vec::new();
        for event in events {
            text.extend_from_slice(b"data: ");
            text.extend_from_slice(event.as_ref());
            text.extend_from_slice(b"\n\n");
        }
        text.extend_from_slice(b"data: [DONE]\n\ndata: {\"type\":\"after-the-end\"}\n\n");
        std::fs::write(&file, text).expect("a file");
        sandbox.launch.agent = AgentSpec::Play { file, pace };
        sandbox
    }

    /// The same with credential files in its directory.
    pub fn with_credential_files(mut self, names: &[&str]) -> Self {
        if let AgentSpec::Acp {
            credential_files, ..
        }
        | AgentSpec::Command {
            credential_files, ..
        } = &mut self.launch.agent
        {
            *credential_files = names.iter().map(|name| (*name).to_owned()).collect();
        }
        self
    }

    /// One that runs a shell script as its program.
    pub fn shell(script: &str) -> Self {
        Self::new(AgentSpec::Command {
            argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            env: BTreeMap::new(),
            credential_files: Vec::new(),
        })
    }

    pub fn legacy(mut self) -> Self {
        self.launch.legacy = Some(LegacyTurn {
            turn: TurnNo(1),
            prompt: "go".into(),
        });
        self
    }

    pub async fn start(mut self) -> Self {
        self.restart().await;
        self
    }

    /// Starts the driver (again) and waits until it listens.
    pub async fn restart(&mut self) {
        let listening = self.launch.dir.join(LISTENING_FILE);
        let _ = std::fs::remove_file(&listening);
        let launch = self.launch.dir.join(LAUNCH_FILE);
        let text = serde_json::to_vec(&self.launch).expect("plain data");
        std::fs::write(&launch, text).expect("a file");
        // a limit on file sizes, by which tests fill the disk, comes with a signal
        let child = Command::new("/bin/sh")
            .args(["-c", r#"trap '' XFSZ; exec "$@""#, "sh", DRIVER, "serve"])
            .arg("--launch")
            .arg(&launch)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&self.stderr).expect("a file"))
            .kill_on_drop(true)
            .spawn()
            .expect("the driver starts");
        self.child = Some(child);
        eventually("the driver listens", || listening.exists()).await;
    }

    pub fn address(&self) -> SocketAddr {
        let text = std::fs::read(self.launch.dir.join(LISTENING_FILE)).expect("it listens");
        let listening: Listening = serde_json::from_slice(&text).expect("an address");
        listening.address
    }

    pub fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it was started")
    }

    /// Kills the driver at once.
    pub async fn kill(&mut self) {
        self.child().kill().await.expect("killed");
    }

    pub fn sigterm(&mut self) {
        let pid = self.child().id().expect("it runs");
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("signalled");
    }

    /// Lets the driver's files grow to this size and no further, as a full disk would; `unlimited` takes it back.
    pub fn limit_files(&mut self, bytes: &str) {
        let pid = self.child().id().expect("it runs").to_string();
        let done = std::process::Command::new("prlimit")
            .args(["--pid", &pid, &format!("--fsize={bytes}:")])
            .status()
            .expect("prlimit runs");
        assert!(done.success());
    }

    pub fn grant(&self, op: DriverOp, turn: Option<u32>) -> DriverGrant {
        let now = jiff::Timestamp::now().as_second();
        DriverGrant {
            op,
            trn: turn.map(TurnNo),
            body: None,
            iat: now,
            exp: now + 15,
            jti: random_jti(),
        }
    }

    /// One call with any token on a connection of its own.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: String,
    ) -> Response<Incoming> {
        let socket = TcpStream::connect(self.address()).await.expect("connects");
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket))
            .await
            .expect("speaks http");
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "driver");
        if let Some(token) = token {
            request = request.header(GRANT_HEADER, token);
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .expect("a request");
        sender.send_request(request).await.expect("an answer")
    }

    /// One granted call, its proof checked.
    async fn granted(
        &self,
        method: Method,
        path: &str,
        grant: DriverGrant,
        body: String,
    ) -> Response<Incoming> {
        let response = self
            .call(method, path, Some(&grant.sign(&self.key)), body)
            .await;
        let proof = response
            .headers()
            .get(PROOF_HEADER)
            .expect("a proof")
            .to_str()
            .expect("ascii");
        assert!(self.key.verify_proof(
            proof,
            &grant.jti,
            &self.launch.session,
            self.launch.generation
        ));
        response
    }

    pub async fn turn(&self, turn: u32, prompt: &str, priming: Option<&str>) -> StatusCode {
        let request = TurnRequest {
            turn: TurnNo(turn),
            prompt: prompt.into(),
            priming: priming.map(str::to_owned),
        };
        let grant = DriverGrant {
            body: Some(turn_digest(prompt, priming)),
            ..self.grant(DriverOp::Turn, Some(turn))
        };
        let body = serde_json::to_string(&request).expect("plain data");
        self.granted(Method::POST, "/turn", grant, body)
            .await
            .status()
    }

    pub async fn stop(&self, turn: u32) -> StatusCode {
        let grant = self.grant(DriverOp::Stop, Some(turn));
        let body = format!("{{\"turn\":{turn}}}");
        self.granted(Method::POST, "/stop", grant, body)
            .await
            .status()
    }

    pub async fn open_stream(&self, turn: u32, from: u32) -> Response<Incoming> {
        let grant = self.grant(DriverOp::Stream, Some(turn));
        let path = format!("/stream?turn={turn}&from={from}");
        self.granted(Method::GET, &path, grant, String::new()).await
    }

    /// A turn's parts from an index on, to the end; the end must be said.
    pub async fn stream(&self, turn: u32, from: u32) -> Vec<(String, String)> {
        let response = self.open_stream(turn, from).await;
        assert_eq!(response.status(), StatusCode::OK);
        read_events(response).await
    }

    /// As [`Sandbox::stream`] from the start, and only the parts; the ids are checked to be 0, 1, 2, …
    pub async fn parts(&self, turn: u32) -> Vec<String> {
        let events = self.stream(turn, 0).await;
        for (index, (id, _)) in events.iter().enumerate() {
            assert_eq!(*id, format!("{turn}.{index}"));
        }
        events.into_iter().map(|(_, part)| part).collect()
    }

    pub fn log_path(&self, turn: u32) -> PathBuf {
        self.launch.dir.join(log_file(TurnNo(turn)))
    }

    pub fn status(&self) -> Option<Status> {
        let text = std::fs::read(self.launch.dir.join(STATUS_FILE)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Waits for a turn's last record.
    pub async fn ended(&self, turn: u32) -> TurnEnd {
        let path = self.log_path(turn);
        eventually("the turn ends", || turn_end(&path).is_some()).await;
        turn_end(&path).expect("just seen")
    }
}

/// Waits for a level, for a bounded time.
pub async fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub fn turn_end(path: &Path) -> Option<TurnEnd> {
    let text = std::fs::read(path).ok()?;
    let last = text.strip_suffix(b"\n")?.rsplit(|b| *b == b'\n').next()?;
    match LogRecord::parse(last) {
        Some(LogRecord::TurnEnd(end)) => Some(end),
        _ => None,
    }
}

/// The parts in a log, in order.
pub fn logged(path: &Path) -> Vec<(u32, String)> {
    let text = std::fs::read(path).expect("a log");
    let lines = text.split(|b| *b == b'\n');
    lines
        .filter_map(|line| match LogRecord::parse(line) {
            Some(LogRecord::UiMessage {
                part_index: Some(index),
                part,
                ..
            }) => Some((index.0, part.to_owned())),
            _ => None,
        })
        .collect()
}

/// Ids and data of a stream that says its end.
pub async fn read_events(response: Response<Incoming>) -> Vec<(String, String)> {
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a whole body")
        .to_bytes();
    let text = std::str::from_utf8(&body).expect("text");
    let mut events = Vec::new();
    for block in text
        .split("\n\n")
        .filter(|b| !b.is_empty() && !b.starts_with(':'))
    {
        let (id, data) = match block.split_once('\n') {
            Some((id, data)) => (id.strip_prefix("id: ").expect("an id"), data),
            None => ("", block),
        };
        events.push((
            id.to_owned(),
            data.strip_prefix("data: ").expect("data").to_owned(),
        ));
    }
    assert_eq!(
        events.pop(),
        Some((String::new(), "[DONE]".to_owned())),
        "the end is said last"
    );
    events
}

/// Small parts that differ.
pub fn parts(count: u32) -> Vec<String> {
    (0..count)
        .map(|n| format!(r#"{{"type":"text-delta","id":"1","delta":"{n} "}}"#))
        .collect()
}
