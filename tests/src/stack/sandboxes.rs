//! The sandboxes of a local stack: who lives, and how all of them are ended.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use bex_proto::SessionId;
use bex_proto::launch::{
    DRIVER_DIR, LISTENING_FILE, Listening, LocalSandbox, SANDBOX_FILE, WORK_DIR,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long killed processes may take to be gone.
const GONE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// The directory of all sandboxes.
#[derive(Debug, Clone)]
pub struct Sandboxes {
    dir: PathBuf,
}

impl Sandboxes {
    /// The sandboxes below a directory.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Every registered sandbox of a session.
    pub fn of(&self, session: &SessionId) -> Vec<LocalSandbox> {
        let mut found: Vec<LocalSandbox> = self
            .pods()
            .iter()
            .filter_map(|pod| read_json(&pod.join(SANDBOX_FILE)))
            .filter(|sandbox: &LocalSandbox| sandbox.session == *session)
            .collect();
        found.sort_by_key(|sandbox| sandbox.generation);
        found
    }

    /// The agent's directory of a session's newest sandbox.
    ///
    /// # Errors
    /// When there is none.
    pub fn work_dir(&self, session: &SessionId) -> anyhow::Result<PathBuf> {
        let newest = self.of(session).pop().context("no sandbox is registered")?;
        Ok(self.dir.join(newest.pod).join(WORK_DIR))
    }

    /// The driver's directory of a session's newest sandbox.
    ///
    /// # Errors
    /// When there is none.
    pub fn driver_dir(&self, session: &SessionId) -> anyhow::Result<PathBuf> {
        let newest = self.of(session).pop().context("no sandbox is registered")?;
        Ok(self.dir.join(newest.pod).join(DRIVER_DIR))
    }

    /// SIGKILL to a session's drivers and all of their processes, as a machine's loss would.
    pub fn kill9(&self, session: &SessionId) {
        let leaders = self.of(session).iter().map(|s| s.pid).collect();
        kill_sessions(&leaders);
    }

    /// The same for every sandbox; returns when all are gone, or after a bound.
    pub fn kill_all(&self) {
        let mut leaders = BTreeSet::new();
        for pod in self.pods() {
            let registered: Option<LocalSandbox> = read_json(&pod.join(SANDBOX_FILE));
            let listening: Option<Listening> =
                read_json(&pod.join(DRIVER_DIR).join(LISTENING_FILE));
            leaders.extend(registered.map(|s| s.pid));
            leaders.extend(listening.map(|l| l.pid));
        }
        // one that was being made has no file yet, but works below our directory
        leaders.extend(processes().filter(|p| p.names(&self.dir)).map(|p| p.pid));
        kill_sessions(&leaders);
    }

    fn pods(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten();
        entries.filter_map(|e| Some(e.ok()?.path())).collect()
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
