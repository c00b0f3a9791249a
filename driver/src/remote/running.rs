//! The command while it runs: found by pid and start time, signalled as a group, and its end.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bex_proto::launch::ProcessStat;
use bex_proto::remote::OutputStream;
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::arguments::{Config, InputFrom, TOKEN_VARIABLE};
use super::fault::Fault;
use super::place::{Place, read_json};

/// From SIGTERM to SIGKILL.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// How often is looked whether it has begun or ended, where nothing else is to do.
const LOOK: Duration = Duration::from_millis(20);
const UNKNOWN: u8 = 70;
const NOT_STARTED: u8 = 127;

/// A process, named for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildRecord {
    pid: u32,
    /// Clock ticks from boot to its start.
    start: u64,
}

impl ChildRecord {
    /// The record of a process of now.
    ///
    /// # Errors
    /// When there is none.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = stat(pid).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Self {
            pid,
            start: stat.start,
        })
    }

    fn lives(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.start == self.start && !stat.zombie)
    }
}

fn stat(pid: u32) -> Option<ProcessStat> {
    let line = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    ProcessStat::parse(&String::from_utf8_lossy(&line))
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It never ran.
    NotStarted(String),
    /// Nobody saw it: its runner was killed.
    Unknown,
}

impl End {
    /// As a shell would say it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Code(code) => u8::try_from(*code).unwrap_or(UNKNOWN),
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(UNKNOWN),
            Self::NotStarted(_) => NOT_STARTED,
            Self::Unknown => UNKNOWN,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "the command ended with exit code {code}"),
            Self::Signal(signal) => match Signal::try_from(*signal) {
                Ok(signal) => write!(f, "the command was ended by {signal}"),
                Err(_) => write!(f, "the command was ended by signal {signal}"),
            },
            Self::NotStarted(fault) => write!(f, "the command could not be started: {fault}"),
            Self::Unknown => f.write_str("the command ended, and nobody saw how"),
        }
    }
}

/// Whether it is told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    No,
    /// SIGKILL is due.
    KillAt(Instant),
    /// It was sent.
    Killed,
}

/// See the module's text.
#[derive(Debug)]
pub struct Running {
    place: Arc<Place>,
    child: Option<ChildRecord>,
    stopping: Mutex<Stopping>,
}

impl Running {
    /// Starts the command, or finds the one that an earlier reporter started.
    ///
    /// # Errors
    /// When there is no way to start it. A command that is none is no error here: see [`End::NotStarted`].
    pub async fn start(config: &Config, place: Arc<Place>) -> Result<Self, Fault> {
        let mut runner = match place.child().exists() || place.exit().exists() {
            true => None,
            false => Some(spawn(config, &place)?),
        };
        let child = loop {
            if let Some(child) = read_json(&place.child())? {
                break Some(child);
            }
            if place.exit().exists() {
                break None;
            }
            if let Some(Ok(Some(status))) = runner.as_mut().map(tokio::process::Child::try_wait) {
                // unless another one, of an earlier reporter, is at it
                let idle = place.lock_runner()?.is_some();
                if idle && !place.child().exists() && !place.exit().exists() {
                    let what = format!("the runner ended with {status}");
                    return Err(io::Error::other(what).into());
                }
            }
            sleep(LOOK).await;
        };
        Ok(Self {
            place,
            child,
            stopping: Mutex::new(Stopping::No),
        })
    }

    /// Its pid, which is its group's.
    pub fn pid(&self) -> Option<u32> {
        self.child.map(|child| child.pid)
    }

    /// How it ended; nothing while it runs.
    ///
    /// # Errors
    /// What the system says.
    pub fn ended(&self) -> Result<Option<End>, Fault> {
        if let Some(end) = read_json(&self.place.exit())? {
            return Ok(Some(end));
        }
        if self.child.is_some_and(ChildRecord::lives) || self.place.lock_runner()?.is_none() {
            return Ok(None);
        }
        // the runner may have written it and gone in between
        Ok(Some(read_json(&self.place.exit())?.unwrap_or(End::Unknown)))
    }

    /// Sends a signal to all of its group. `false`: there is nobody.
    pub fn signal(&self, signal: Signal) -> bool {
        match self.child {
            Some(child) if child.lives() => {
                let group = i32::try_from(child.pid).map(Pid::from_raw);
                group.is_ok_and(|group| killpg(group, signal).is_ok())
            }
            _ => false,
        }
    }

    /// Tells it to end; what does not is killed in ten seconds, by [`Running::kill_when_due`].
    pub fn stop(&self) {
        let mut stopping = self.stopping();
        if *stopping == Stopping::No {
            *stopping = Stopping::KillAt(Instant::now() + STOP_GRACE);
            self.signal(Signal::SIGTERM);
            // one that is held hears nothing else
            self.signal(Signal::SIGCONT);
        }
    }

    /// Whether it was told to end.
    pub fn is_stopping(&self) -> bool {
        *self.stopping() != Stopping::No
    }

    /// Kills a command that does not end.
    pub fn kill_when_due(&self) {
        let mut stopping = self.stopping();
        if matches!(*stopping, Stopping::KillAt(at) if at <= Instant::now()) {
            *stopping = Stopping::Killed;
            self.signal(Signal::SIGKILL);
        }
    }

    /// Stops it and waits for its end.
    ///
    /// # Errors
    /// What the system says.
    pub async fn stop_and_wait(&self) -> Result<(), Fault> {
        self.stop();
        while self.ended()?.is_none() {
            self.kill_when_due();
            sleep(LOOK).await;
        }
        Ok(())
    }

    fn stopping(&self) -> std::sync::MutexGuard<'_, Stopping> {
        self.stopping.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes what the command writes to and reads from, and starts its runner.
fn spawn(config: &Config, place: &Place) -> io::Result<tokio::process::Child> {
    for stream in [OutputStream::Stdout, OutputStream::Stderr] {
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(place.spool(stream))?;
    }
    if config.input == InputFrom::Pipe && !place.stdin().exists() {
        nix::unistd::mkfifo(&place.stdin(), Mode::S_IRUSR | Mode::S_IWUSR)?;
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg("remote-run").arg("--state").arg(place.dir());
    if config.input == InputFrom::Nowhere {
        command.arg("--no-input");
    }
    command
        .arg("--")
        .args(&config.command)
        .env_remove(TOKEN_VARIABLE)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // it outlives the reporter, and must hold nobody's terminal or pipe
        .stderr(Stdio::null())
        .spawn()
}
