//! What became of a process and its pod, asked when its output has ended.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use super::KubernetesTargets;
use super::channel::Ended;
use super::pod::{Sight, Why};
use super::status::{KILLED, Told};
use crate::sandbox::{Afterwards, Ending, ExitHint, Process, TargetRef};

/// How often a lagging status is read again.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The connection's own end, when its output has ended already.
const END_WAIT: Duration = Duration::from_secs(1);

pub(super) struct PodProcess {
    targets: KubernetesTargets,
    target: TargetRef,
    /// The container in which it was started.
    container_id: String,
    ended: watch::Receiver<Option<Ended>>,
}

impl PodProcess {
    pub(super) fn new(
        targets: KubernetesTargets,
        target: TargetRef,
        container_id: String,
        ended: watch::Receiver<Option<Ended>>,
    ) -> Self {
        Self {
            targets,
            target,
            container_id,
            ended,
        }
    }

    fn judge(&self, sight: Sight) -> Afterwards {
        match sight {
            Sight::Alive(alive) if alive.container_id != self.container_id => {
                Afterwards::Other(ExitHint::ContainerRestarted)
            }
            Sight::Alive(alive) if alive.terminating => Afterwards::Ending(ExitHint::PodDeleted),
            Sight::Alive(_) => Afterwards::Same,
            Sight::Gone(why) => Afterwards::Gone(match why {
                Why::Deleted | Why::Foreign => Some(ExitHint::PodDeleted),
                Why::Deadline => Some(ExitHint::Deadline),
                Why::ContainerEnded => None,
            }),
            // the container ran: it cannot be that it was never started
            Sight::NotYet | Sight::Unknown => Afterwards::Unknown,
        }
    }

    /// The pod, read again for some time while it shows no reason for a kill: its status lags.
    async fn look_for_a_reason(&self) -> Afterwards {
        let until = Instant::now() + self.targets.pace.lag;
        loop {
            let seen = self.judge(self.targets.sight(&self.target).await);
            if !matches!(seen, Afterwards::Same | Afterwards::Unknown) || Instant::now() >= until {
                return seen;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn connection_end(&mut self) -> Option<Ended> {
        let ended = timeout(END_WAIT, self.ended.wait_for(Option::is_some)).await;
        ended.ok()?.ok().and_then(|end| *end)
    }
}

#[async_trait]
impl Process for PodProcess {
    async fn afterwards(&mut self, ending: Ending) -> Afterwards {
        let was_killed = match ending {
            Ending::Marked { exit_code } => exit_code == KILLED,
            Ending::Unmarked => {
                let end = self.connection_end().await;
                info!(session = %self.target.session, generation = %self.target.generation, ?end,
                    "a process in a sandbox ended without its end mark");
                end == Some(Ended::Closed(Some(Told::Exit(KILLED))))
            }
        };
        if was_killed {
            return self.look_for_a_reason().await;
        }
        self.judge(self.targets.sight(&self.target).await)
    }
}
