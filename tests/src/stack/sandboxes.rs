//! The sandboxes of a stack on this machine: who lives, and how all of them are ended.
//!
//! Both kinds leave a directory per sandbox, so that whoever knows the directory of all can find them, also when the process that
//! owns the stack is gone.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use bex_proto::launch::{
    DRIVER_DIR, LAUNCH_FILE, LISTENING_FILE, Launch, Listening, LocalSandbox, ProcessStat,
    SANDBOX_FILE, WORK_DIR, pod_of,
};
use bex_proto::{Generation, SessionId};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::SandboxKind;

/// How long killed processes may take to be gone.
const GONE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
/// A pod's volumes within its directory; they are named as a local sandbox's directories are.
const VOLUMES: &str = "volumes";
const LAUNCH_VOLUME: &str = "launch";

/// One sandbox whose driver listens, or listened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// The session it speaks for.
    pub session: SessionId,
    /// Its life.
    pub generation: Generation,
    /// Its name.
    pub pod: String,
    /// Where its driver listens.
    pub address: SocketAddr,
    /// Its driver's process, which leads a process session.
    pub pid: u32,
    /// When that process was started, where it is known: numbers come again.
    start: Option<u64>,
    /// The agent's directory.
    pub work_dir: PathBuf,
    /// The driver's directory.
    pub driver_dir: PathBuf,
}

impl Sandbox {
    fn local(dir: &Path) -> Option<Self> {
        let registered: LocalSandbox = read_json(&dir.join(SANDBOX_FILE))?;
        Some(Self {
            session: registered.session,
            generation: registered.generation,
            pod: registered.pod,
            address: registered.address,
            pid: registered.pid,
            start: Some(registered.pid_start),
            work_dir: dir.join(WORK_DIR),
            driver_dir: dir.join(DRIVER_DIR),
        })
    }

    /// Whether its driver lives.
    pub fn lives(&self) -> bool {
        pid_lives(self.pid) && !self.is_another()
    }

    /// Whether its driver's number is another process's now. One whose session still has processes is given to nobody.
    fn is_another(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
        let now = stat.ok().and_then(|stat| ProcessStat::parse(&stat));
        let then = self.start;
        now.is_some_and(|now| then.is_some_and(|then| then != now.start))
    }

    fn pod(dir: &Path) -> Option<Self> {
        let volumes = dir.join(VOLUMES);
        let launch: Launch = read_json(&volumes.join(LAUNCH_VOLUME).join(LAUNCH_FILE))?;
        let driver_dir = volumes.join(DRIVER_DIR);
        let listening: Listening = read_json(&driver_dir.join(LISTENING_FILE))?;
        Some(Self {
            pod: pod_of(&launch.session, launch.generation),
            session: launch.session,
            generation: launch.generation,
            address: listening.address,
            pid: listening.pid,
            start: None,
            work_dir: volumes.join(WORK_DIR),
            driver_dir,
        })
    }
}

/// All sandboxes below a directory.
#[derive(Debug, Clone)]
pub struct Sandboxes {
    kind: SandboxKind,
    dir: PathBuf,
}

impl Sandboxes {
    /// The sandboxes below a directory.
    pub(crate) fn new(kind: SandboxKind, dir: PathBuf) -> Self {
        Self { kind, dir }
    }

    /// Where they are.
    pub fn kind(&self) -> SandboxKind {
        self.kind
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A session's sandboxes, oldest first.
    pub fn of(&self, session: &SessionId) -> Vec<Sandbox> {
        let mut found = self.all();
        found.retain(|sandbox| sandbox.session == *session);
        found.sort_by_key(|sandbox| sandbox.generation);
        found
    }

    /// A session's newest sandbox.
    ///
    /// # Errors
    /// When it has none.
    pub fn newest(&self, session: &SessionId) -> anyhow::Result<Sandbox> {
        self.of(session).pop().context("the session has no sandbox")
    }

    /// SIGKILL to a session's drivers and all of their processes, as a machine's loss would. Whoever watches them may not have seen it
    /// yet; see [`super::Stack::kill_sandbox`].
    pub fn kill9(&self, session: &SessionId) {
        let theirs = self.of(session);
        let theirs = theirs.iter().filter(|s| !s.is_another());
        let leaders = theirs.map(|s| s.pid).collect();
        kill_sessions(&leaders);
    }

    /// The same for every sandbox; returns when all are gone, or after a bound.
    pub fn kill_all(&self) {
        let theirs = self.all();
        let theirs = theirs.iter().filter(|s| !s.is_another());
        let mut leaders: BTreeSet<u32> = theirs.map(|s| s.pid).collect();
        // a local one that listens and is not registered yet
        let listening = |dir: PathBuf| read_json(&dir.join(DRIVER_DIR).join(LISTENING_FILE));
        let listening = self.dirs().filter_map(listening);
        leaders.extend(listening.map(|l: Listening| l.pid));
        // one that was being made has no file yet, but works below our directory
        leaders.extend(processes().filter(|p| p.names(&self.dir)).map(|p| p.pid));
        kill_sessions(&leaders);
    }

    /// The agents of a sandbox: processes of its driver's session that run a program of this name.
    pub fn agents(&self, sandbox: &Sandbox, program: &str) -> Vec<u32> {
        let theirs = processes().filter(|p| p.session == sandbox.pid && p.pid != sandbox.pid);
        theirs
            .filter(|p| !p.zombie && command_line(p.pid).contains(program))
            .map(|p| p.pid)
            .collect()
    }

    /// Processes that still work for any sandbox below the directory: drivers, and whoever works in a directory of one.
    pub fn left_processes(&self) -> Vec<(u32, String)> {
        let below = |p: &Stat| {
            let works_in = std::fs::read_link(format!("/proc/{}/cwd", p.pid)).unwrap_or_default();
            p.names(&self.dir) || works_in.starts_with(&self.dir)
        };
        processes()
            .filter(|p| !p.zombie && below(p))
            .map(|p| {
                let works_in = std::fs::read_link(format!("/proc/{}/cwd", p.pid));
                let works_in = works_in.unwrap_or_default();
                let told = format!("{} in {}", command_line(p.pid), works_in.display());
                (p.pid, told)
            })
            .collect()
    }

    /// The names of the directories that are there.
    pub fn left_directories(&self) -> Vec<String> {
        let name = |dir: PathBuf| Some(dir.file_name()?.to_str()?.to_owned());
        self.dirs().filter_map(name).collect()
    }

    fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path()))
    }

    /// Every sandbox whose driver listens, or listened.
    pub fn all(&self) -> Vec<Sandbox> {
        let read = |dir: PathBuf| match self.kind {
            SandboxKind::Local => Sandbox::local(&dir),
            SandboxKind::Kubernetes => Sandbox::pod(&dir),
        };
        self.dirs().filter_map(read).collect()
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Kills the leaders and whoever is in their process sessions.
fn kill_sessions(leaders: &BTreeSet<u32>) {
    let deadline = Instant::now() + GONE;
    loop {
        let ours: Vec<u32> = processes()
            .filter(|p| !p.zombie && (leaders.contains(&p.pid) || leaders.contains(&p.session)))
            .map(|p| p.pid)
            .collect();
        if ours.is_empty() || Instant::now() >= deadline {
            return;
        }
        for pid in ours.iter().filter_map(|pid| i32::try_from(*pid).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "looks at a level, from Drop, where nothing can be awaited"
        )]
        std::thread::sleep(POLL);
    }
}

/// Whether a process exists and is no zombie.
pub fn pid_lives(pid: u32) -> bool {
    Stat::read(pid).is_some_and(|stat| !stat.zombie)
}

/// A process's command line, words joined by spaces; empty when it is gone.
pub fn command_line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// What /proc/<pid>/stat tells.
struct Stat {
    pid: u32,
    session: u32,
    zombie: bool,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // the name in parentheses may hold anything; the fields begin behind its end
        let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
        let zombie = fields.next()? == "Z";
        let session = fields.nth(2)?.parse().ok()?;
        Some(Self {
            pid,
            session,
            zombie,
        })
    }

    /// Whether it is a driver that was launched from below a directory.
    fn names(&self, dir: &Path) -> bool {
        let line = command_line(self.pid);
        line.contains("--launch") && line.contains(&*dir.to_string_lossy())
    }
}

fn processes() -> impl Iterator<Item = Stat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|e| Stat::read(e.ok()?.file_name().to_str()?.parse().ok()?))
}
