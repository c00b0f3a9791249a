//! What a driver is started with, and what a local sandbox's registry file says.
//!
//! The api writes a [`Launch`] beside the driver (file mode 0600, it holds the driver's key); the driver answers with a
//! [`Listening`] file once it accepts connections. For sandboxes of the local kind the api then writes [`LocalSandbox`], which
//! the gateway's local target reads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{Generation, SessionId, TurnNo, WorkspaceId};
use crate::limits;

mod stat;

pub use stat::ProcessStat;

/// Name of the launch file in the driver's directory.
pub const LAUNCH_FILE: &str = "launch.json";
/// Name of the file a driver writes when it listens.
pub const LISTENING_FILE: &str = "listening.json";
/// Name of a local sandbox's registry file in the sandbox's directory.
pub const SANDBOX_FILE: &str = "sandbox.json";
/// The driver's directory within a local sandbox's directory; status, logs and launch file live here.
pub const DRIVER_DIR: &str = "driver";
/// The agent's directory within a local sandbox's directory.
pub const WORK_DIR: &str = "work";

/// Everything a driver needs to know.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Launch {
    /// The session it speaks for.
    pub session: SessionId,
    /// Its workspace.
    pub workspace: WorkspaceId,
    /// Its life.
    pub generation: Generation,
    /// [`crate::driver::DriverKey`] as hexadecimal.
    pub key: String,
    /// Where to listen; port 0 lets the system choose (local kind).
    pub listen: SocketAddr,
    /// Directory of status and logs.
    pub dir: PathBuf,
    /// The agent's working directory.
    pub workdir: PathBuf,
    /// The agent.
    pub agent: AgentSpec,
    /// Credentials by environment name: given to the agent, redacted everywhere, scrubbed at the end.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    /// The old form: one log, no generation, no ids, no proof, and this one turn.
    #[serde(default)]
    pub legacy: Option<LegacyTurn>,
    /// Who the agent runs as.
    pub isolation: Isolation,
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launch")
            .field("session", &self.session)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// The one turn of a driver of the old form, given at its creation.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LegacyTurn {
    /// The turn.
    pub turn: TurnNo,
    /// Its prompt.
    pub prompt: String,
}

/// Who the agent's processes run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Isolation {
    /// The driver's own user: no protection is claimed. Only the local kind.
    None,
    /// Another user, with no groups and no new privileges.
    User {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
}

/// What runs the turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "kind",
    deny_unknown_fields
)]
pub enum AgentSpec {
    /// An Agent Client Protocol agent over stdio.
    Acp {
        /// Program (absolute path) and arguments.
        argv: Vec<String>,
        /// Environment of its own.
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// How its permission requests are answered.
        #[serde(default)]
        permissions: Permissions,
        /// Files of its directory that hold credentials, see [`is_credential_file`]: overwritten in place before a turn ends.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        credential_files: Vec<String>,
    },
    /// A program whose output becomes the answer; the prompt is its standard input.
    Command {
        /// Program (absolute path) and arguments.
        argv: Vec<String>,
        /// Environment of its own.
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// Files of its directory that hold credentials, see [`is_credential_file`]: overwritten in place before a turn ends.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        credential_files: Vec<String>,
    },
    /// A recorded UI message stream, played.
    Play {
        /// The recording, an SSE file.
        file: PathBuf,
        /// How fast.
        pace: Pace,
    },
}

impl AgentSpec {
    /// Files of the agent's directory that hold credentials.
    pub fn credential_files(&self) -> &[String] {
        match self {
            Self::Acp {
                credential_files, ..
            }
            | Self::Command {
                credential_files, ..
            } => credential_files,
            Self::Play { .. } => &[],
        }
    }
}

/// Whether a path may name a credential file: within the agent's directory, spelled plainly, [`limits::CREDENTIAL_PATH_BYTES`] at most.
pub fn is_credential_file(path: &str) -> bool {
    path.len() <= limits::CREDENTIAL_PATH_BYTES
        && !path.contains('\0')
        && path.split('/').all(|step| !matches!(step, "" | "." | ".."))
}

/// How a permission request is answered: the sandbox is the boundary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permissions {
    /// Yes.
    #[default]
    Allow,
    /// No.
    Deny,
}

/// How fast a recording is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Pace {
    /// As fast as it can be taken.
    Max,
    /// So many parts a second, at least 1.
    PartsPerSecond(u32),
}

/// What a driver says once it listens.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listening {
    /// Its address.
    pub address: SocketAddr,
    /// Its process.
    pub pid: u32,
}

/// A sandbox of the local kind: a directory, a driver process of its own session, a port on 127.0.0.1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalSandbox {
    /// The session.
    pub session: SessionId,
    /// Its life.
    pub generation: Generation,
    /// `<workspace>-sandbox`.
    pub namespace: String,
    /// `<session>-g<generation>`; also the directory's name.
    pub pod: String,
    /// Random; another one means another sandbox.
    pub pod_uid: String,
    /// Where the driver listens.
    pub address: SocketAddr,
    /// The driver's process.
    pub pid: u32,
    /// Field 22 of `/proc/<pid>/stat`: a pid that was reused has another.
    pub pid_start: u64,
    /// Whether the driver has the old form.
    pub legacy: bool,
}

/// The container that holds the driver.
pub const CONTAINER: &str = "sandbox";

/// The driver's binary in a sandbox's container, where a template says nothing else.
pub const POD_DRIVER_BIN: &str = "/opt/bex/bex-driver";
/// The driver's directory in a sandbox's container, where a template says nothing else.
pub const POD_DRIVER_DIR: &str = "/var/lib/bex/driver";
/// A driver in a pod is given the credential `X`, which its launch does not hold, in the variable `BEX_SECRET_X`.
pub const SECRET_VARIABLE: &str = "BEX_SECRET_";
/// A driver is given its session's [`crate::driver::TokenSeed`], as hexadecimal, in this variable; older ones do not know it.
pub const TOKEN_SEED_VARIABLE: &str = "BEX_TOKEN_SEED";

/// The namespace of a workspace's sandboxes.
pub fn namespace_of(workspace: &WorkspaceId) -> String {
    format!("{workspace}-sandbox")
}

/// The name of a sandbox: a repeated create finds its own.
pub fn pod_of(session: &SessionId, generation: Generation) -> String {
    format!("{session}-g{generation}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_files_stay_within_the_directory() {
        for path in ["a", ".netrc", ".config/agent/auth.json", "a..b/..c"] {
            assert!(is_credential_file(path), "{path}");
        }
        let long = "x".repeat(limits::CREDENTIAL_PATH_BYTES + 1);
        for path in [
            "",
            "/etc/shadow",
            "..",
            "../a",
            "a/../b",
            "a/..",
            ".",
            "./a",
            "a/",
            "a//b",
            "a\0b",
            &long,
        ] {
            assert!(!is_credential_file(path), "{path}");
        }
    }
}
