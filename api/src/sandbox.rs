//! The life of sandboxes: made, looked at, removed, listed. Only the api makes and removes them.
//!
//! "Unknown" is never "gone": [`Look::Gone`] and [`Deleted`] are only said of what was seen to be gone.

pub mod kubernetes;
mod local;
mod process;

use std::collections::BTreeMap;

use async_trait::async_trait;
use bex_proto::driver::{DriverKey, TokenSeed};
use bex_proto::launch::{AgentSpec, LegacyTurn};
use bex_proto::session::FailureReason;
use bex_proto::{Generation, SessionId, WorkspaceId};
use bex_store::sandboxes::SandboxRow;

pub use kubernetes::KubernetesLifecycle;
pub use local::LocalLifecycle;

/// Everything that is decided before a sandbox is made.
#[derive(Clone)]
pub struct SandboxPlan {
    /// The session.
    pub session: SessionId,
    /// Its workspace; the namespace is derived from it.
    pub workspace: WorkspaceId,
    /// Its life; the name is derived from session and generation.
    pub generation: Generation,
    /// What runs in it.
    pub agent: AgentSpec,
    /// Its credentials.
    pub secrets: Secrets,
    /// The one turn of a driver of the old form.
    pub legacy: Option<LegacyTurn>,
    /// The secret that driver and gateway share.
    pub key: DriverKey,
    /// What keys the tokens that stand for secrets, the same in all lives of the session.
    pub token_seed: TokenSeed,
}

impl SandboxPlan {
    /// What nobody's words may repeat.
    pub fn hidden(&self) -> [String; 2] {
        [self.key.to_hex(), self.token_seed.to_hex()]
    }
}

impl std::fmt::Debug for SandboxPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SandboxPlan")
            .field("session", &self.session)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// Credentials by environment name: as the kind of sandboxes takes them.
#[derive(Clone, PartialEq, Eq)]
pub enum Secrets {
    /// Their values.
    Values(BTreeMap<String, String>),
    /// Where the cluster has them.
    References(BTreeMap<String, SecretKey>),
}

impl Default for Secrets {
    fn default() -> Self {
        Self::Values(BTreeMap::new())
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets([redacted])")
    }
}

/// One key of a Secret of the sandbox's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretKey {
    /// The Secret's name.
    pub secret: String,
    /// The key in it.
    pub key: String,
}

impl std::str::FromStr for SecretKey {
    type Err = InvalidSecretRef;
    /// `<secret>/<key>`.
    fn from_str(text: &str) -> Result<Self, InvalidSecretRef> {
        let plain = |text: &str| {
            let fine = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
            !text.is_empty() && text.bytes().all(fine)
        };
        let (secret, key) = text.split_once('/').ok_or(InvalidSecretRef)?;
        if !plain(secret) || !plain(key) {
            return Err(InvalidSecretRef);
        }
        Ok(Self {
            secret: secret.to_owned(),
            key: key.to_owned(),
        })
    }
}

/// The text names no key of a Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secretRef must be <secret>/<key>")]
pub struct InvalidSecretRef;

/// A sandbox that accepts connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Another one means another sandbox.
    pub pod_uid: String,
    /// Where the driver runs.
    pub container: String,
}

/// Names one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxName {
    /// The session.
    pub session: SessionId,
    /// Its life.
    pub generation: Generation,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// `None` while it is being made.
    pub pod_uid: Option<String>,
}

impl From<&SandboxRow> for SandboxName {
    fn from(row: &SandboxRow) -> Self {
        Self {
            session: row.session.clone(),
            generation: row.generation,
            namespace: row.namespace.clone(),
            pod: row.pod.clone(),
            pod_uid: row.pod_uid.clone(),
        }
    }
}

/// What a look at a sandbox told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It is there.
    Running,
    /// It was seen to be gone for good.
    Gone,
    /// Nothing is known.
    Unknown,
}

/// A sandbox that was seen to be gone after its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deleted;

/// Why a sandbox was not made. A repeated create finds its own.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// It can never be made from this plan.
    #[error("the sandbox can not be made: {0}")]
    Impossible(&'static str),
    /// It may be there next time.
    #[error("{what}")]
    Failed {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The driver did not come up in time.
    #[error("the driver did not listen in time")]
    NotListening,
    /// The driver ended before it listened.
    #[error("the driver ended before it listened")]
    Ended,
    /// Whoever would make it does not, and says why.
    #[error("{what}")]
    Refused {
        /// What is wrong.
        what: &'static str,
        /// What people are told when it stays so.
        reason: FailureReason,
        /// Whether it is worth another attempt.
        again: Again,
        /// The words of who refuses.
        #[source]
        source: std::io::Error,
    },
}

/// Whether a create that was refused is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// It would be refused again.
    Never,
    /// As often as any other failure.
    ForSomeAttempts,
    /// It is being made: asked again while a sandbox may take that long.
    WhileTimeLasts,
}

/// Whether a sandbox lives long enough to be given a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnLife {
    /// It does, as far as can be seen.
    Enough,
    /// It is ended by its own deadline before a turn must have ended.
    TooShort,
}

/// Why a sandbox is not known to be gone.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// It still runs after it was killed.
    #[error("the sandbox still runs")]
    StillRunning,
    /// The system refused.
    #[error("{what}")]
    Failed {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// Why the sandboxes could not be listed.
#[derive(Debug, thiserror::Error)]
#[error("the sandboxes could not be listed")]
pub struct ListError(#[source] pub std::io::Error);

/// Makes and removes sandboxes of one kind. Every call is idempotent by name and bounded in time.
#[async_trait]
pub trait Lifecycle: Send + Sync {
    /// The kind's word in sandbox rows.
    fn kind(&self) -> &'static str;
    /// Makes the sandbox, or finds the one that a call before made.
    async fn create(&self, plan: &SandboxPlan) -> Result<Made, CreateError>;
    /// Looks whether it is there.
    async fn look(&self, sandbox: &SandboxName) -> Look;
    /// Looks at many, one answer for each in their order; a kind may need fewer calls for it.
    async fn look_at_all(&self, sandboxes: &[SandboxName]) -> Vec<Look> {
        let mut looks = Vec::with_capacity(sandboxes.len());
        for sandbox in sandboxes {
            looks.push(self.look(sandbox).await);
        }
        looks
    }
    /// Looks whether it lives long enough for one more turn.
    async fn turn_life(&self, _: &SandboxName) -> TurnLife {
        TurnLife::Enough
    }
    /// Removes it and waits until it is seen to be gone.
    async fn delete(&self, sandbox: &SandboxName) -> Result<Deleted, DeleteError>;
    /// Every sandbox there is, for the orphan sweep.
    async fn list(&self) -> Result<Vec<SandboxName>, ListError>;
}
