//! A database, a login of its own, the binary with both, and a viewer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use bex_proto::SessionId;
use bex_proto::session::SessionKind;
use bex_proto::ticket::{ATTACH_HEADER, AttachClaims, KeyRing};
use bex_store::sessions::{AgentSpec, NewSession};
use bex_store::{Db, DbConfig};
use bex_testpg::Database;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The longest a test waits for the process.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The attach ring.
pub fn attach_keys() -> String {
    format!("a:{}", "a".repeat(64))
}

/// Where a process listens.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// For viewers.
    pub attach: SocketAddr,
    /// For apis.
    pub exec: SocketAddr,
    /// For probes.
    pub admin: SocketAddr,
}

/// A database with the schema.
pub async fn database() -> Database {
    let key = bex_store::migrate::schema_fingerprint();
    let build = |url: String| async move {
        bex_store::migrate(&DbConfig::new(url, "test"))
            .await
            .map(|_| ())
    };
    bex_testpg::server()
        .expect("a server")
        .database_from(&key, build)
        .await
        .expect("a database")
}

/// A session whose first turn is not dispatched yet.
pub async fn session(database: &Database, prompt: &str) -> SessionId {
    let db = Db::connect(&DbConfig::new(database.url.clone(), "test")).expect("a pool");
    let new = NewSession {
        id: SessionId::random(),
        workspace: "acme".parse().expect("an id"),
        kind: SessionKind::Interactive,
        workflow_id: None,
        title: None,
        repo: None,
        branch: None,
        agent: AgentSpec {
            profile: "demo".into(),
            model: None,
            args: vec![],
            env: vec![],
        },
        prompt: prompt.into(),
        created_by: "somebody".into(),
        live_limit: 10,
        idempotency: None,
    };
    db.create_session(&new).await.expect("created");
    new.id
}

/// Asks for a session's stream.
pub fn stream_of(to: SocketAddr, session: &SessionId, subject: &str) -> Request<Full<Bytes>> {
    let now = Timestamp::now().as_second();
    let workspace = "acme".parse().expect("an id");
    let claims = AttachClaims::to_read(session, workspace, subject, now);
    let ring = KeyRing::parse(&attach_keys()).expect("a ring");
    Request::get(format!("http://{to}/v1/agent-sessions/{session}/stream"))
        .header("host", to.to_string())
        .header(ATTACH_HEADER, claims.sign(&ring))
        .body(Full::default())
        .expect("a request")
}

/// Reads on until the stream said `wanted`.
pub async fn until(stream: &mut Response<Incoming>, wanted: &str) {
    let mut said = String::new();
    while !said.contains(wanted) {
        let frame = tokio::time::timeout(PATIENCE, stream.body_mut().frame()).await;
        let frame = frame.unwrap_or_else(|_| panic!("never: {wanted} in {said}"));
        let frame = frame.unwrap_or_else(|| panic!("ended before {wanted}: {said}"));
        let data = frame.expect("not broken").into_data().expect("data");
        said.push_str(std::str::from_utf8(&data).expect("text"));
    }
}

/// A connection of HTTP/1.1.
pub async fn http1(to: SocketAddr) -> http1::SendRequest<Full<Bytes>> {
    let socket = tokio::net::TcpStream::connect(to).await;
    let socket = TokioIo::new(socket.expect("a connection"));
    let (sender, connection) = http1::handshake(socket).await.expect("a handshake");
    tokio::spawn(connection);
    sender
}

/// A login user of its own that is a member of the gateway's role; users belong to the whole server.
pub struct Login<'a> {
    database: &'a Database,
    name: String,
}

impl<'a> Login<'a> {
    /// Makes the user.
    pub fn new(database: &'a Database) -> Self {
        let name = format!("gateway_{}", database.name());
        database
            .sql(&format!("CREATE ROLE {name} LOGIN IN ROLE bex_gateway"))
            .expect("a role");
        Self { database, name }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.database.url_as(&self.name)
    }
}

impl Drop for Login<'_> {
    fn drop(&mut self) {
        let _ = self.database.sql(&format!("DROP ROLE {}", self.name));
    }
}

/// The binary with a configuration that is good.
pub fn gateway(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bex-gateway"));
    command
        .env_clear()
        .env("BEX_DATABASE_URL", url)
        .env("BEX_ATTACH_LISTEN", "127.0.0.1:0")
        .env("BEX_EXEC_LISTEN", "127.0.0.1:0")
        .env("BEX_ADMIN_LISTEN", "127.0.0.1:0")
        .env("BEX_ATTACH_KEYS", attach_keys())
        .env("BEX_EXEC_KEYS", format!("e:{}", "e".repeat(64)))
        .env("BEX_DRIVER_KEYS", format!("d:{}", "d".repeat(64)))
        .env("BEX_SANDBOX_KIND", "local")
        .env("BEX_LOCAL", "1")
        .env("BEX_SANDBOX_DIR", "/nonexistent")
        .env("BEX_DRIVER_BIN", "/nonexistent")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// A started process, killed with its owner.
pub struct Gateway {
    child: Child,
    log: BufReader<ChildStderr>,
    /// What was read of it.
    said: String,
}

impl Gateway {
    /// Starts it.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("started");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        let said = String::new();
        Self { child, log, said }
    }

    /// Where it listens, once the log says that everything serves.
    pub fn ready(&mut self) -> Addresses {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.log.read_line(&mut line).expect("a log"),
                0,
                "it ended: {}",
                self.said
            );
            self.said.push_str(&line);
            if line.contains("the gateway serves") {
                let line: serde_json::Value = serde_json::from_str(&line).expect("json");
                let of = |name: &str| {
                    let address = line["fields"][name].as_str().expect("an address");
                    address.parse().expect("an address")
                };
                return Addresses {
                    attach: of("attach"),
                    exec: of("exec"),
                    admin: of("admin"),
                };
            }
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Signals it.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        kill(Pid::from_raw(pid), signal).expect("it lives");
    }

    /// The exit code and the whole log.
    pub fn end(&mut self) -> (Option<i32>, String) {
        self.log.read_to_string(&mut self.said).expect("a log");
        let said = std::mem::take(&mut self.said);
        (self.child.wait().expect("its end").code(), said)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status line and body.
pub fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(
        socket,
        "GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n"
    )
    .expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .expect("a status");
    (status, answer)
}
