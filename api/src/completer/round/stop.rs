//! Stopping a turn from this side.

use std::time::Duration;

use bex_store::settle::{Cause, SandboxAfter};
use tokio::time::{Instant, sleep};

use super::super::Completer;
use super::super::decide::{Again, Log};
use super::super::harvest::HarvestFault;
use super::super::settle::{Ending, TurnEndKnown};
use super::{AT_ONCE, RoundEnd, RoundFault, Work};
use crate::clock::age;
use crate::exec_client::ExecFailure;

/// After a stop: how long the driver has for its turn-end within one round.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// How often the log is looked at meanwhile.
const STOP_LOOK: Duration = Duration::from_millis(200);

impl Completer {
    pub(super) async fn stop(&self, work: &Work<'_>) {
        let Some(target) = work.target() else { return };
        if let Err(failure) = self.deps.rpc.stop(&target, work.turn.turn).await {
            tracing::info!(session = %work.lease.session, turn = %work.turn.turn, %failure, "the driver could not be asked to stop");
        }
    }

    /// Stops the turn so that its log gets its end, reads the rest, settles. A log that can not be read just now is tried again, for as
    /// long as a canceled session has, or a log may be unreadable.
    pub(super) async fn stop_then_settle(
        &self,
        work: &Work<'_>,
        cause: Cause,
    ) -> Result<RoundEnd, RoundFault> {
        self.stop(work).await;
        let deadline = Instant::now() + STOP_WAIT;
        let mut turn_end = TurnEndKnown::No;
        if let Some(target) = work.target() {
            let source = work.source(self, &target);
            loop {
                match self.harvest(work, &source).await {
                    Ok(harvest) if harvest.log == Log::Ended => {
                        turn_end = TurnEndKnown::Yes;
                        break;
                    }
                    Ok(_) if Instant::now() >= deadline => break,
                    Ok(_) => sleep(STOP_LOOK).await,
                    Err(HarvestFault::Exec(ExecFailure::Terminated)) => break,
                    Err(HarvestFault::Moved) => return Ok(AT_ONCE),
                    Err(HarvestFault::Store(error)) => return Err(error.into()),
                    Err(HarvestFault::Parser(error)) => return Err(RoundFault::Parser(error)),
                    Err(HarvestFault::Exec(_))
                        if age(work.now, work.lease.unclear_since)
                            < self.deps.timings.status_unreadable =>
                    {
                        return Ok(self.again(Again::Unclear, Duration::ZERO));
                    }
                    Err(HarvestFault::Exec(_) | HarvestFault::Refused(_)) => break,
                }
            }
        }
        let ending = Ending {
            cause,
            sandbox: SandboxAfter::Stopping,
            legacy: None,
            turn_end,
        };
        self.settle(work.lease, work.turn, ending).await?;
        Ok(AT_ONCE)
    }
}
