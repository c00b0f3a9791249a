//! A sandbox that nears its memory limit. The files of the control group are ones of the test; turns, agents and their processes are real.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bex_driver::agent::Prompt;
use bex_driver::memory::Cgroup;
use bex_driver::turns::{Begun, Turns};
use bex_driver::{profile, recover};
use bex_proto::driver::{DriverState, TurnState};
use bex_proto::ids::TurnNo;
use bex_proto::launch::{LAUNCH_FILE, Permissions};

use crate::acp;
use crate::sandbox::{Sandbox, eventually, logged};

const LIMIT: u64 = 1_000_000;

/// A driver without its HTTP, in a control group with a limit.
struct Guarded {
    sandbox: Sandbox,
    turns: Arc<Turns>,
    cgroup: PathBuf,
}

impl Guarded {
    fn new(sandbox: Sandbox) -> Self {
        let launch = sandbox.launch.dir.join(LAUNCH_FILE);
        let text = serde_json::to_vec(&sandbox.launch).expect("plain data");
        std::fs::write(&launch, text).expect("a file");
        let profile = profile::load(&launch).expect("a launch");
        let recovered = recover::recover(&profile).expect("nothing to recover");
        let turns = Turns::new(Arc::new(profile), recovered);
        let cgroup = sandbox.root.path().join("cgroup");
        std::fs::create_dir(&cgroup).expect("a directory");
        std::fs::write(cgroup.join("memory.max"), format!("{LIMIT}\n")).expect("a file");
        let guarded = Self {
            sandbox,
            turns,
            cgroup,
        };
        guarded.uses(LIMIT / 2);
        let (turns, cgroup) = (
            Arc::clone(&guarded.turns),
            Cgroup::at(&guarded.cgroup, "0::/\n"),
        );
        tokio::spawn(async move { turns.guard_memory(cgroup).await });
        guarded
    }

    /// Replaced whole, as the kernel's files are never seen half-written.
    fn uses(&self, bytes: u64) {
        let beside = self.cgroup.join("next");
        std::fs::write(&beside, format!("{bytes}\n")).expect("a file");
        std::fs::rename(beside, self.cgroup.join("memory.current")).expect("replaced");
    }

    fn begin(&self, turn: u32, text: &str) {
        let prompt = Prompt {
            turn: TurnNo(turn),
            text: text.into(),
            priming: None,
        };
        assert_eq!(self.turns.begin(prompt), Ok(Begun::Started));
    }

    async fn idle(&self, turn: u32) {
        eventually("the driver is idle", || {
            let status = self.sandbox.status();
            status.is_some_and(|s| s.state == DriverState::Idle && s.turn == Some(TurnNo(turn)))
        })
        .await;
    }
}

/// The process of a file that it wrote its number to.
async fn process_of(file: &Path) -> u32 {
    let pid = || std::fs::read_to_string(file).ok()?.trim().parse().ok();
    eventually("a process is there", || pid().is_some()).await;
    pid().expect("just seen")
}

/// Waits until a process is gone, or a zombie that nobody reaps.
async fn gone(pid: u32) {
    let stat = format!("/proc/{pid}/stat");
    eventually("the process is gone", || {
        std::fs::read_to_string(&stat).map_or(true, |s| s.contains(") Z "))
    })
    .await;
}

#[tokio::test]
async fn the_agent_is_ended_with_all_it_started_and_the_driver_goes_on() {
    let script = "echo ready; sleep 1000 & echo $! > child; wait";
    let guarded = Guarded::new(Sandbox::shell(script));
    let file = guarded.sandbox.launch.workdir.join("child");
    guarded.begin(1, "x");
    let child = process_of(&file).await;
    std::fs::remove_file(&file).expect("it is there");
    guarded.uses(LIMIT / 10 * 9);
    let end = guarded.sandbox.ended(1).await;
    assert_eq!(end.state, TurnState::Failed);
    gone(child).await;
    let why = "the agent was ended: its sandbox used 900000 of 1000000 bytes of memory";
    let parts = logged(&guarded.sandbox.log_path(1));
    let last = &parts.last().expect("parts").1;
    assert_eq!(*last, format!(r#"{{"type":"error","errorText":"{why}"}}"#));
    guarded.idle(1).await;
    let error = guarded.sandbox.status().and_then(|s| s.error);
    assert_eq!(error.as_deref(), Some(why));

    guarded.uses(LIMIT / 10);
    guarded.begin(2, "x");
    let child = process_of(&file).await;
    assert!(guarded.turns.stop(TurnNo(2)));
    let end = guarded.sandbox.ended(2).await;
    assert_eq!(end.state, TurnState::Stopped, "nothing was too much");
    gone(child).await;
}

#[tokio::test]
async fn an_agent_that_waits_for_its_next_turn_is_ended_too() {
    let guarded = Guarded::new(acp::sandbox(Permissions::Allow, &[]));
    let session = |turn| {
        let status = guarded.sandbox.status();
        let status = status.filter(|s| s.turn == Some(TurnNo(turn)));
        status.and_then(|s| s.agent_session_id)
    };
    guarded.begin(1, "one");
    assert_eq!(guarded.sandbox.ended(1).await.state, TurnState::Succeeded);
    guarded.idle(1).await;
    let first = session(1).expect("a session");
    // it names its process
    let pid: u32 = first.trim_start_matches("s-").parse().expect("a process");
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    guarded.uses(LIMIT);
    gone(pid).await;
    guarded.uses(0);
    guarded.begin(2, "two");
    assert_eq!(guarded.sandbox.ended(2).await.state, TurnState::Succeeded);
    guarded.idle(2).await;
    assert_ne!(session(2), Some(first), "a fresh agent");
}
