//! The outbox "turn n must be dispatched" and the dispatcher's steps. Each step names the claim's fence and is one
//! transaction; a step of a lost claim changes nothing.
//!
//! ```text
//! claim_dispatches ─▶ begin_generation ─▶ sandbox_ready ─▶ begin_delivery ─▶ delivered
//!        │ (a live driver takes it: straight to begin_delivery)                  │
//!        └─▶ retry_dispatch      └─▶ provisioning_failed           phase running, outbox row gone
//! ```

mod backlog;
mod steps;

use std::time::Duration;

use bex_proto::{Generation, SessionId, TurnNo, limits};

pub use backlog::Backlog;
pub use steps::{BeginDelivery, BeginGeneration, Delivery, NewSandbox, Step};

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{
    boolean, float8, generation, get, int4, int8, number, seconds, text, turn, turn_no, unsigned,
    word,
};

/// What a claim that is given back was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Something was tried and failed: counted.
    Failed,
    /// Nothing failed, somebody takes his time: not counted.
    Waited,
}

/// One claimed outbox row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchClaim {
    /// The session.
    pub session: SessionId,
    /// The turn to deliver.
    pub turn: TurnNo,
    /// This claim's number.
    pub fence: i64,
    /// Attempts so far, this one included: claims that did not only find that it takes its time.
    pub attempts: u32,
    /// The sandbox life that was given to the turn; 0 when it needs a sandbox.
    pub generation: Generation,
    /// Delivery began before: the same generation must be asked again, no other may speak.
    pub delivery_begun: bool,
}

impl Db {
    /// Claims up to `limit` due rows for [`limits::LEASE`].
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn claim_dispatches(
        &self,
        owner: &str,
        limit: u32,
    ) -> Result<Vec<DispatchClaim>, StoreError> {
        let rows = self
            .query(
                "claim_dispatches",
                "WITH due AS (
                     SELECT session_id, turn FROM dispatches
                      WHERE next_attempt_at <= now() AND (until IS NULL OR until < now())
                      ORDER BY next_attempt_at LIMIT $2 FOR UPDATE SKIP LOCKED)
                 UPDATE dispatches d SET owner = $1, fence = d.fence + 1, attempts = d.attempts + 1,
                        until = now() + $3 * interval '1 second'
                   FROM due JOIN turns t ON t.session_id = due.session_id AND t.turn = due.turn
                  WHERE d.session_id = due.session_id AND d.turn = due.turn
                 RETURNING d.session_id, d.turn, d.fence, d.attempts, t.generation,
                           t.delivery_started_at IS NOT NULL AS begun",
                &[
                    text(&owner),
                    int8(&i64::from(number(limit))),
                    float8(&seconds(limits::LEASE)),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(DispatchClaim {
                    session: word(row, "session_id")?,
                    turn: turn(row, "turn")?,
                    fence: get(row, "fence")?,
                    attempts: unsigned(row, "attempts")?,
                    generation: generation(row, "generation")?,
                    delivery_begun: get(row, "begun")?,
                })
            })
            .collect()
    }

    /// Extends a claim by [`limits::LEASE`] from now. False when it was lost.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn renew_dispatch(&self, claim: &DispatchClaim) -> Result<bool, StoreError> {
        let rows = self
            .execute(
                "renew_dispatch",
                "UPDATE dispatches SET until = now() + $4 * interval '1 second'
                  WHERE session_id = $1 AND turn = $2 AND fence = $3",
                &[
                    text(&claim.session.as_str()),
                    int4(&turn_no(claim.turn)),
                    int8(&claim.fence),
                    float8(&seconds(limits::LEASE)),
                ],
            )
            .await?;
        Ok(rows == 1)
    }

    /// Gives a claim back, due again after `delay`. False when it was lost.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn retry_dispatch(
        &self,
        claim: &DispatchClaim,
        attempt: Attempt,
        delay: Duration,
    ) -> Result<bool, StoreError> {
        let rows = self
            .execute(
                "retry_dispatch",
                "UPDATE dispatches SET owner = NULL, until = NULL, next_attempt_at = now() + $4 * interval '1 second',
                        attempts = attempts - CASE WHEN $5 THEN 1 ELSE 0 END
                  WHERE session_id = $1 AND turn = $2 AND fence = $3",
                &[
                    text(&claim.session.as_str()),
                    int4(&turn_no(claim.turn)),
                    int8(&claim.fence),
                    float8(&seconds(delay)),
                    boolean(&(attempt == Attempt::Waited)),
                ],
            )
            .await?;
        Ok(rows == 1)
    }

    /// Makes a turn's dispatch due now, unless it is claimed. A viewer's POST of an undelivered turn does this through
    /// [`crate::wake::Channel::Dispatch`].
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn make_dispatch_due(&self, session: &SessionId) -> Result<(), StoreError> {
        self.execute(
            "make_dispatch_due",
            "UPDATE dispatches SET next_attempt_at = now() WHERE session_id = $1 AND until IS NULL",
            &[text(&session.as_str())],
        )
        .await
        .map(drop)
    }
}
