//! A process's calls into sandboxes, and of whoever makes and removes them.

use std::sync::Arc;

use async_trait::async_trait;
use bex_api::exec_client::{ExecFailure, ExecTarget, ReadAnswer, Reading, Room, SandboxRpc};
use bex_api::sandbox::{
    CreateError, DeleteError, Deleted, Lifecycle, ListError, Look, Made, SandboxName, SandboxPlan,
};
use bex_proto::TurnNo;
use bex_proto::limits;
use futures::FutureExt;
use tokio::time::sleep;

use super::{Peer, Process};
use crate::rng::Rng;
use crate::sandbox::World;
use crate::trace::Trace;

/// How reads and looks are damaged, of a thousand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Damage {
    /// A read whose bytes are cut, whatever its end says.
    pub cut: u32,
    /// A read with a byte that is not the one that was digested.
    pub corrupt: u32,
    /// A read of which nothing comes for as long as its caller waits.
    pub silent: u32,
    /// A gateway that is not there, or refuses.
    pub away: u32,
    /// A look that tells nothing.
    pub unknown: u32,
}

/// Asked before a sandbox is removed.
pub type BeforeRemoval = Arc<dyn Fn(&SandboxName) + Send + Sync>;

/// The sandboxes as one process reaches them.
#[derive(Clone)]
pub struct Sandboxes {
    pub process: Arc<Process>,
    pub world: Arc<World>,
    pub rng: Arc<Rng>,
    pub trace: Arc<Trace>,
    pub damage: Arc<dyn Fn() -> Damage + Send + Sync>,
    pub before_removal: BeforeRemoval,
}

impl Sandboxes {
    async fn answer(
        &self,
        target: &ExecTarget,
        reading: Reading,
        turn: TurnNo,
        offset: u64,
    ) -> ReadAnswer {
        let name = match reading {
            Reading::Status => "observe",
            Reading::Rest => "read",
        };
        let (world, of) = (Arc::clone(&self.world), target.clone());
        let answer = self
            .process
            .call(
                Peer::Exec,
                name,
                move || {
                    let answer = world.read(&of, reading, turn, offset);
                    async move { answer }.boxed()
                },
                || ReadAnswer::failed(ExecFailure::Transport),
            )
            .await;
        let hung = self
            .world
            .with_pod(&target.session, target.generation, |pod| {
                pod.hung && pod.alive
            });
        let damage = (self.damage)();
        if hung == Some(true) || self.rng.chance(damage.silent) {
            sleep(limits::EXEC_READ_TIMEOUT).await;
            return ReadAnswer::failed(ExecFailure::Timeout);
        }
        if self.rng.chance(damage.away) {
            let away = [
                ExecFailure::Unreachable,
                ExecFailure::Refused(503),
                ExecFailure::Refused(429),
            ];
            return ReadAnswer::failed(self.rng.pick(&away));
        }
        let (answer, damaged) = self.damaged(answer, damage);
        if !damaged && answer.end.is_ok() {
            self.world.was_clear(target);
        }
        answer
    }

    /// The answer as it arrives, and whether it was damaged on its way.
    fn damaged(&self, mut answer: ReadAnswer, damage: Damage) -> (ReadAnswer, bool) {
        if answer.bytes.is_empty() {
            return (answer, false);
        }
        if self.rng.chance(damage.cut) {
            let at = self.rng.index(answer.bytes.len());
            answer.bytes.truncate(at);
            if self.rng.chance(500) {
                answer.end = Err(ExecFailure::Transport);
            }
            self.trace.note("a read was cut");
            return (answer, true);
        }
        if self.rng.chance(damage.corrupt) {
            let mut bytes = answer.bytes.to_vec();
            let at = self.rng.index(bytes.len());
            bytes[at] ^= 1;
            answer.bytes = bytes.into();
            self.trace.note("a read was corrupted");
            return (answer, true);
        }
        (answer, false)
    }
}

#[async_trait]
impl SandboxRpc for Sandboxes {
    async fn read(
        &self,
        target: &ExecTarget,
        reading: Reading,
        turn: TurnNo,
        offset: u64,
        _: Room,
    ) -> ReadAnswer {
        self.answer(target, reading, turn, offset).await
    }

    async fn deliver_turn(
        &self,
        _: &ExecTarget,
        _: TurnNo,
        _: Option<String>,
    ) -> Result<(), ExecFailure> {
        // a Completer delivers nothing
        Err(ExecFailure::Unsupported)
    }

    async fn stop(&self, target: &ExecTarget, turn: TurnNo) -> Result<(), ExecFailure> {
        let (world, of) = (Arc::clone(&self.world), target.clone());
        self.process
            .call(
                Peer::Exec,
                "stop",
                move || {
                    let stopped = world.stop(&of.session, of.generation, turn);
                    async move { stopped }.boxed()
                },
                || Err(ExecFailure::Transport),
            )
            .await
    }
}

#[async_trait]
impl Lifecycle for Sandboxes {
    fn kind(&self) -> &'static str {
        "local"
    }

    async fn create(&self, _: &SandboxPlan) -> Result<Made, CreateError> {
        Err(CreateError::Impossible("a Completer makes no sandbox"))
    }

    async fn look(&self, sandbox: &SandboxName) -> Look {
        let (world, of) = (Arc::clone(&self.world), sandbox.clone());
        let seen = self
            .process
            .call(
                Peer::Lifecycle,
                "look",
                move || {
                    let seen = world.look(&of);
                    async move { seen }.boxed()
                },
                || Look::Unknown,
            )
            .await;
        if self.rng.chance((self.damage)().unknown) {
            Look::Unknown
        } else {
            seen
        }
    }

    async fn delete(&self, sandbox: &SandboxName) -> Result<Deleted, DeleteError> {
        let (world, of) = (Arc::clone(&self.world), sandbox.clone());
        let before = Arc::clone(&self.before_removal);
        self.process
            .call(
                Peer::Lifecycle,
                "delete",
                move || {
                    before(&of);
                    world.remove(&of);
                    async move { Ok(Deleted) }.boxed()
                },
                || Err(DeleteError::StillRunning),
            )
            .await
    }

    async fn list(&self) -> Result<Vec<SandboxName>, ListError> {
        let world = Arc::clone(&self.world);
        self.process
            .call(
                Peer::Lifecycle,
                "list",
                move || {
                    let listed = world.list();
                    async move { Ok(listed) }.boxed()
                },
                || Err(ListError(std::io::Error::other("not now"))),
            )
            .await
    }
}
