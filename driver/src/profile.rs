//! What the driver was launched with, checked once before anything is bound.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bex_proto::driver::{DriverKey, TokenSeed};
use bex_proto::ids::{Generation, SessionId};
use bex_proto::launch::{
    AgentSpec, Isolation, Launch, LegacyTurn, Pace, SECRET_VARIABLE, TOKEN_SEED_VARIABLE,
    is_credential_file,
};
use bex_proto::limits;
use bex_redact::{Redactor, Secrets, TokenKey};

/// A checked launch.
pub struct Profile {
    /// The session it speaks for.
    pub session: SessionId,
    /// Its life.
    pub generation: Generation,
    /// Shared with the gateway.
    pub key: DriverKey,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Status and logs.
    pub dir: PathBuf,
    /// Who speaks.
    pub agent: AgentSpec,
    /// Where and as whom it runs.
    pub surroundings: Surroundings,
    /// What must not be said.
    pub secrets: Secrets,
    /// Takes out what looks like a secret; its tokens are keyed for this session.
    pub redactor: Redactor,
    /// The one turn of a driver of the old form.
    pub legacy: Option<LegacyTurn>,
}

/// Where, as whom and with what environment an agent's processes run.
#[derive(Clone)]
pub struct Surroundings {
    /// Working directory and HOME.
    pub workdir: PathBuf,
    /// User.
    pub isolation: Isolation,
    /// Credentials by environment name.
    pub credentials: BTreeMap<String, String>,
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("session", &self.session)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// Why a launch file cannot be used. Nothing of its content is echoed.
#[derive(Debug, thiserror::Error)]
pub enum ProfileFault {
    /// It cannot be read.
    #[error("the launch file cannot be read")]
    Unreadable(#[source] std::io::Error),
    /// It is no launch.
    #[error("the launch file is no launch: line {line}, column {column}")]
    Malformed {
        /// Where.
        line: usize,
        /// Where.
        column: usize,
    },
    /// Fields that cannot work, all of them.
    #[error("the launch file cannot be used: {}", .0.join("; "))]
    Unusable(Vec<&'static str>),
}

/// Reads and checks a launch file.
///
/// # Errors
/// See [`ProfileFault`]; all unusable fields are named together.
pub fn load(path: &Path) -> Result<Profile, ProfileFault> {
    let text = std::fs::read(path).map_err(ProfileFault::Unreadable)?;
    let mut launch: Launch =
        serde_json::from_slice(&text).map_err(|e| ProfileFault::Malformed {
            line: e.line(),
            column: e.column(),
        })?;
    launch.secrets.extend(given_secrets(std::env::vars_os()));
    let seed = std::env::var(TOKEN_SEED_VARIABLE).ok();
    check(launch, seed.as_deref()).map_err(ProfileFault::Unusable)
}

/// Credentials that a cluster gives to the driver alone. What is not text cannot be handed on, as in a launch file.
fn given_secrets(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (String, String)> {
    variables.filter_map(|(name, value)| {
        let name = name.to_str()?.strip_prefix(SECRET_VARIABLE)?.to_owned();
        Some((name, value.into_string().ok()?))
    })
}

fn check(launch: Launch, seed: Option<&str>) -> Result<Profile, Vec<&'static str>> {
    let mut faults = Vec::new();
    let key = DriverKey::from_hex(&launch.key);
    if key.is_none() {
        faults.push("key is not 32 bytes of hexadecimal");
    }
    let seed = seed.map(TokenSeed::from_hex);
    if matches!(seed, Some(None)) {
        faults.push("the token seed is not 32 bytes of hexadecimal");
    }
    if !launch.dir.is_dir() {
        faults.push("dir is not a directory");
    }
    if !launch.workdir.is_dir() {
        faults.push("workdir is not a directory");
    }
    match &launch.agent {
        AgentSpec::Acp { argv, .. } | AgentSpec::Command { argv, .. } => {
            if !argv.first().is_some_and(|p| Path::new(p).is_absolute()) {
                faults.push("agent.argv does not begin with an absolute path");
            }
        }
        AgentSpec::Play { file, pace } => {
            if !file.is_file() {
                faults.push("agent.file is not a file");
            }
            if *pace == Pace::PartsPerSecond(0) {
                faults.push("agent.pace is less than one part a second");
            }
        }
    }
    let files = launch.agent.credential_files();
    if files.len() > limits::CREDENTIAL_FILES || !files.iter().all(|f| is_credential_file(f)) {
        faults.push("agent.credentialFiles are not a few plain paths within the workdir");
    }
    let secrets = Secrets::new(launch.secrets.values().map(String::as_str));
    match key {
        Some(key) if faults.is_empty() => Ok(Profile {
            redactor: redactor(&key, seed.flatten().as_ref()),
            session: launch.session,
            generation: launch.generation,
            key,
            listen: launch.listen,
            dir: launch.dir,
            agent: launch.agent,
            surroundings: Surroundings {
                workdir: launch.workdir,
                isolation: launch.isolation,
                credentials: launch.secrets,
            },
            secrets,
            legacy: launch.legacy,
        }),
        _ => Err(faults),
    }
}

/// Whoever made this sandbox without a seed, as older ones do, gets tokens of this life.
fn redactor(key: &DriverKey, seed: Option<&TokenSeed>) -> Redactor {
    let secret = seed.map_or(key.as_bytes(), TokenSeed::as_bytes);
    Redactor::new(bex_redact::Profile::Secrets, TokenKey::new(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_the_environment_are_told_by_their_prefix() {
        let variables = [("BEX_SECRET_TOKEN", "t"), ("TOKEN", "x"), ("PATH", "/bin")];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let given: Vec<_> = given_secrets(variables.into_iter()).collect();
        assert_eq!(given, [("TOKEN".to_owned(), "t".to_owned())]);
    }

    #[test]
    fn a_secret_has_one_token_in_all_lives_of_a_session() {
        let session = SessionId::random();
        let key = |life| DriverKey::derive(b"ring", &session, Generation(life));
        let seed = TokenSeed::derive(b"ring", &session);
        let handed = TokenSeed::from_hex(&seed.to_hex()).expect("its own form");
        let said = format!("key {}", ["AKIA", "Q3EGRUNZHT2V7K5M"].concat());
        let told = |life, seed| redactor(&key(life), seed).redact_str(&said);
        let first = told(1, Some(&seed));
        assert!(first.contains("[redacted:"), "{first}");
        assert_eq!(first, told(2, Some(&handed)));
        assert_ne!(told(1, None), told(2, None));
        let other = TokenSeed::derive(b"ring", &SessionId::random());
        assert_ne!(first, told(1, Some(&other)));
    }
}
