//! Where sandboxes are: one trait, one implementation per kind.
//!
//! A target is always looked at before it is spoken to. What a look says has three values: what is there, that it is gone
//! for good, or that nobody can say right now. The third is never taken for the second: a session whose sandbox cannot be seen
//! is waited for, not ended.

pub mod kubernetes;
pub mod local;

use std::net::SocketAddr;
use std::pin::Pin;

use async_trait::async_trait;
use bex_proto::exec::{Operation, SandboxRequest};
use bex_proto::{Generation, SessionId};
use bytes::{BufMut, BytesMut};
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
    /// Being removed, and its driver answers no more: its log may still be read, nothing else will ever be possible.
    Leaving,
    /// Being made.
    NotYet,
    /// Gone for good; also when another UID or generation stands in its place.
    Gone,
    /// Cannot be told right now. Ask again; never treat it as gone.
    Unknown,
}

impl Look {
    /// Whether a process may be started for an operation, as far as a look tells.
    ///
    /// # Errors
    /// Why it may not; a sandbox that is being removed can only be read.
    pub fn lets_in(self, operation: &Operation) -> Result<(), ExecStartError> {
        match self {
            Self::Running { terminating, .. } if reads(operation) || !terminating => Ok(()),
            Self::Leaving if reads(operation) => Ok(()),
            Self::Running { .. } | Self::Leaving | Self::Gone => Err(ExecStartError::Gone),
            Self::NotYet | Self::Unknown => Err(ExecStartError::NotReachable),
        }
    }
}

/// Whether an operation only reads what a sandbox has said.
fn reads(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Observe { .. } | Operation::ReadTranscript { .. }
    )
}

/// A running in-sandbox process. Dropping it closes its standard input and kills what is left of it.
pub struct ExecPipe {
    /// Its framed output ([`bex_proto::exec`]); ends when the process does.
    pub output: Pin<Box<dyn AsyncRead + Send>>,
    /// What keeps the process alive, and can be asked what became of it.
    pub process: Box<dyn Process>,
}

/// How a process's output ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With its end mark.
    Marked {
        /// What the mark says.
        exit_code: i32,
    },
    /// Without it.
    Unmarked,
}

/// What is seen of the target when a process's output has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// The very life in which it was started.
    Same,
    /// That life, but it is ending.
    Ending(ExitHint),
    /// The life is over, as far as can be told why.
    Gone(Option<ExitHint>),
    /// Another life has its place: what was said may be that one's.
    Other(ExitHint),
    /// Nobody can say.
    Unknown,
}

/// Why a process was killed, where its pod tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitHint {
    /// Its container was started again.
    ContainerRestarted,
    /// Its pod was, or is being, deleted.
    PodDeleted,
    /// Its pod's deadline was reached.
    Deadline,
}

impl ExitHint {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ContainerRestarted => "container_restarted",
            Self::PodDeleted => "pod_deleted",
            Self::Deadline => "deadline",
        }
    }
}

/// A process in a sandbox.
#[async_trait]
pub trait Process: Send {
    /// Looks at the target once more. Bounded in time.
    async fn afterwards(&mut self, _: Ending) -> Afterwards {
        Afterwards::Same
    }
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
    /// The target, or what leads to it, has no way to run anything.
    #[error("the sandbox's host cannot run anything in it")]
    Unsupported,
    /// The process could not be started or did not take its request.
    #[error("the sandbox's binary could not be started")]
    Start(#[source] std::io::Error),
}

/// The sandboxes of one kind.
#[async_trait]
pub trait Targets: Send + Sync {
    /// Looks at a target. Bounded in time; trouble is [`Look::Unknown`].
    async fn look(&self, target: &TargetRef) -> Look;

    /// Looks at the target, runs the driver's own binary inside it and hands it `request`. That needs the target's container, not its
    /// address: one whose driver is not ready, or that is being removed, can still be read. The caller bounds the time and drops the
    /// pipe.
    ///
    /// # Errors
    /// See [`ExecStartError`]; after one, nothing runs.
    async fn exec(
        &self,
        target: &TargetRef,
        request: SandboxRequest,
    ) -> Result<ExecPipe, ExecStartError>;
}

/// The request as the in-sandbox side reads it: `length u32 big-endian · JSON`.
fn request_frame(request: &SandboxRequest) -> BytesMut {
    let json = serde_json::to_vec(request).expect("a request is plain data and always serialises");
    let mut frame = BytesMut::with_capacity(4 + json.len());
    frame.put_u32(
        u32::try_from(json.len()).expect("a request is bounded by the listener's body limit"),
    );
    frame.put_slice(&json);
    frame
}
