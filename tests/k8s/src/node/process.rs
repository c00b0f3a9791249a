//! Processes that stand for containers: each leads a process session of its own, which is killed as a whole.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::process::ExitStatusExt;
use tokio::process::{Child, Command};

use super::Setting;

/// How long killed processes may take to be seen gone.
const GONE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

/// Standard streams of a process that is started.
pub(crate) struct Running {
    pub(crate) child: Child,
    /// The leader; also the session's number.
    pub(crate) pid: u32,
}

/// Starts `argv` in a setting, as the leader of a session. The caller says where its streams go.
pub(crate) fn start(
    argv: &[String],
    setting: &Setting,
    streams: impl FnOnce(&mut Command),
) -> std::io::Result<Running> {
    // `setsid` becomes the program: it leads no group when it starts, so it does not fork
    let mut command = Command::new("setsid");
    command
        .args(argv.iter().map(|word| setting.outside(word)))
        .env_clear()
        .envs(&setting.env)
        .current_dir(&setting.workdir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    streams(&mut command);
    let child = command.spawn()?;
    let pid = child
        .id()
        .ok_or_else(|| std::io::Error::other("it has no number"))?;
    Ok(Running { child, pid })
}

/// Where a program is, as exec would look for it in the container.
pub(crate) fn is_there(program: &str, setting: &Setting) -> bool {
    let outside = setting.outside(program);
    let is_file = |path: &std::path::Path| path.is_file();
    if outside.contains('/') {
        return is_file(std::path::Path::new(&outside));
    }
    let path = setting.env.get("PATH").cloned().unwrap_or_default();
    path.split(':')
        .any(|dir| is_file(&std::path::Path::new(dir).join(&outside)))
}

/// The exit code that shells and clusters give.
pub(crate) fn code_of(status: std::io::Result<ExitStatus>) -> i32 {
    match status {
        Ok(status) => status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        Err(_) => super::KILLED,
    }
}

pub(crate) fn terminate(pid: u32) {
    signal(pid, Signal::SIGTERM);
}

fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        // it may be gone
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// Kills a leader and everybody in its session, until nobody of it is seen.
pub(crate) fn kill_session(leader: u32) {
    for pid in session(leader) {
        signal(pid, Signal::SIGKILL);
    }
}

/// Waits until nobody of a session lives.
pub(crate) async fn session_gone(leader: u32) {
    let until = tokio::time::Instant::now() + GONE;
    while !session(leader).is_empty() && tokio::time::Instant::now() < until {
        kill_session(leader);
        tokio::time::sleep(LOOK).await;
    }
}

/// The living processes of a session.
pub(crate) fn session(leader: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // the name in parentheses may hold anything; the fields begin behind its end
            let fields = stat
                .rfind(')')
                .map(|end| &stat[end + 1..])
                .unwrap_or_default();
            let mut fields = fields.split_whitespace();
            let dead = fields.next().is_none_or(|state| matches!(state, "Z" | "X"));
            !dead && (fields.nth(2) == Some(&leader.to_string()) || *pid == leader)
        })
        .collect()
}
