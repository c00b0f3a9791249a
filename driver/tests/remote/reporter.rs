//! One reporter of a test: its state directory, its process, what it wrote.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::double::{Double, TOKEN};

pub const DRIVER: &str = env!("CARGO_BIN_EXE_bex-driver");
/// Far over what anything here takes; a wait ends when its level is reached.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Reporter {
    pub root: TempDir,
    url: String,
    session: String,
    /// Before the command.
    pub flags: Vec<String>,
    command: Vec<String>,
    child: Option<Child>,
}

/// Waits for a level.
pub async fn eventually(what: &str, mut seen: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !seen() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Reporter {
    /// Whether the command is stopped, or waits for a child that was stopped before it became a program of its own.
    pub fn is_held(&self) -> bool {
        matches!(self.command_state(), Some('T' | 'D'))
    }

    /// One that runs a shell script, not started yet.
    pub fn shell(double: &Double, script: &str) -> Self {
        Self::command(double, &["/bin/sh", "-c", script])
    }

    pub fn command(double: &Double, command: &[&str]) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::write(root.path().join("token"), format!("{TOKEN}\n")).expect("a file");
        Self {
            root,
            url: double.url(),
            session: double.lock().id.to_string(),
            flags: Vec::new(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            child: None,
        }
    }

    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        self
    }

    pub fn start(&mut self) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("a log");
        let echo = std::fs::File::create(self.root.path().join("echo")).expect("a file");
        let child = Command::new(DRIVER)
            .args(["remote", "--url", &self.url, "--session", &self.session])
            .arg("--state")
            .arg(self.state())
            .arg("--token-file")
            .arg(self.root.path().join("token"))
            .args(&self.flags)
            .arg("--")
            .args(&self.command)
            .current_dir(self.root.path())
            .stdin(Stdio::null())
            .stdout(echo)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("the reporter starts");
        self.child = Some(child);
    }

    pub fn started(mut self) -> Self {
        self.start();
        self
    }

    /// kill -9 of the reporter, and of nothing else.
    pub async fn kill(&mut self) {
        let child = self.child.as_mut().expect("it was started");
        child.kill().await.expect("killed");
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = self.child.as_ref().and_then(Child::id).expect("it runs");
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("a pid"));
        nix::sys::signal::kill(pid, signal).expect("signalled");
    }

    /// Its end, by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let child = self.child.as_mut().expect("it was started");
        match tokio::time::timeout(PATIENCE, child.wait()).await {
            Ok(status) => status.expect("a status"),
            Err(_) => panic!("it does not end; it said: {}", self.log()),
        }
    }

    /// Its exit code.
    pub async fn code(&mut self) -> i32 {
        let status = self.ended().await;
        status
            .code()
            .unwrap_or_else(|| panic!("{status}: {}", self.log()))
    }

    pub fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    fn log_path(&self) -> PathBuf {
        self.root.path().join("log")
    }

    /// What it logged, in all its lives.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The command's process state by /proc, e.g. `S`; nothing when it is gone.
    pub fn command_state(&self) -> Option<char> {
        let record = std::fs::read(self.state().join("child.json")).ok()?;
        let record: serde_json::Value = serde_json::from_slice(&record).expect("a record");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", record["pid"])).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    /// A file that a script wrote.
    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.root.path().join(name)).unwrap_or_default()
    }
}
