//! Sandboxes of the local kind, with a shell script for a driver.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bex_api::sandbox::{
    CreateError, Deleted, Lifecycle, LocalLifecycle, Look, Made, SandboxName, SandboxPlan,
};
use bex_proto::driver::{DriverKey, TokenSeed};
use bex_proto::launch::{AgentSpec, LAUNCH_FILE, LocalSandbox, SANDBOX_FILE};
use bex_proto::{Generation, SessionId};
use tempfile::TempDir;

/// Says where it listens, has a child, and ignores TERM.
const DRIVER: &str = r#"#!/bin/sh
trap '' TERM
dir=$(dirname "$3")
sleep 1000 &
printf '{"address":"127.0.0.1:9","pid":%s}' $$ > "$dir/l.tmp"
mv "$dir/l.tmp" "$dir/listening.json"
while :; do sleep 1; done
"#;

struct Bench {
    dir: TempDir,
    lifecycle: LocalLifecycle,
    plan: SandboxPlan,
}

fn bench(driver: &str) -> Bench {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("driver.sh");
    std::fs::write(&program, driver).expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("set");
    let session = SessionId::random();
    let plan = SandboxPlan {
        workspace: "acme".parse().expect("an id"),
        generation: Generation(2),
        agent: AgentSpec::Command {
            argv: vec!["/bin/true".into()],
            env: BTreeMap::new(),
            credential_files: Vec::new(),
        },
        secrets: Default::default(),
        legacy: None,
        key: DriverKey::derive(b"ring", &session, Generation(2)),
        token_seed: TokenSeed::derive(b"ring", &session),
        session,
    };
    let lifecycle = LocalLifecycle::new(dir.path().join("sandboxes"), program);
    Bench {
        dir,
        lifecycle,
        plan,
    }
}

impl Bench {
    fn sandbox(&self) -> std::path::PathBuf {
        self.dir
            .path()
            .join("sandboxes")
            .join(format!("{}-g2", self.plan.session))
    }

    fn name(&self, made: &Made) -> SandboxName {
        SandboxName {
            session: self.plan.session.clone(),
            generation: self.plan.generation,
            namespace: made.namespace.clone(),
            pod: made.pod.clone(),
            pod_uid: Some(made.pod_uid.clone()),
        }
    }

    fn registry(&self) -> LocalSandbox {
        serde_json::from_slice(&std::fs::read(self.sandbox().join(SANDBOX_FILE)).expect("there"))
            .expect("whole")
    }
}

/// Field `n` of a process's stat file, for names without blanks.
fn stat(pid: u32, n: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.split_ascii_whitespace().nth(n - 1).map(str::to_owned)
}

fn lives(pid: u32) -> bool {
    stat(pid, 3).is_some_and(|state| state != "Z")
}

fn in_session(leader: u32) -> usize {
    let pids = std::fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid, 6) == Some(leader.to_string()) && lives(*pid))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_made_once_found_again_and_removed_with_all_its_processes() {
    let bench = bench(DRIVER);
    let made = bench.lifecycle.create(&bench.plan).await.expect("made");
    let registry = bench.registry();
    assert_eq!(
        (&registry.pod_uid, &registry.session),
        (&made.pod_uid, &bench.plan.session)
    );
    let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&bench.sandbox().join("driver")), 0o700);
    assert_eq!(
        mode(&bench.sandbox().join("driver").join(LAUNCH_FILE)),
        0o600
    );
    assert_eq!(
        stat(registry.pid, 6),
        Some(registry.pid.to_string()),
        "a process session of its own"
    );

    assert_eq!(
        bench.lifecycle.create(&bench.plan).await.expect("found"),
        made
    );
    assert_eq!(
        bench.lifecycle.look(&bench.name(&made)).await,
        Look::Running
    );
    let another = SandboxName {
        pod_uid: Some("another".into()),
        ..bench.name(&made)
    };
    assert_eq!(bench.lifecycle.look(&another).await, Look::Gone);
    assert_eq!(
        bench.lifecycle.list().await.expect("listed"),
        [bench.name(&made)]
    );

    // the registry file is what a kill before its writing would have left out
    std::fs::remove_file(bench.sandbox().join(SANDBOX_FILE)).expect("removed");
    let nameless = SandboxName {
        pod_uid: None,
        ..bench.name(&made)
    };
    assert_eq!(bench.lifecycle.look(&nameless).await, Look::Running);
    let adopted = bench.lifecycle.create(&bench.plan).await.expect("adopted");
    assert_eq!(
        bench.registry().pid,
        registry.pid,
        "the living driver is taken over, not doubled"
    );

    // a file that can not be read says nothing
    std::fs::write(bench.sandbox().join(SANDBOX_FILE), "{").expect("written");
    assert_eq!(
        bench.lifecycle.look(&bench.name(&adopted)).await,
        Look::Unknown
    );
    std::fs::remove_file(bench.sandbox().join(SANDBOX_FILE)).expect("removed");

    assert!(in_session(registry.pid) >= 2, "the driver and its child");
    assert_eq!(
        bench.lifecycle.delete(&nameless).await.expect("removed"),
        Deleted
    );
    assert_eq!((lives(registry.pid), in_session(registry.pid)), (false, 0));
    assert!(!bench.sandbox().exists());
    assert_eq!(bench.lifecycle.look(&nameless).await, Look::Gone);
    assert_eq!(
        bench.lifecycle.delete(&nameless).await.expect("again"),
        Deleted
    );
    assert_eq!(bench.lifecycle.list().await.expect("listed"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_creators_of_one_name_make_one_sandbox() {
    let bench = bench(DRIVER);
    let (a, b) = tokio::join!(
        bench.lifecycle.create(&bench.plan),
        bench.lifecycle.create(&bench.plan)
    );
    let (a, b) = (a.expect("made"), b.expect("found"));
    assert_eq!(a, b);
    bench
        .lifecycle
        .delete(&bench.name(&a))
        .await
        .expect("removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_ends_at_once_is_no_sandbox() {
    let bench = bench("#!/bin/sh\nexit 3\n");
    let error = bench
        .lifecycle
        .create(&bench.plan)
        .await
        .expect_err("not made");
    assert!(matches!(error, CreateError::Ended), "{error}");
}
