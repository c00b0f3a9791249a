//! The binary as an operator meets it: exit codes, refusals at start-up, probes, and a clean end.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bex_testpg::Database;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const BINARY: &str = env!("CARGO_BIN_EXE_bex-api");
/// The longest a test waits for the process.
const PATIENCE: Duration = Duration::from_secs(30);

fn command(subcommand: &str) -> Command {
    let mut command = Command::new(BINARY);
    command
        .arg(subcommand)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn migrate(url: &str) -> Output {
    command("migrate")
        .env("BEX_DATABASE_DIRECT_URL", url)
        .output()
        .unwrap()
}

fn database() -> Database {
    bex_testpg::server().unwrap().empty_database().unwrap()
}

/// Everything `serve` needs, with files in `dir`.
fn serve(dir: &Path, database_url: &str) -> Command {
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let mut command = command("serve");
    command
        .env("BEX_API_LISTEN", "127.0.0.1:0")
        .env("BEX_ADMIN_LISTEN", "127.0.0.1:0")
        .env("BEX_DATABASE_URL", database_url)
        .env("BEX_LISTEN_DATABASE_URL", database_url)
        .env("BEX_ATTACH_KEYS", format!("k:{}", "ab".repeat(32)))
        .env("BEX_EXEC_KEYS", format!("k:{}", "cd".repeat(32)))
        .env("BEX_DRIVER_KEYS", format!("k:{}", "ef".repeat(32)))
        .env("BEX_ATTACH_PUBLIC_URL", "http://127.0.0.1:1")
        .env("BEX_EXEC_URL", "http://127.0.0.1:1")
        .env("BEX_SERVICE_TOKENS", write("tokens.json", "[]"))
        .env("BEX_PROFILES", write("profiles.json", r#"{"profiles":{}}"#))
        .env("BEX_SANDBOX_KIND", "local")
        .env("BEX_LOCAL", "1")
        .env("BEX_SANDBOX_DIR", dir)
        .env("BEX_DRIVER_BIN", BINARY);
    command
}

/// Status line, headers and body.
fn asked(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A running server, killed when the test fails.
struct Running {
    child: Child,
    rest: SocketAddr,
    admin: SocketAddr,
    log: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut running = Self {
            child,
            rest: unknown,
            admin: unknown,
            log,
        };
        let mut seen = String::new();
        while running.rest == unknown {
            let mut line = String::new();
            assert_ne!(
                running.log.read_line(&mut line).unwrap(),
                0,
                "it ended: {seen}"
            );
            let event: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if event["fields"]["message"] == "listening" {
                let address = |name: &str| event["fields"][name].as_str().unwrap().parse().unwrap();
                (running.rest, running.admin) = (address("rest"), address("admin"));
            }
            seen.push_str(&line);
        }
        running
    }

    fn get(&self, address: SocketAddr, path: &str) -> String {
        asked(address, path).unwrap()
    }

    /// SIGTERM, its exit code, and what it still said.
    fn stop(mut self) -> (Option<i32>, String) {
        kill(
            Pid::from_raw(self.child.id().cast_signed()),
            Signal::SIGTERM,
        )
        .unwrap();
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_refused_configuration_exits_64_and_names_every_variable() {
    let output = command("serve")
        .env("BEX_LIVE_LIMIT", "hunter2")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    let said = said(&output);
    for variable in [
        "BEX_DATABASE_URL",
        "BEX_ATTACH_KEYS",
        "BEX_EXEC_KEYS",
        "BEX_DRIVER_KEYS",
        "BEX_ATTACH_PUBLIC_URL",
        "BEX_EXEC_URL",
        "BEX_SERVICE_TOKENS",
        "BEX_PROFILES",
        "BEX_SANDBOX_KIND",
        "BEX_LIVE_LIMIT",
    ] {
        assert!(said.contains(variable), "{variable}: {said}");
    }
    assert!(!said.contains("hunter2"));
    let output = command("migrate").output().unwrap();
    assert_eq!(
        (
            output.status.code(),
            self::said(&output).contains("BEX_DATABASE_DIRECT_URL")
        ),
        (Some(64), true)
    );
    assert_eq!(command("fly").output().unwrap().status.code(), Some(64));
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = serve(dir.path(), "postgres://u@127.0.0.1:1/d?sslmode=disable");
    for variable in [
        "BEX_API_LISTEN",
        "BEX_ADMIN_LISTEN",
        "BEX_LISTEN_DATABASE_URL",
        "BEX_DATABASE_CA",
        "BEX_SECRETS_FILE",
        "BEX_PLAY_DIR",
        "BEX_LIVE_LIMIT",
        "BEX_COMPLETER_TICK_MS",
        "BEX_OIDC_ISSUER",
        "BEX_OIDC_CA",
        "BEX_OIDC_ROLE_CLAIM",
    ] {
        command.env(variable, "");
    }
    let output = command.output().unwrap();
    // accepted: what stops it is that nobody listens there
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let refused = serve(dir.path(), "").output().unwrap();
    assert_eq!(refused.status.code(), Some(64));
    assert!(said(&refused).contains("is not set"), "{}", said(&refused));
}

#[test]
fn an_older_schema_and_a_missing_grant_stop_it_by_name() {
    let (dir, database) = (tempfile::tempdir().unwrap(), database());
    let output = serve(dir.path(), &database.url).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("bex-api migrate"),
        "{}",
        said(&output)
    );

    assert_eq!(migrate(&database.url).status.code(), Some(0));
    assert_eq!(migrate(&database.url).status.code(), Some(0), "again");
    // the gateway's role reads the schema's version but may not create sessions
    let separator = if database.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{separator}options=-c%20role%3Dbex_gateway", database.url);
    let output = serve(dir.path(), &url).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("sessions:INSERT"),
        "{}",
        said(&output)
    );
}

#[tokio::test]
async fn a_log_that_takes_nothing_stops_nothing() {
    let (dir, database) = (tempfile::tempdir().unwrap(), database());
    assert_eq!(migrate(&database.url).status.code(), Some(0));
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = free.local_addr().unwrap();
    drop(free);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut child = serve(dir.path(), &database.url)
        .env("BEX_ADMIN_LISTEN", admin.to_string())
        .stderr(full.unwrap())
        .spawn()
        .unwrap();
    let until = Instant::now() + PATIENCE;
    while !asked(admin, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
        assert_eq!(child.try_wait().unwrap(), None, "it ended");
        assert!(Instant::now() < until, "it is never ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn it_serves_is_ready_and_ends_well() {
    let (dir, database) = (tempfile::tempdir().unwrap(), database());
    assert_eq!(migrate(&database.url).status.code(), Some(0));
    let running = Running::start(serve(dir.path(), &database.url));
    assert!(
        running
            .get(running.admin, "/healthz")
            .starts_with("HTTP/1.1 200")
    );
    assert!(
        running
            .get(running.admin, "/readyz")
            .starts_with("HTTP/1.1 200")
    );
    assert!(
        running
            .get(running.rest, "/v1/agent-sessions")
            .contains("unauthenticated")
    );
    assert!(
        running
            .get(running.rest, "/healthz")
            .starts_with("HTTP/1.1 404"),
        "probes have their own port"
    );
    let metrics = running.get(running.admin, "/metrics");
    let counted =
        r#"bex_api_http_requests_total{method="get",route="/v1/agent-sessions",status="401"} 1"#;
    assert!(
        metrics.contains(counted) && metrics.ends_with("# EOF\n"),
        "{metrics}"
    );
    let (code, log) = running.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(
        log.contains("\"stopped\"") && !log.contains("\"ERROR\""),
        "{log}"
    );
}

#[tokio::test]
async fn a_table_lost_after_the_start_is_named_and_a_probe_costs_no_statement() {
    let (dir, database) = (tempfile::tempdir().unwrap(), database());
    assert_eq!(migrate(&database.url).status.code(), Some(0));
    let running = Running::start(serve(dir.path(), &database.url));
    let ready = |answer: &str| answer.starts_with("HTTP/1.1 200");
    assert!(ready(&running.get(running.admin, "/readyz")));
    database
        .sql("ALTER TABLE deletions RENAME TO away")
        .unwrap();
    // what was seen a moment ago stands
    for _ in 0..50 {
        assert!(ready(&running.get(running.admin, "/readyz")));
    }
    let until = Instant::now() + PATIENCE;
    let mut answer = running.get(running.admin, "/readyz");
    while ready(&answer) {
        assert!(Instant::now() < until, "it is ready for ever");
        tokio::time::sleep(Duration::from_millis(100)).await;
        answer = running.get(running.admin, "/readyz");
    }
    assert!(
        answer.contains("503") && answer.contains("deletions:SELECT"),
        "{answer}"
    );
}

/// A ring that lost a key in use stops a roll-out at its first process.
#[test]
fn a_ring_without_a_living_sandboxs_key_is_not_ready() {
    let (dir, database) = (tempfile::tempdir().unwrap(), database());
    assert_eq!(migrate(&database.url).status.code(), Some(0));
    database
        .sql(
            "SET session_replication_role = replica; \
             INSERT INTO sandboxes \
                 (session_id, generation, first_turn, turn, kind, namespace, pod, container, legacy, driver_kid, state) \
             VALUES ('ags-aaaaaaaaaaaaaaaaaaaa', 1, 1, 1, 'local', 'n', 'p', 'c', false, 'gone-key', 'creating')",
        )
        .unwrap();
    let running = Running::start(serve(dir.path(), &database.url));
    let answer = running.get(running.admin, "/readyz");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("key ring: gone-key missing"), "{answer}");
}
