//! The agent is ended before the kernel ends whom it likes.

use std::time::Duration;

use bex_proto::launch::AgentSpec;
use tokio::time::sleep;
use tracing::{info, warn};

use super::Turns;
use crate::bounds::{MEMORY_EVERY, MEMORY_IDLE_EVERY};
use crate::memory::{Cgroup, Usage};

impl Turns {
    /// Ends the agent's processes whenever the sandbox uses too much of its memory limit: in a turn, which fails and says so, or
    /// between turns. The driver stays and takes the next turn. Returns at once where there is no limit or nothing to end; else only by
    /// being dropped.
    pub async fn guard_memory(&self, cgroup: Cgroup) {
        // a recording has no processes
        let has_processes = !matches!(self.profile.agent, AgentSpec::Play { .. });
        let Some(usage) = cgroup.usage().filter(|_| has_processes) else {
            return;
        };
        info!(limit = usage.limit, "memory has a limit");
        let mut begun = self.watch();
        let mut told = false;
        loop {
            tokio::select! {
                () = sleep(self.next_look()) => {}
                _ = begun.changed() => {}
            }
            let over = cgroup.usage().filter(Usage::is_too_much);
            if let Some(usage) = over {
                if !std::mem::replace(&mut told, true) {
                    warn!(
                        used = usage.used,
                        limit = usage.limit,
                        "agent uses too much memory; it is ended"
                    );
                }
                self.end_for(usage).await;
            }
            told = over.is_some();
        }
    }

    fn next_look(&self) -> Duration {
        match self.lock().running {
            Some(_) => MEMORY_EVERY,
            None => MEMORY_IDLE_EVERY,
        }
    }

    async fn end_for(&self, usage: Usage) {
        if let Some(running) = &mut self.lock().running {
            running.over.get_or_insert(usage);
            running.stop.now.cancel();
            return;
        }
        // an agent that lives from turn to turn; whoever holds it begins a turn, which is looked at soon
        if let Ok(mut agent) = self.agent.try_lock() {
            agent.close().await;
        }
    }
}
