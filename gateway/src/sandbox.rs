//! Where sandboxes are: one trait, one implementation per kind.
//!
//! A target is always looked at before it is spoken to. What a look says has three values: what is there, that it is gone
//! for good, or that nobody can say right now. The third is never taken for the second: a session whose sandbox cannot be seen
//! is waited for, not ended.

pub mod local;

use std::net::SocketAddr;
use std::pin::Pin;

use async_trait::async_trait;
use bex_proto::exec::SandboxRequest;
use bex_proto::{Generation, SessionId};
use tokio::io::AsyncRead;

/// One sandbox life, by every name it has. Two lives never compare equal, whatever address they had.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TargetRef {
    /// The session it speaks for.
    pub session: SessionId,
    /// Its life.
    pub generation: Generation,
    /// Where its pod lives.
    pub namespace: String,
    /// Its pod.
    pub pod: String,
    /// The pod's UID: a pod of the same name with another UID is another sandbox.
    pub pod_uid: String,
    /// The container that holds the driver.
    pub container: String,
    /// Whether the driver has the old form: no grants, no proof, no part ids.
    pub legacy: bool,
    /// The ring key its driver key was derived from.
    pub driver_kid: String,
}

/// What is to be seen of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The target itself is there and its driver may be dialled.
    Running {
        /// Where the driver listens; already checked to be an address this kind of target may have.
        address: SocketAddr,
        /// Whether it is being removed: its log may still be read, nothing new may be started.
        terminating: bool,
    },
    /// Being made.
    NotYet,
    /// Gone for good; also when another UID or generation stands in its place.
    Gone,
    /// Cannot be told right now. Ask again; never treat it as gone.
    Unknown,
}

/// A running in-sandbox process. Dropping it closes its standard input and kills what is left of it.
pub struct ExecPipe {
    /// Its framed output ([`bex_proto::exec`]); ends when the process does.
    pub output: Pin<Box<dyn AsyncRead + Send>>,
    /// What keeps the process alive.
    pub keep: Box<dyn Send>,
}

impl std::fmt::Debug for ExecPipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ExecPipe")
    }
}

/// Why nothing was started in a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum ExecStartError {
    /// See [`Look::Gone`].
    #[error("the sandbox is gone")]
    Gone,
    /// See [`Look::NotYet`] and [`Look::Unknown`].
    #[error("the sandbox cannot be reached now")]
    NotReachable,
    /// The process could not be started or did not take its request.
    #[error("the sandbox's binary could not be started")]
    Start(#[source] std::io::Error),
}

/// The sandboxes of one kind.
#[async_trait]
pub trait Targets: Send + Sync {
    /// Looks at a target. Bounded in time; trouble is [`Look::Unknown`].
    async fn look(&self, target: &TargetRef) -> Look;

    /// Runs the driver's own binary inside the target and hands it `request`. The caller bounds the time and drops the pipe.
    ///
    /// # Errors
    /// See [`ExecStartError`]; after one, nothing runs.
    async fn exec(
        &self,
        target: &TargetRef,
        request: SandboxRequest,
    ) -> Result<ExecPipe, ExecStartError>;
}
