//! Processes of the agent: an environment built from nothing, a process group of their own, another user where there is one.

use std::collections::BTreeMap;
use std::io;
use std::process::{ExitStatus, Stdio};

use bex_proto::launch::Isolation;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::profile::Surroundings;

/// Where programs are looked for when the driver has no PATH itself.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How to start an agent's process.
#[derive(Clone)]
pub struct Spawn {
    /// Program (absolute path) and arguments.
    pub argv: Vec<String>,
    /// Environment of its own.
    pub env: BTreeMap<String, String>,
    /// Where, as whom, with which credentials.
    pub surroundings: Surroundings,
}

/// The environment of everything that runs in a sandbox: PATH and HOME, nothing of the driver's own.
pub fn base_environment(surroundings: &Surroundings) -> BTreeMap<String, String> {
    let path = std::env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned());
    let home = surroundings.workdir.display().to_string();
    BTreeMap::from([("PATH".to_owned(), path), ("HOME".to_owned(), home)])
}

impl Spawn {
    /// Starts it with its three streams piped.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(&self) -> io::Result<AgentChild> {
        let (program, arguments) = self
            .argv
            .split_first()
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(base_environment(&self.surroundings))
            .envs(&self.env)
            .envs(&self.surroundings.credentials)
            .current_dir(&self.surroundings.workdir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Isolation::User { uid, gid } = self.surroundings.isolation {
            // as root this clears the supplementary groups too; no new privileges: see serve
            command.uid(uid).gid(gid);
        }
        let child = command.spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok());
        Ok(AgentChild {
            child,
            group: group.map(Pid::from_raw),
        })
    }
}

/// A started process with all that it started. Dropping it kills them.
#[derive(Debug)]
pub struct AgentChild {
    /// The process.
    pub child: Child,
    group: Option<Pid>,
}

impl AgentChild {
    /// Asks the whole group to end.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Kills the whole group and waits for the process.
    ///
    /// # Errors
    /// What the system says.
    pub async fn kill(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::SIGKILL);
        self.child.wait().await
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // the group may be gone already
            let _ = killpg(group, signal);
        }
    }
}

impl Drop for AgentChild {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}
