//! One of our programs as a child process with a log file.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::binaries::program;
use super::config::Env;
use super::logs::tail_of;
use crate::client::http::fetch;
use crate::eventually;

pub(super) const LOG_DIR: &str = "logs";
/// What a developer's shell may say to the processes; everything else is ours.
const INHERITED: [&str; 5] = ["PATH", "HOME", "TMPDIR", "RUST_LOG", "RUST_BACKTRACE"];
/// SIGKILL needs no consent.
const KILL: Duration = Duration::from_secs(10);

pub(super) struct Process {
    name: &'static str,
    args: &'static [&'static str],
    env: Env,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    pub(super) fn new(name: &'static str, args: &'static [&'static str], dir: &Path) -> Self {
        Self::logging_as(name, name, args, dir)
    }

    /// The same program beside the first one, with a log of its own.
    pub(super) fn logging_as(
        log: &str,
        name: &'static str,
        args: &'static [&'static str],
        dir: &Path,
    ) -> Self {
        Self {
            name,
            args,
            env: Env::new(),
            log: dir.join(LOG_DIR).join(format!("{log}.log")),
            child: None,
        }
    }

    /// Starts it with an environment that it keeps over restarts.
    pub(super) fn start_with(&mut self, env: Env) -> anyhow::Result<()> {
        self.env = env;
        self.start()
    }

    /// Kills it, if it runs, and its log with it.
    pub(super) fn forget(&mut self) -> anyhow::Result<()> {
        let _ = self.kill9();
        std::fs::remove_file(&self.log)
            .with_context(|| format!("cannot remove {}", self.log.display()))
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.to_owned()));
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub(super) fn log(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    /// Starts it; its output is appended to its log.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("cannot write {}", self.log.display()))?;
        let child = command(self.name, self.args, &self.env)?
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until /readyz says yes.
    pub(super) async fn ready(&mut self, admin: SocketAddr, bound: Duration) -> anyhow::Result<()> {
        let waited = eventually("/readyz answers 200", bound, async || {
            match self.exit_code() {
                Some(code) => Some(Err(code)),
                None => is_ready(admin).await.then_some(Ok(())),
            }
        });
        match waited.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(code)) => bail!("{} ended with {code}; {}", self.name, tail_of(&self.log)),
            Err(error) => bail!(
                "{} is not ready: {error}; {}",
                self.name,
                tail_of(&self.log)
            ),
        }
    }

    /// Its exit code once it ended, -1 for a signal; the process is forgotten then.
    pub(super) fn exit_code(&mut self) -> Option<i32> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(status.code().unwrap_or(-1))
    }

    pub(super) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Waits for its end; `None` when it did not run.
    pub(super) async fn ended(&mut self, bound: Duration) -> anyhow::Result<Option<i32>> {
        if self.child.is_none() {
            return Ok(None);
        }
        let what = format!("{} ends", self.name);
        let code = eventually(&what, bound, async || self.exit_code()).await;
        code.map(Some).with_context(|| tail_of(&self.log))
    }

    pub(super) fn kill9(&mut self) -> anyhow::Result<()> {
        let child = self.child.as_mut();
        let child = child.with_context(|| format!("{} does not run", self.name))?;
        child.kill()?;
        child.wait()?;
        self.child = None;
        Ok(())
    }

    pub(super) async fn restart(&mut self, grace: Duration) -> anyhow::Result<()> {
        self.terminate();
        if let Some(code) = self.ended(grace).await? {
            ensure!(code == 0, "{} ended with {code} after SIGTERM", self.name);
        }
        self.start()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill9();
    }
}

async fn is_ready(admin: SocketAddr) -> bool {
    let request = Request::get("/readyz").body(Full::<Bytes>::default());
    let Ok(request) = request else { return false };
    let answer = tokio::time::timeout(KILL, fetch(admin, request)).await;
    matches!(answer, Ok(Ok(answer)) if answer.status().is_success())
}

fn command(name: &str, args: &[&str], env: &[(String, String)]) -> anyhow::Result<Command> {
    let mut command = Command::new(program(name)?);
    command.args(args).env_clear().stdin(Stdio::null());
    for name in INHERITED {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command.envs(env.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

/// Runs a program to its end.
pub(super) fn output(
    name: &str,
    args: &[&str],
    env: &[(String, String)],
) -> anyhow::Result<std::process::Output> {
    Ok(command(name, args, env)?.output()?)
}

pub(super) fn run(name: &str, args: &[&str], env: &[(String, String)]) -> anyhow::Result<()> {
    let output = output(name, args, env)?;
    ensure!(
        output.status.success(),
        "{name} {args:?} failed: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
