//! The loop that signs.

use std::sync::Arc;
use std::time::Duration;

use bex_proto::Chain;
use bex_proto::{SessionId, TurnNo};
use bex_store::proof::Stated;
use bex_store::wake::Channel;
use bex_store::{Db, StoreError, listen::Event};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::ring::ProofRing;
use super::statement::Statement;
use crate::metrics::{KeepingMetrics, TickMetrics, TickResult};
use crate::notices::Notices;

/// How often due turns are looked for when nobody tells.
const POLL: Duration = Duration::from_secs(15);
/// Turns of one look. Each costs the digest of its parts.
const BATCH: u32 = 64;

/// States settled turns until cancelled. Any number of replicas may do it: a chain's next number is given once, and who comes
/// second reads again.
pub struct Notary {
    db: Db,
    ring: Arc<ProofRing>,
    notices: Notices,
}

/// What one look did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NotaryRound {
    /// Statements added.
    pub stated: u32,
    /// Turns that moved meanwhile, or that another replica stated.
    pub moved: u32,
    /// Turns that were not stated for trouble with the store.
    pub failed: u32,
    /// Whether there may be more.
    pub full: bool,
}

impl Notary {
    /// A notary that does nothing until it runs.
    pub fn new(db: Db, ring: Arc<ProofRing>, notices: Notices) -> Self {
        Self { db, ring, notices }
    }

    /// Works until cancelled.
    pub async fn run(self, ticks: TickMetrics, keeping: KeepingMetrics, cancel: CancellationToken) {
        let mut notices = self.notices.subscribe();
        let mut poll = interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut again = false;
        loop {
            if !again {
                tokio::select! {
                    () = cancel.cancelled() => break,
                    _ = poll.tick() => {}
                    event = notices.next() => match event {
                        Event::Notified { channel: Channel::Settled, .. } | Event::Resumed => {}
                        Event::Notified { .. } => continue,
                    },
                }
            }
            let Some(round) = cancel.run_until_cancelled(self.round()).await else {
                break;
            };
            let is_well = round.as_ref().is_ok_and(|round| round.failed == 0);
            ticks.ticked(if is_well {
                TickResult::Ok
            } else {
                TickResult::Error
            });
            again = match round {
                Ok(round) => {
                    keeping.stated(round.stated);
                    round.full && round.stated > 0
                }
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "no turns could be found to state");
                    false
                }
            };
        }
    }

    /// States what is due now, one batch of it.
    ///
    /// # Errors
    /// When nothing could be looked for. A turn that could not be stated is counted and tried again with the next look.
    pub async fn round(&self) -> Result<NotaryRound, StoreError> {
        let due = self.db.statements_due(BATCH).await?;
        let mut round = NotaryRound {
            full: due.len() == BATCH as usize,
            ..NotaryRound::default()
        };
        for (session, turn) in due {
            match self.state(&session, turn).await {
                Ok(Stated::Now) => round.stated += 1,
                Ok(Stated::Moved) => round.moved += 1,
                Err(error) => {
                    round.failed += 1;
                    tracing::warn!(%session, %turn, error = %Chain(&error), "a turn was not stated");
                }
            }
        }
        Ok(round)
    }

    async fn state(&self, session: &SessionId, turn: TurnNo) -> Result<Stated, StoreError> {
        let Some(facts) = self.db.turn_facts(session, turn).await? else {
            return Ok(Stated::Moved);
        };
        let signed = Statement::of(&facts).sign(&self.ring);
        self.db.add_statement(&facts, &signed).await
    }
}
