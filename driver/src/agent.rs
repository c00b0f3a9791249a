//! Who speaks: an ACP agent, a plain command, or a recording.

mod acp;
mod child;
mod command;
mod pieces;
mod play;

use async_trait::async_trait;
use bex_proto::ids::TurnNo;
use bex_proto::launch::AgentSpec;
use tokio_util::sync::CancellationToken;

pub use child::{AgentChild, Spawn, base_environment};

use crate::profile::Profile;
use crate::sink::TurnSink;

/// What a turn asks.
#[derive(Clone)]
pub struct Prompt {
    /// The turn.
    pub turn: TurnNo,
    /// The recorded prompt.
    pub text: String,
    /// What earlier turns said, for an agent that remembers nothing: a [`crate::priming::Priming`] as JSON.
    pub priming: Option<String>,
}

/// How an agent is told to stop.
#[derive(Debug, Clone, Default)]
pub struct StopSignal {
    /// Come to an end; the agent may take [`crate::bounds::STOP_GRACE`] for it.
    pub asked: CancellationToken,
    /// The driver itself is ending, or the memory is: kill what runs.
    pub now: CancellationToken,
}

impl StopSignal {
    /// Resolves when it is to stop in either way.
    pub async fn any(&self) {
        tokio::select! {
            () = self.asked.cancelled() => {}
            () = self.now.cancelled() => {}
        }
    }
}

/// How an agent's turn came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// By itself.
    Succeeded,
    /// Because it was told to stop.
    Stopped,
    /// It could not; the text is shown and logged, redacted.
    Failed(String),
}

/// Speaks turns, one at a time.
#[async_trait]
pub trait Agent: Send {
    /// Speaks one turn into `sink` and returns when it is over, soon after `stop` at the latest. Leaves nothing of the turn running.
    async fn speak(&mut self, prompt: Prompt, sink: &mut TurnSink, stop: StopSignal) -> Outcome;

    /// The agent's own session, for the status.
    fn session(&self) -> Option<String> {
        None
    }

    /// Ends what still runs between turns.
    async fn close(&mut self) {}
}

/// The agent of a profile.
pub fn of(profile: &Profile) -> Box<dyn Agent> {
    let surroundings = profile.surroundings.clone();
    match profile.agent.clone() {
        AgentSpec::Play { file, pace } => Box::new(play::Player::new(file, pace)),
        AgentSpec::Command { argv, env, .. } => Box::new(command::Program::new(Spawn {
            argv,
            env,
            surroundings,
        })),
        AgentSpec::Acp {
            argv,
            env,
            permissions,
            ..
        } => Box::new(acp::AcpAgent::new(
            Spawn {
                argv,
                env,
                surroundings,
            },
            permissions,
        )),
    }
}
