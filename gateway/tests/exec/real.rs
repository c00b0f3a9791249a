//! Everything between the listener and a real driver of this machine.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bex_gateway::sandbox::local::LocalTargets;
use bex_proto::driver::{DriverKey, DriverState, Status};
use bex_proto::exec::{ExecCode, FrameKind, Operation, WindowHeader};
use bex_proto::launch::{
    AgentSpec, DRIVER_DIR, Isolation, LAUNCH_FILE, LISTENING_FILE, Launch, Listening, LocalSandbox,
    SANDBOX_FILE, WORK_DIR, pod_of,
};
use bex_proto::transcript::sha256_hex;
use bex_proto::{SessionId, TurnNo, limits};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use tempfile::TempDir;

use crate::house::{Answer, GENERATION, House, body, eventually, ring};

/// The driver's binary beside this test's own, or in `BEX_BIN_DIR`.
pub fn driver_bin() -> PathBuf {
    let dir = std::env::var_os("BEX_BIN_DIR")
        .map(PathBuf::from)
        .unwrap_or_else(|| {
            let test = std::env::current_exe().expect("this test's path");
            // <target>/debug/deps/<test>
            test.ancestors()
                .nth(2)
                .expect("a target directory")
                .to_owned()
        });
    let binary = dir.join("bex-driver");
    assert!(
        binary.exists(),
        "{} is missing: cargo build -p bex-driver",
        binary.display()
    );
    binary
}

/// A local sandbox as the api makes one, with an agent that repeats its prompt.
struct Sandbox {
    root: TempDir,
    session: SessionId,
    driver: Child,
}

impl Sandbox {
    async fn start() -> Self {
        let root = TempDir::new().expect("a directory");
        let session = SessionId::random();
        let home = root.path().join(pod_of(&session, GENERATION));
        let (dir, workdir) = (home.join(DRIVER_DIR), home.join(WORK_DIR));
        for dir in [&dir, &workdir] {
            std::fs::create_dir_all(dir).expect("a directory");
        }
        let key = DriverKey::derive(ring("d1", 'd').signing_key().1, &session, GENERATION);
        let launch = Launch {
            session: session.clone(),
            workspace: "demo".parse().expect("an id"),
            generation: GENERATION,
            key: key.to_hex(),
            listen: "127.0.0.1:0".parse().expect("an address"),
            dir: dir.clone(),
            workdir,
            agent: AgentSpec::Command {
                argv: vec!["/bin/cat".into()],
                env: Default::default(),
                credential_files: Vec::new(),
            },
            secrets: Default::default(),
            legacy: None,
            isolation: Isolation::None,
        };
        write_json(&dir.join(LAUNCH_FILE), &launch);
        let driver = Command::new(driver_bin())
            .arg("serve")
            .arg("--launch")
            .arg(dir.join(LAUNCH_FILE))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let sandbox = Self {
            root,
            session,
            driver,
        };
        let listening = dir.join(LISTENING_FILE);
        eventually(|| listening.exists()).await;
        let text = std::fs::read_to_string(&listening).expect("a file");
        let listening: Listening = serde_json::from_str(&text).expect("what it says");
        write_json(
            &home.join(SANDBOX_FILE),
            &LocalSandbox {
                session: sandbox.session.clone(),
                generation: GENERATION,
                namespace: "demo-sandbox".into(),
                pod: pod_of(&sandbox.session, GENERATION),
                pod_uid: "uid-1".into(),
                address: listening.address,
                pid: listening.pid,
                pid_start: start_of(listening.pid),
                legacy: false,
            },
        );
        sandbox
    }

    async fn house(&self) -> House {
        let targets = LocalTargets::new(self.root.path().to_owned(), driver_bin());
        House::over(Arc::new(targets), self.session.clone()).await
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn write_json<T: serde::Serialize>(path: &Path, value: &T) {
    std::fs::write(path, serde_json::to_vec(value).expect("plain data")).expect("a file");
}

/// Field 22 of /proc/<pid>/stat.
fn start_of(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a living process");
    let fields = stat.rsplit_once(')').expect("a name").1;
    fields
        .split_whitespace()
        .nth(19)
        .and_then(|f| f.parse().ok())
        .expect("a start time")
}

fn observe(offset: u64) -> Operation {
    Operation::Observe {
        turn: TurnNo(1),
        offset,
    }
}

fn run(script: &str, stdin: Option<&str>) -> Operation {
    Operation::Run {
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        stdin: stdin.map(str::to_owned),
    }
}

fn header(answer: &Answer) -> WindowHeader {
    serde_json::from_slice(&answer.bytes(FrameKind::Header)).expect("a header")
}

#[tokio::test]
async fn a_turn_is_delivered_spoken_and_read_back() {
    let sandbox = Sandbox::start().await;
    let house = sandbox.house().await;
    house
        .records
        .prompts
        .lock()
        .expect("no panic")
        .insert(1, "say this again".into());
    let turn = Operation::Turn {
        turn: TurnNo(1),
        priming: None,
    };
    assert_eq!(house.call(&turn).await.exit().exit_code, 0);
    assert_eq!(
        house.call(&turn).await.exit().exit_code,
        0,
        "the same turn again is no second one"
    );

    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    let whole = loop {
        let answer = house.call(&observe(0)).await;
        let log = answer.bytes(FrameKind::Stdout);
        if String::from_utf8_lossy(&log).contains("\"turn-end\"") {
            break answer;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "the turn never ended: {answer:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let (log, window) = (
        whole.bytes(FrameKind::Stdout),
        header(&whole).log.expect("a log"),
    );
    assert_eq!(window.generation, Some(GENERATION));
    assert_eq!((window.offset, window.length), (0, log.len() as u64));
    assert_eq!(window.sha256, sha256_hex(&log));
    assert!(String::from_utf8_lossy(&log).contains("say this again"));

    // from the middle on: the rest, by offset
    let first_line = log.iter().position(|b| *b == b'\n').expect("a line") as u64 + 1;
    let rest = house.call(&observe(first_line)).await;
    assert_eq!(rest.bytes(FrameKind::Stdout), log[first_line as usize..]);
    let status = header(&rest).status.expect("a status");
    let status: Status = serde_json::from_str(&status).expect("a status");
    assert_eq!(
        (status.state, status.turn),
        (DriverState::Idle, Some(TurnNo(1)))
    );
}

#[tokio::test]
async fn a_command_runs_in_the_sandbox_within_its_bounds() {
    let sandbox = Sandbox::start().await;
    let house = sandbox.house().await;
    let answer = house
        .call(&run("pwd; cat; echo oops >&2; exit 3", Some("given")))
        .await;
    let workdir = sandbox
        .root
        .path()
        .join(pod_of(&sandbox.session, GENERATION))
        .join(WORK_DIR);
    let workdir = workdir.canonicalize().expect("a directory");
    assert_eq!(answer.exit().exit_code, 3);
    let said = String::from_utf8(answer.bytes(FrameKind::Stdout)).expect("text");
    assert_eq!(said, format!("{}\ngiven", workdir.display()));
    assert_eq!(answer.bytes(FrameKind::Stderr), b"oops\n");

    let endless = house.call(&run("yes", None)).await;
    assert_eq!(endless.error().code, ExecCode::OutputLimit);
    assert_eq!(
        endless.bytes(FrameKind::Stdout).len() as u64,
        limits::RUN_OUTPUT_BYTES
    );
}

#[tokio::test]
async fn a_vanished_caller_leaves_nothing_running() {
    let sandbox = Sandbox::start().await;
    let house = sandbox.house().await;
    let operation = run("echo $$; exec sleep 600", None);
    let request = Request::builder()
        .method(Method::POST)
        .uri("/v1/exec")
        .header(
            "x-bex-exec-ticket",
            house.claims(&operation).sign(&house.ring),
        )
        .body(Full::new(Bytes::from(body(&operation))))
        .expect("a request");
    let mut answer = house.begin(request).await;
    let first = answer
        .body_mut()
        .frame()
        .await
        .expect("a frame")
        .expect("bytes");
    let first = first.into_data().expect("data");
    // behind kind and length
    let pid = String::from_utf8_lossy(&first[5..])
        .trim()
        .parse::<u32>()
        .expect("a pid");
    let process = PathBuf::from(format!("/proc/{pid}"));
    assert!(process.exists());
    drop(answer);
    eventually(|| !process.exists()).await;
}

#[tokio::test]
async fn a_dead_driver_is_a_terminated_sandbox() {
    let mut sandbox = Sandbox::start().await;
    let house = sandbox.house().await;
    assert_eq!(house.call(&observe(0)).await.exit().exit_code, 0);
    let stop = house.call(&Operation::Stop { turn: TurnNo(9) }).await;
    assert_eq!(
        stop.problem(),
        (501, "unsupported".to_owned()),
        "a turn it never began"
    );
    sandbox.driver.kill().expect("a signal");
    sandbox.driver.wait().expect("its end");
    let terminated = (404, "sandbox_terminated".to_owned());
    assert_eq!(house.call(&observe(0)).await.problem(), terminated);
    assert_eq!(house.call(&run("true", None)).await.problem(), terminated);
    assert_eq!(
        house
            .call(&Operation::Stop { turn: TurnNo(1) })
            .await
            .problem(),
        terminated
    );
}
