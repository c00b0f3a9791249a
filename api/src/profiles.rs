//! Agent profiles: what may run in a session, from a reviewed file, never from a caller.
//!
//! A profile that takes its arguments from the caller exists only on one machine (`BEX_LOCAL=1`). Resolving a request
//! is the same code when a session is created (so that the caller hears what is wrong) and when it is dispatched.

mod resolve;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bex_proto::launch::{Permissions, is_credential_file};
use bex_proto::limits;
use serde::Deserialize;

pub use resolve::{ProfileFault, Resolved};

/// The profiles a deployment allows.
#[derive(Debug, Clone)]
pub struct Profiles {
    profiles: BTreeMap<String, Profile>,
    play_dir: Option<PathBuf>,
}

/// One profile.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    /// What runs.
    pub agent: ProfileAgent,
    /// Whether callers give arguments.
    #[serde(default)]
    pub args: ArgsPolicy,
    /// A driver of the old form: one turn, no ids, no proof.
    #[serde(default)]
    pub legacy: bool,
}

/// What a profile runs. `argv` is absent where the caller gives it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "kind",
    deny_unknown_fields
)]
pub enum ProfileAgent {
    /// An Agent Client Protocol agent over stdio.
    Acp {
        /// Program (absolute path) and arguments.
        #[serde(default)]
        argv: Vec<String>,
        /// Environment of its own.
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// How its permission requests are answered.
        #[serde(default)]
        permissions: Permissions,
        /// Files of its directory that hold credentials: overwritten before each turn ends.
        #[serde(default)]
        credential_files: Vec<String>,
    },
    /// A program whose output becomes the answer.
    Command {
        /// Program (absolute path) and arguments.
        #[serde(default)]
        argv: Vec<String>,
        /// Environment of its own.
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// Files of its directory that hold credentials: overwritten before each turn ends.
        #[serde(default)]
        credential_files: Vec<String>,
    },
    /// A recorded stream below the play directory.
    Play {},
}

impl ProfileAgent {
    fn credential_files(&self) -> &[String] {
        match self {
            Self::Acp {
                credential_files, ..
            }
            | Self::Command {
                credential_files, ..
            } => credential_files,
            Self::Play {} => &[],
        }
    }
}

/// Where arguments come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArgsPolicy {
    /// The profile alone.
    #[default]
    None,
    /// The caller; only on one machine.
    Caller,
}

/// What a deployment lets profiles do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deployment {
    /// `BEX_LOCAL=1`: one machine, loopback listeners.
    Local,
    /// Anything else.
    Cluster,
}

/// Why a profiles file is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfilesFault {
    /// Not the expected JSON. A parser's own words could repeat what stands in a profile's environment.
    #[error("not a profiles file: line {line}, column {column}")]
    Json {
        /// Where.
        line: usize,
        /// Where.
        column: usize,
    },
    /// Caller arguments outside the local kind.
    #[error("profile {0} takes arguments from callers, which needs BEX_LOCAL=1")]
    CallerArgs(String),
    /// A program that is not named by an absolute path.
    #[error("profile {0} needs an argv whose first word is an absolute path")]
    Argv(String),
    /// An argv beside arguments from callers would be ignored.
    #[error("profile {0} has both an argv and arguments from callers")]
    TwoArgvs(String),
    /// A player always takes its recording from the caller.
    #[error("profile {0} plays a recording and needs args: caller")]
    PlayNeedsCaller(String),
    /// Paths that lead elsewhere, or too many.
    #[error(
        "profile {0} needs credentialFiles that are at most 16 plain paths within the agent's directory"
    )]
    CredentialFiles(String),
    /// Nobody would overwrite them.
    #[error("profile {0} is of the older form, whose drivers overwrite no credentialFiles")]
    LegacyCredentialFiles(String),
    /// Nowhere to read recordings from.
    #[error("profile {0} plays recordings, which needs BEX_PLAY_DIR")]
    PlayDir(String),
}

impl Profiles {
    /// Reads a profiles file's text. `play_dir` must be a canonical path.
    ///
    /// # Errors
    /// The first profile that is not allowed here, by name.
    pub fn parse(
        text: &str,
        deployment: Deployment,
        play_dir: Option<&Path>,
    ) -> Result<Self, ProfilesFault> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            profiles: BTreeMap<String, Profile>,
        }
        let file: File = serde_json::from_str(text).map_err(|e| ProfilesFault::Json {
            line: e.line(),
            column: e.column(),
        })?;
        for (name, profile) in &file.profiles {
            check(name, profile, deployment, play_dir)?;
        }
        Ok(Self {
            profiles: file.profiles,
            play_dir: play_dir.map(Path::to_owned),
        })
    }

    /// The profiles' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }
}

fn check(
    name: &str,
    profile: &Profile,
    deployment: Deployment,
    play_dir: Option<&Path>,
) -> Result<(), ProfilesFault> {
    let name = || name.to_owned();
    if profile.args == ArgsPolicy::Caller && deployment != Deployment::Local {
        return Err(ProfilesFault::CallerArgs(name()));
    }
    let files = profile.agent.credential_files();
    if files.len() > limits::CREDENTIAL_FILES || !files.iter().all(|f| is_credential_file(f)) {
        return Err(ProfilesFault::CredentialFiles(name()));
    }
    if profile.legacy && !files.is_empty() {
        return Err(ProfilesFault::LegacyCredentialFiles(name()));
    }
    match (&profile.agent, profile.args) {
        (ProfileAgent::Acp { argv, .. } | ProfileAgent::Command { argv, .. }, ArgsPolicy::None) => {
            let absolute = argv.first().is_some_and(|p| Path::new(p).is_absolute());
            if absolute {
                Ok(())
            } else {
                Err(ProfilesFault::Argv(name()))
            }
        }
        (
            ProfileAgent::Acp { argv, .. } | ProfileAgent::Command { argv, .. },
            ArgsPolicy::Caller,
        ) => {
            if argv.is_empty() {
                Ok(())
            } else {
                Err(ProfilesFault::TwoArgvs(name()))
            }
        }
        (ProfileAgent::Play {}, ArgsPolicy::None) => Err(ProfilesFault::PlayNeedsCaller(name())),
        (ProfileAgent::Play {}, ArgsPolicy::Caller) if play_dir.is_none() => {
            Err(ProfilesFault::PlayDir(name()))
        }
        (ProfileAgent::Play {}, ArgsPolicy::Caller) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(agent: &str, deployment: Deployment) -> Result<Profiles, ProfilesFault> {
        let text = format!(r#"{{"profiles":{{"p":{agent}}}}}"#);
        Profiles::parse(&text, deployment, None)
    }

    #[test]
    fn a_deployment_allows_only_what_its_file_safely_names() {
        let fixed = r#"{"agent":{"kind":"acp","argv":["/bin/agent"],"permissions":"deny"}}"#;
        let caller = r#"{"agent":{"kind":"command"},"args":"caller"}"#;
        assert!(parse(fixed, Deployment::Cluster).is_ok());
        assert!(parse(caller, Deployment::Local).is_ok());
        for (agent, why) in [
            (caller, "needs BEX_LOCAL=1"),
            (
                r#"{"agent":{"kind":"acp","argv":["agent"]}}"#,
                "absolute path",
            ),
            (r#"{"agent":{"kind":"acp"}}"#, "absolute path"),
            (
                r#"{"agent":{"kind":"acp","argv":["/a"],"env":"hunter2"}}"#,
                "line 1, column",
            ),
            (
                r#"{"agent":{"kind":"acp","argv":["/a"],"credentialFiles":["/etc/netrc"]}}"#,
                "credentialFiles",
            ),
            (
                r#"{"agent":{"kind":"acp","argv":["/a"],"credentialFiles":["../x"]}}"#,
                "credentialFiles",
            ),
            (
                r#"{"agent":{"kind":"acp","argv":["/a"],"credentialFiles":["x"]},"legacy":true}"#,
                "older form",
            ),
            (r#"{"agent":{"kind":"play"}}"#, "args: caller"),
            (r#"{"agent":{"kind":"shell"}}"#, "not a profiles file"),
            (
                r#"{"agent":{"kind":"acp","argv":["/a"],"uid":0}}"#,
                "not a profiles file",
            ),
        ] {
            let fault = parse(agent, Deployment::Cluster)
                .expect_err("refused")
                .to_string();
            assert!(
                fault.contains(why) && !fault.contains("hunter2"),
                "{agent}: {fault}"
            );
        }
        for (count, is_fine) in [
            (limits::CREDENTIAL_FILES, true),
            (limits::CREDENTIAL_FILES + 1, false),
        ] {
            let files = vec![".auth/token.json"; count];
            let files = serde_json::to_string(&files).expect("plain data");
            let agent = format!(
                r#"{{"agent":{{"kind":"command","argv":["/a"],"credentialFiles":{files}}}}}"#
            );
            assert_eq!(
                parse(&agent, Deployment::Cluster).is_ok(),
                is_fine,
                "{count}"
            );
        }
        let play = r#"{"agent":{"kind":"play"},"args":"caller"}"#;
        assert_eq!(
            parse(play, Deployment::Local).err(),
            Some(ProfilesFault::PlayDir("p".into()))
        );
        let two = r#"{"agent":{"kind":"acp","argv":["/a"]},"args":"caller"}"#;
        assert_eq!(
            parse(two, Deployment::Local).err(),
            Some(ProfilesFault::TwoArgvs("p".into()))
        );
    }
}
