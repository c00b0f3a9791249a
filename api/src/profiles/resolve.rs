//! From a session's agent request to what a driver is started with.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bex_proto::launch::{AgentSpec, Pace};
use bex_store::sessions::AgentSpec as Request;

use super::{ArgsPolicy, Profile, ProfileAgent, Profiles};

/// Environment variable that tells an agent the requested model; the agent decides what it means.
const MODEL_VARIABLE: &str = "BEX_AGENT_MODEL";

/// What a driver is started with.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The agent.
    pub agent: AgentSpec,
    /// Whether its driver has the old form.
    pub legacy: bool,
}

/// Why a request does not name something that may run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileFault {
    /// Not in the file.
    #[error("the profile is not known here")]
    Unknown,
    /// The profile runs a fixed command.
    #[error("this profile takes no args")]
    ArgsNotTaken,
    /// The profile needs a command.
    #[error("args must begin with a program that exists and may be executed")]
    Program,
    /// The player's arguments.
    #[error("args must be a recording's file name and optionally parts per second or \"max\"")]
    PlayArgs,
    /// Outside the play directory, missing, or not a file.
    #[error("the recording is not a file of the play directory")]
    Recording,
}

impl Profiles {
    /// What the request runs.
    ///
    /// # Errors
    /// A sentence the caller may see; it never names a path of this machine.
    pub fn resolve(&self, request: &Request) -> Result<Resolved, ProfileFault> {
        let profile = self
            .profiles
            .get(&request.profile)
            .ok_or(ProfileFault::Unknown)?;
        if profile.args == ArgsPolicy::None && !request.args.is_empty() {
            return Err(ProfileFault::ArgsNotTaken);
        }
        let mut agent = self.agent(profile, &request.args)?;
        if let (Some(model), AgentSpec::Acp { env, .. } | AgentSpec::Command { env, .. }) =
            (&request.model, &mut agent)
        {
            env.insert(MODEL_VARIABLE.to_owned(), model.clone());
        }
        Ok(Resolved {
            agent,
            legacy: profile.legacy,
        })
    }

    fn agent(&self, profile: &Profile, args: &[String]) -> Result<AgentSpec, ProfileFault> {
        let argv_of = |fixed: &Vec<String>| match profile.args {
            ArgsPolicy::None => Ok(fixed.clone()),
            ArgsPolicy::Caller => with_program(args),
        };
        match &profile.agent {
            ProfileAgent::Acp {
                argv,
                env,
                permissions,
                credential_files,
            } => Ok(AgentSpec::Acp {
                argv: argv_of(argv)?,
                env: env.clone(),
                permissions: *permissions,
                credential_files: credential_files.clone(),
            }),
            ProfileAgent::Command {
                argv,
                env,
                credential_files,
            } => Ok(AgentSpec::Command {
                argv: argv_of(argv)?,
                env: env.clone(),
                credential_files: credential_files.clone(),
            }),
            ProfileAgent::Play {} => {
                let (file, pace) = match args {
                    [file] => (file, Pace::Max),
                    [file, pace] => (file, parse_pace(pace)?),
                    _ => return Err(ProfileFault::PlayArgs),
                };
                Ok(AgentSpec::Play {
                    file: self.recording(file)?,
                    pace,
                })
            }
        }
    }

    /// Symbolic links are followed before the comparison, so that none leads out.
    fn recording(&self, name: &str) -> Result<PathBuf, ProfileFault> {
        let dir = self.play_dir.as_deref().ok_or(ProfileFault::Recording)?;
        let path = dir
            .join(name)
            .canonicalize()
            .map_err(|_| ProfileFault::Recording)?;
        if path.starts_with(dir) && path.is_file() {
            Ok(path)
        } else {
            Err(ProfileFault::Recording)
        }
    }
}

fn parse_pace(text: &str) -> Result<Pace, ProfileFault> {
    match text.parse::<u32>() {
        Ok(n) if n >= 1 => Ok(Pace::PartsPerSecond(n)),
        _ if text == "max" => Ok(Pace::Max),
        _ => Err(ProfileFault::PlayArgs),
    }
}

/// The caller's argv with its program as an absolute path, looked up in this process's PATH.
fn with_program(args: &[String]) -> Result<Vec<String>, ProfileFault> {
    let (program, rest) = args.split_first().ok_or(ProfileFault::Program)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = if Path::new(program).is_absolute() {
        Some(PathBuf::from(program)).filter(|p| is_executable(p))
    } else if program.contains('/') {
        None
    } else {
        std::env::split_paths(&path)
            .map(|dir| dir.join(program))
            .find(|p| is_executable(p))
    };
    let program = found
        .filter(|p| p.is_absolute())
        .and_then(|p| p.into_os_string().into_string().ok())
        .ok_or(ProfileFault::Program)?;
    Ok(std::iter::once(program)
        .chain(rest.iter().cloned())
        .collect())
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::super::Deployment;
    use super::*;

    const FILE: &str = r#"{"profiles":{
        "fixed":{"agent":{"kind":"acp","argv":["/bin/agent"],"credentialFiles":[".netrc"]}},
        "play":{"agent":{"kind":"play"},"args":"caller"},
        "old":{"agent":{"kind":"play"},"args":"caller","legacy":true},
        "command":{"agent":{"kind":"command"},"args":"caller"}}}"#;

    fn request(profile: &str, args: &[&str]) -> Request {
        Request {
            profile: profile.into(),
            model: Some("m".into()),
            args: args.iter().map(|a| (*a).to_owned()).collect(),
            env: vec![],
        }
    }

    #[test]
    fn requests_resolve_or_say_why() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("it exists");
        let play = root.join("play");
        std::fs::create_dir(&play).expect("made");
        std::fs::write(play.join("a.sse"), "").expect("written");
        std::fs::write(root.join("outside.sse"), "").expect("written");
        std::os::unix::fs::symlink(root.join("outside.sse"), play.join("link.sse"))
            .expect("linked");
        let profiles =
            Profiles::parse(FILE, Deployment::Local, Some(&play)).expect("a profiles file");
        let resolve = |profile: &str, args: &[&str]| profiles.resolve(&request(profile, args));

        let played = resolve("old", &["a.sse", "7"]).expect("it is there");
        assert!(played.legacy);
        assert_eq!(
            played.agent,
            AgentSpec::Play {
                file: play.join("a.sse"),
                pace: Pace::PartsPerSecond(7)
            }
        );
        let fixed = resolve("fixed", &[]).expect("it takes none");
        assert_eq!(fixed.agent.credential_files(), [".netrc"]);
        let shell = resolve("command", &["sh", "-c", "true"]).expect("sh is on PATH");
        let AgentSpec::Command { argv, env, .. } = shell.agent else {
            panic!("a command")
        };
        assert!(Path::new(&argv[0]).is_absolute() && argv[1..] == ["-c", "true"]);
        assert_eq!(env.get(MODEL_VARIABLE).map(String::as_str), Some("m"));

        for (profile, args, fault) in [
            ("none", &[] as &[&str], ProfileFault::Unknown),
            ("fixed", &["x"], ProfileFault::ArgsNotTaken),
            ("command", &[], ProfileFault::Program),
            ("command", &["./sh"], ProfileFault::Program),
            ("command", &["/etc/passwd"], ProfileFault::Program),
            ("command", &["no-such-program-here"], ProfileFault::Program),
            ("play", &[], ProfileFault::PlayArgs),
            ("play", &["a.sse", "0"], ProfileFault::PlayArgs),
            ("play", &["a.sse", "fast"], ProfileFault::PlayArgs),
            ("play", &["missing.sse"], ProfileFault::Recording),
            ("play", &["../outside.sse"], ProfileFault::Recording),
            ("play", &["link.sse"], ProfileFault::Recording),
            ("play", &["/etc/passwd"], ProfileFault::Recording),
            ("play", &["."], ProfileFault::Recording),
        ] {
            assert_eq!(
                resolve(profile, args).err(),
                Some(fault),
                "{profile} {args:?}"
            );
        }
    }
}
