use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bex_proto::exec::Operation;
use bex_proto::launch::{LocalSandbox, SANDBOX_FILE};
use bex_proto::{Generation, SessionId, TurnNo};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;

use super::*;

struct Registry {
    root: TempDir,
    sandbox: LocalSandbox,
    target: TargetRef,
}

impl Registry {
    /// A sandbox whose driver is this test's process.
    fn new() -> Self {
        let root = TempDir::new().expect("a directory");
        let (session, generation) = (SessionId::random(), Generation(2));
        let sandbox = LocalSandbox {
            session: session.clone(),
            generation,
            namespace: "demo-sandbox".into(),
            pod: pod_of(&session, generation),
            pod_uid: "uid-1".into(),
            address: "127.0.0.1:1".parse().expect("an address"),
            pid: std::process::id(),
            pid_start: registry::start_of(std::process::id()),
            legacy: false,
        };
        let target = TargetRef {
            session,
            generation,
            namespace: sandbox.namespace.clone(),
            pod: sandbox.pod.clone(),
            pod_uid: sandbox.pod_uid.clone(),
            container: "sandbox".into(),
            legacy: false,
            driver_kid: "d1".into(),
        };
        let registry = Self {
            root,
            sandbox,
            target,
        };
        for dir in [DRIVER_DIR, WORK_DIR] {
            std::fs::create_dir_all(registry.home().join(dir)).expect("a directory");
        }
        registry.write();
        registry
    }

    fn home(&self) -> PathBuf {
        self.root.path().join(&self.sandbox.pod)
    }

    fn write(&self) {
        let text = serde_json::to_string(&self.sandbox).expect("plain data");
        std::fs::write(self.home().join(SANDBOX_FILE), text).expect("a file");
    }

    async fn look(&self) -> Look {
        self.targets("/bin/false").look(&self.target).await
    }

    fn targets(&self, driver_bin: impl Into<PathBuf>) -> LocalTargets {
        LocalTargets::new(self.root.path().to_owned(), driver_bin.into())
    }

    /// A stand-in for the driver's binary.
    fn script(&self, text: &str) -> PathBuf {
        let path = self.root.path().join("driver-bin");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        path
    }
}

fn running(address: &str) -> Look {
    Look::Running {
        address: address.parse::<SocketAddr>().expect("an address"),
        terminating: false,
    }
}

#[tokio::test]
async fn a_look_has_three_values() {
    let mut registry = Registry::new();
    assert_eq!(registry.look().await, running("127.0.0.1:1"));

    // a living process, but another one under the same number
    registry.sandbox.pid_start += 1;
    registry.write();
    assert_eq!(registry.look().await, Look::Gone);
    registry.sandbox.pid_start -= 1;

    // no such process
    registry.sandbox.pid = u32::MAX;
    registry.write();
    assert_eq!(registry.look().await, Look::Gone);
    registry.sandbox.pid = std::process::id();

    // another sandbox stands in its place
    registry.sandbox.pod_uid = "uid-2".into();
    registry.write();
    assert_eq!(registry.look().await, Look::Gone);
    registry.sandbox.pod_uid = "uid-1".into();

    // an address that is not this machine's own is not dialled
    registry.sandbox.address = "10.0.0.1:80".parse().expect("an address");
    registry.write();
    assert_eq!(registry.look().await, Look::Unknown);

    // half a file is nobody's word
    std::fs::write(registry.home().join(SANDBOX_FILE), "{\"session\":").expect("a file");
    assert_eq!(registry.look().await, Look::Unknown);

    std::fs::remove_file(registry.home().join(SANDBOX_FILE)).expect("a file");
    assert_eq!(registry.look().await, Look::Gone);

    // an unmounted registry is no proof of anything
    std::fs::remove_dir_all(registry.root.path()).expect("a directory");
    assert_eq!(registry.look().await, Look::Unknown);
}

#[tokio::test]
async fn a_zombie_is_gone() {
    let mut registry = Registry::new();
    let mut child = std::process::Command::new("/bin/sleep")
        .arg("600")
        .spawn()
        .expect("a child");
    registry.sandbox.pid = child.id();
    registry.sandbox.pid_start = registry::start_of(child.id());
    registry.write();
    assert_eq!(registry.look().await, running("127.0.0.1:1"));
    child.kill().expect("a signal");
    // killed but not waited for
    eventually(async || registry.look().await == Look::Gone).await;
    child.wait().expect("its end");
}

#[tokio::test]
async fn a_foreign_pod_name_never_becomes_a_path() {
    let mut registry = Registry::new();
    let home = registry.home();
    registry.target.pod = home.to_str().expect("utf-8").to_owned();
    assert_eq!(registry.look().await, Look::Gone);
}

fn observe() -> SandboxRequest {
    SandboxRequest {
        nonce: "n".into(),
        operation: Operation::Observe {
            turn: TurnNo(1),
            offset: 0,
        },
    }
}

#[tokio::test]
async fn exec_speaks_with_the_binary_and_gives_it_nothing_of_the_gateways() {
    let registry = Registry::new();
    let request = serde_json::to_string(&observe()).expect("plain data");
    // the length prefix, then the request; then arguments and environment
    let script = registry.script(&format!(
        "head -c 4 >/dev/null; head -c {}; printf ' %s ' \"$*\"; env | cut -d= -f1 | sort | tr '\\n' ' '",
        request.len()
    ));
    let mut pipe = registry
        .targets(script)
        .exec(&registry.target, observe())
        .await
        .expect("started");
    let mut output = String::new();
    pipe.output
        .read_to_string(&mut output)
        .await
        .expect("its output");
    let dir = registry.home().join(DRIVER_DIR);
    assert_eq!(
        output,
        format!("{request} exec --dir {} PATH PWD ", dir.display())
    );
}

#[tokio::test]
async fn a_dropped_pipe_leaves_no_process() {
    let registry = Registry::new();
    // ignores the end of its input, and has a child of its own
    let script = registry.script("sleep 600 & echo $$ $!; wait");
    let mut pipe = registry
        .targets(script)
        .exec(&registry.target, observe())
        .await
        .expect("started");
    let mut said = String::new();
    while !said.ends_with('\n') {
        said.push(char::from(pipe.output.read_u8().await.expect("its output")));
    }
    let pids: Vec<u32> = said
        .split_whitespace()
        .map(|p| p.parse().expect("a pid"))
        .collect();
    assert_eq!(pids.len(), 2);
    drop(pipe);
    for pid in pids {
        eventually(async || !runs(pid)).await;
    }
}

fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat[stat.rfind(')').unwrap_or(0)..].starts_with(") Z"))
}

#[tokio::test]
async fn exec_in_a_gone_sandbox_starts_nothing() {
    let registry = Registry::new();
    std::fs::remove_file(registry.home().join(SANDBOX_FILE)).expect("a file");
    let script = registry.script("touch started");
    let refused = registry
        .targets(script)
        .exec(&registry.target, observe())
        .await;
    assert!(matches!(refused, Err(ExecStartError::Gone)), "{refused:?}");
    assert!(!registry.home().join(WORK_DIR).join("started").exists());
}

/// Waits until `level` holds, 10 s at most.
async fn eventually(level: impl AsyncFn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !level().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the level was never reached"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
