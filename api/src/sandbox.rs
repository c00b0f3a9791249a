//! The life of sandboxes: made, looked at, removed, listed. Only the api makes and removes them.
//!
//! "Unknown" is never "gone": [`Look::Gone`] and [`Deleted`] are only said of what was seen to be gone.

mod local;
mod process;

use std::collections::BTreeMap;

use async_trait::async_trait;
use bex_proto::driver::DriverKey;
use bex_proto::launch::{AgentSpec, LegacyTurn};
use bex_proto::{Generation, SessionId, WorkspaceId};
use bex_store::sandboxes::SandboxRow;

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
    /// Credentials by environment name.
    pub secrets: BTreeMap<String, String>,
    /// The one turn of a driver of the old form.
    pub legacy: Option<LegacyTurn>,
    /// The secret that driver and gateway share.
    pub key: DriverKey,
}

impl std::fmt::Debug for SandboxPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SandboxPlan")
            .field("session", &self.session)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

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
    /// Removes it and waits until it is seen to be gone.
    async fn delete(&self, sandbox: &SandboxName) -> Result<Deleted, DeleteError>;
    /// Every sandbox there is, for the orphan sweep.
    async fn list(&self) -> Result<Vec<SandboxName>, ListError>;
}
