//! Starting and ending the supervisor from another process.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{DEV_FILE, Dev};
use crate::eventually;
use crate::stack::{bin_dir, command_line, pid_lives};

/// A cold start of everything.
const UP: Duration = Duration::from_secs(120);
/// The grace of every process, one after the other, with room.
const DOWN: Duration = Duration::from_secs(90);
const LOG: &str = "stack.log";

/// What `up` found.
#[derive(Debug)]
pub enum Started {
    /// It was started now.
    Now(Dev),
    /// It was running already.
    Already(Dev),
}

/// Starts the supervisor unless it runs, and waits for its `dev.json`.
///
/// # Errors
/// When it ends before it is ready; the error ends with its log.
pub async fn up(dir: &Path, arguments: &[String]) -> anyhow::Result<Started> {
    if let Some(dev) = running(dir)? {
        return Ok(Started::Already(dev));
    }
    std::fs::create_dir_all(dir)?;
    let log_path = dir.join(LOG);
    let log = File::create(&log_path)?;
    let mut child = Command::new(bin_dir()?.join("bex-stack"))
        .arg("serve")
        .arg("--dir")
        .arg(dir)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot start bex-stack")?;
    let dev = eventually("the stack writes dev.json", UP, async || {
        match child.try_wait() {
            Ok(None) => running(dir).transpose(),
            _ => Some(Err(anyhow::anyhow!("the stack ended"))),
        }
    });
    match dev.await {
        Ok(Ok(dev)) => Ok(Started::Now(dev)),
        Ok(Err(error)) | Err(error) => {
            let log = std::fs::read_to_string(&log_path).unwrap_or_default();
            bail!("{error}; its log:\n{log}")
        }
    }
}

/// Ends the stack; `false` when none was running.
///
/// # Errors
/// When it does not end.
pub async fn down(dir: &Path) -> anyhow::Result<bool> {
    let Some(dev) = Dev::read(dir)? else {
        return Ok(false);
    };
    let ran = dev.lives();
    if ran {
        signal(dev.stack_pid, Signal::SIGTERM);
        eventually("the stack ends", DOWN, async || {
            (!pid_lives(dev.stack_pid)).then_some(())
        })
        .await?;
    }
    // what a killed supervisor left behind
    for (pid, name) in [(dev.api_pid, "bex-api"), (dev.gateway_pid, "bex-gateway")] {
        if is_ours(pid, name) {
            signal(pid, Signal::SIGKILL);
        }
    }
    dev.sandboxes().kill_all();
    match std::fs::remove_file(dir.join(DEV_FILE)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(ran),
    }
}

/// The stack of a directory, if its supervisor lives.
///
/// # Errors
/// When `dev.json` cannot be understood.
fn running(dir: &Path) -> anyhow::Result<Option<Dev>> {
    let dev = Dev::read(dir)?;
    Ok(dev.filter(Dev::lives))
}

impl Dev {
    /// Whether the process that owns the stack lives.
    pub fn lives(&self) -> bool {
        is_ours(self.stack_pid, "bex-stack")
    }
}

/// A pid in a file may long be another program's.
fn is_ours(pid: u32, name: &str) -> bool {
    pid_lives(pid)
        && command_line(pid)
            .split(' ')
            .next()
            .is_some_and(|p| p.ends_with(name))
}

fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}
