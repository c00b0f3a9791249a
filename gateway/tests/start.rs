//! The binary: what it refuses to start with, how it says that it is ready, how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use bex_store::DbConfig;
use bex_testpg::Database;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The longest a test waits for the process.
const PATIENCE: Duration = Duration::from_secs(30);

async fn database() -> Database {
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

/// A login user of its own that is a member of the gateway's role; users belong to the whole server.
struct Login<'a> {
    database: &'a Database,
    name: String,
}

impl<'a> Login<'a> {
    fn new(database: &'a Database) -> Self {
        let name = format!("gateway_{}", database.name());
        database
            .sql(&format!("CREATE ROLE {name} LOGIN IN ROLE bex_gateway"))
            .expect("a role");
        Self { database, name }
    }

    fn url(&self) -> String {
        self.database.url_as(&self.name)
    }
}

impl Drop for Login<'_> {
    fn drop(&mut self) {
        let _ = self.database.sql(&format!("DROP ROLE {}", self.name));
    }
}

fn gateway(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bex-gateway"));
    command
        .env_clear()
        .env("BEX_DATABASE_URL", url)
        .env("BEX_ATTACH_LISTEN", "127.0.0.1:0")
        .env("BEX_EXEC_LISTEN", "127.0.0.1:0")
        .env("BEX_ADMIN_LISTEN", "127.0.0.1:0")
        .env("BEX_ATTACH_KEYS", format!("a:{}", "a".repeat(64)))
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
struct Gateway {
    child: Child,
    log: BufReader<ChildStderr>,
}

impl Gateway {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("started");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        Self { child, log }
    }

    /// Where the admin listener is, once the log says that everything serves.
    fn admin(&mut self) -> SocketAddr {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(
                self.log.read_line(&mut line).expect("a log"),
                0,
                "it ended: {said}"
            );
            if line.contains("the gateway serves") {
                let line: serde_json::Value = serde_json::from_str(&line).expect("json");
                let admin = line["fields"]["admin"].as_str().expect("an address");
                return admin.parse().expect("an address");
            }
            said.push_str(&line);
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        kill(Pid::from_raw(pid), signal).expect("it lives");
    }

    /// The exit code and the rest of the log.
    fn end(&mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).expect("a log");
        (self.child.wait().expect("its end").code(), rest)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status line and body.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
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

#[test]
fn a_bad_configuration_exits_64_naming_every_variable_and_no_secret() {
    let mut command = gateway("postgres://u:hunter2@elsewhere/d");
    command
        .env("BEX_EXEC_KEYS", "e:feedface")
        .env_remove("BEX_LOCAL");
    let (code, log) = Gateway::start(command).end();
    assert_eq!(code, Some(64), "{log}");
    for name in ["BEX_DATABASE_URL", "BEX_EXEC_KEYS", "BEX_LOCAL"] {
        assert!(log.contains(name), "{log}");
    }
    assert!(
        !log.contains("hunter2") && !log.contains("feedface"),
        "{log}"
    );
}

#[tokio::test]
async fn missing_grants_stop_the_start_and_are_named() {
    let database = database().await;
    let login = Login::new(&database);
    database
        .sql("REVOKE SELECT ON turns FROM bex_gateway; REVOKE EXECUTE ON FUNCTION bex_append FROM bex_gateway")
        .expect("revoked");
    let (code, log) = Gateway::start(gateway(&login.url())).end();
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains("turns:SELECT") && log.contains("bex_append:EXECUTE"),
        "{log}"
    );
    assert!(
        !log.contains("sessions:SELECT"),
        "only what is missing is named: {log}"
    );

    // also the one that the schema check itself needs
    database
        .sql("REVOKE SELECT ON schema_migrations FROM bex_gateway")
        .expect("revoked");
    let (code, log) = Gateway::start(gateway(&login.url())).end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("schema_migrations:SELECT"), "{log}");
}

#[tokio::test]
async fn an_empty_database_stops_the_start() {
    let database = bex_testpg::server()
        .expect("a server")
        .empty_database()
        .expect("a database");
    let (code, log) = Gateway::start(gateway(&database.url)).end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("bex-api migrate"), "{log}");
}

#[tokio::test]
async fn a_log_that_takes_nothing_stops_nothing() {
    let database = database().await;
    let login = Login::new(&database);
    let admin = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|free| free.local_addr())
        .expect("a port");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut child = gateway(&login.url())
        .env("BEX_ADMIN_LISTEN", admin.to_string())
        .stderr(full.expect("a full disk"))
        .spawn()
        .expect("started");
    let until = std::time::Instant::now() + PATIENCE;
    while TcpStream::connect(admin).is_err() {
        assert_eq!(child.try_wait().expect("a child"), None, "it ended");
        assert!(std::time::Instant::now() < until, "it never listens");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(get(admin, "/readyz").0, 200);
    let pid = i32::try_from(child.id()).expect("a pid");
    kill(Pid::from_raw(pid), Signal::SIGTERM).expect("it lives");
    assert_eq!(child.wait().expect("its end").code(), Some(0));
}

#[tokio::test]
async fn it_serves_says_so_and_ends_with_0() {
    let database = database().await;
    let login = Login::new(&database);
    let mut gateway = Gateway::start(gateway(&login.url()));
    let admin = gateway.admin();
    assert_eq!(get(admin, "/healthz").0, 200);
    assert_eq!(get(admin, "/readyz").0, 200);
    let (status, metrics) = get(admin, "/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("bex_gateway_streams 0"), "{metrics}");
    assert_eq!(get(admin, "/nothing").0, 404);

    // an open connection in the middle of a request does not hold the process
    let mut slow = TcpStream::connect(admin).expect("a connection");
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost:")
        .expect("sent");

    // a schema that is too old makes it unready, not dead
    database
        .sql("DELETE FROM schema_migrations WHERE version > 1")
        .expect("deleted");
    let (status, answer) = get(admin, "/readyz");
    assert_eq!(status, 503);
    assert!(answer.contains("\"unavailable\""), "{answer}");
    assert_eq!(get(admin, "/healthz").0, 200);

    gateway.signal(Signal::SIGTERM);
    let (code, log) = gateway.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("\"ended\""), "{log}");
}
