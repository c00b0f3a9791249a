//! An Agent Client Protocol agent over stdio.

use async_trait::async_trait;
use bex_proto::launch::Permissions;

use super::child::Spawn;
use super::{Agent, Outcome, Prompt, StopSignal};
use crate::sink::TurnSink;

/// placeholder
pub struct AcpAgent {
    _spawn: Spawn,
    _permissions: Permissions,
}

impl AcpAgent {
    /// An agent that is started with its first turn.
    pub fn new(spawn: Spawn, permissions: Permissions) -> Self {
        Self {
            _spawn: spawn,
            _permissions: permissions,
        }
    }
}

#[async_trait]
impl Agent for AcpAgent {
    async fn speak(&mut self, _: Prompt, _: &mut TurnSink, _: StopSignal) -> Outcome {
        Outcome::Failed("not yet".into())
    }
}
