//! The dispatcher's steps on a claimed turn.

use bex_proto::Generation;
use bex_proto::launch::pod_of;
use bex_proto::session::{FailureReason, Phase, Verdict};

use super::DispatchClaim;
use crate::error::StoreError;
use crate::pool::{Db, Tx};
use crate::sql::{boolean, generation, get, int4, int8, number, text, turn_no, word};
use crate::wake::Channel;

/// What a new sandbox will be. Its pod's name follows from session and generation.
pub struct NewSandbox<'a> {
    /// `local` or `kubernetes`.
    pub kind: &'a str,
    /// The namespace, or the directory of the local kind.
    pub namespace: &'a str,
    /// The container's name.
    pub container: &'a str,
    /// An older driver: no ids, no proof, one turn only.
    pub legacy: bool,
    /// The driver ring key its key is derived from.
    pub driver_kid: &'a str,
}

/// What raising the generation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BeginGeneration {
    /// The sandbox row exists in state `creating`; older lives of the session are stopping.
    Begun {
        /// The new generation.
        generation: Generation,
    },
    /// Delivery was begun under the turn's generation: no other may speak it.
    DeliveryBegun,
    /// The turn is no longer to be delivered (settled, canceling); the outbox row is left to the Completer's settle.
    Moved,
    /// The claim was lost.
    Stale,
}

/// What beginning the delivery did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeginDelivery {
    /// Recorded now; call the driver.
    Begun,
    /// It was begun before; call the same driver again, it is idempotent by turn number.
    Again,
    /// The turn is no longer to be delivered, or another generation has it.
    Moved,
    /// The claim was lost.
    Stale,
}

/// How the delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The driver took the turn.
    Accepted,
    /// Nobody knows, the driver cannot be reached any more: the Completer finds out and settles.
    Unknown,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Done.
    Done,
    /// The row is not in the state the step starts from: somebody else moved it.
    Moved,
    /// The claim was lost.
    Stale,
}

/// A claimed turn as its rows stand, locked.
struct Claimed {
    phase: Phase,
    open: bool,
    generation: Generation,
    begun: bool,
}

impl Tx<'_> {
    /// Locks session, outbox row and turn, in that order. `None` when the claim was lost.
    async fn lock_claim(&self, claim: &DispatchClaim) -> Result<Option<Claimed>, StoreError> {
        let (session, turn) = (claim.session.as_str(), turn_no(claim.turn));
        let sql = "SELECT phase FROM sessions WHERE id = $1 FOR NO KEY UPDATE";
        let Some(phase) = self.query_opt("lock_claim", sql, &[text(&session)]).await? else {
            return Ok(None);
        };
        let sql = "SELECT 1 FROM dispatches WHERE session_id = $1 AND turn = $2 AND fence = $3 FOR UPDATE";
        if self
            .query_opt(
                "lock_claim",
                sql,
                &[text(&session), int4(&turn), int8(&claim.fence)],
            )
            .await?
            .is_none()
        {
            return Ok(None);
        }
        let sql = "SELECT verdict, generation, delivery_started_at IS NOT NULL AS begun FROM turns
                    WHERE session_id = $1 AND turn = $2 FOR UPDATE";
        let row = self
            .query_one("lock_claim", sql, &[text(&session), int4(&turn)])
            .await?;
        Ok(Some(Claimed {
            phase: word(&phase, "phase")?,
            open: word::<Verdict>(&row, "verdict")? == Verdict::Open,
            generation: generation(&row, "generation")?,
            begun: get(&row, "begun")?,
        }))
    }

    async fn drop_dispatch(&self, claim: &DispatchClaim) -> Result<(), StoreError> {
        self.execute(
            "drop_dispatch",
            "DELETE FROM dispatches WHERE session_id = $1 AND turn = $2",
            &[text(&claim.session.as_str()), int4(&turn_no(claim.turn))],
        )
        .await
        .map(drop)
    }
}

impl Claimed {
    fn deliverable(&self) -> bool {
        self.open
            && matches!(
                self.phase,
                Phase::Creating | Phase::Redispatching | Phase::Running
            )
    }
}

impl Db {
    /// Gives the turn a new generation before its sandbox is made, and records the sandbox as `creating`.
    ///
    /// # Errors
    /// Store trouble; nothing changed then.
    pub async fn begin_generation(
        &self,
        claim: &DispatchClaim,
        new: &NewSandbox<'_>,
    ) -> Result<BeginGeneration, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let session = claim.session.as_str();
        let Some(claimed) = tx.lock_claim(claim).await? else {
            return Ok(BeginGeneration::Stale);
        };
        if !claimed.deliverable() {
            return Ok(BeginGeneration::Moved);
        }
        if claimed.begun {
            return Ok(BeginGeneration::DeliveryBegun);
        }
        let row = tx
            .query_one(
                "begin_generation",
                "UPDATE sessions SET generation = generation + 1, updated_at = now() WHERE id = $1 RETURNING generation",
                &[text(&session)],
            )
            .await?;
        let raised = generation(&row, "generation")?;
        tx.execute(
            "begin_generation",
            "UPDATE turns SET generation = $3
              WHERE session_id = $1 AND turn = $2 AND generation = $4 AND delivery_started_at IS NULL",
            &[
                text(&session),
                int4(&turn_no(claim.turn)),
                int4(&number(raised.0)),
                int4(&number(claimed.generation.0)),
            ],
        )
        .await?;
        tx.stop_sandboxes(&claim.session).await?;
        let pod = pod_of(&claim.session, raised);
        tx.execute(
            "begin_generation",
            "INSERT INTO sandboxes (session_id, generation, first_turn, turn, kind, namespace, pod, container, legacy,
                                    driver_kid, state)
             VALUES ($1, $2, $3, $3, $4, $5, $6, $7, $8, $9, 'creating')",
            &[
                text(&session),
                int4(&number(raised.0)),
                int4(&turn_no(claim.turn)),
                text(&new.kind),
                text(&new.namespace),
                text(&pod),
                text(&new.container),
                boolean(&new.legacy),
                text(&new.driver_kid),
            ],
        )
        .await?;
        tx.commit().await?;
        Ok(BeginGeneration::Begun { generation: raised })
    }

    /// The sandbox runs and is ready: it may be dialled. `creating→turn`.
    ///
    /// # Errors
    /// Store trouble; nothing changed then.
    pub async fn sandbox_ready(
        &self,
        claim: &DispatchClaim,
        generation: Generation,
        pod_uid: &str,
    ) -> Result<Step, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let Some(claimed) = tx.lock_claim(claim).await? else {
            return Ok(Step::Stale);
        };
        let rows = tx
            .execute(
                "sandbox_ready",
                "UPDATE sandboxes SET state = 'turn', pod_uid = $3, ready_at = COALESCE(ready_at, now())
                  WHERE session_id = $1 AND generation = $2
                    AND (state = 'creating' OR (state = 'turn' AND pod_uid = $3))",
                &[text(&claim.session.as_str()), int4(&number(generation.0)), text(&pod_uid)],
            )
            .await?;
        if rows == 0 || !claimed.deliverable() || claimed.generation != generation {
            return Ok(Step::Moved);
        }
        tx.notify(Channel::Ready, claim.session.as_str()).await?;
        tx.commit().await?;
        Ok(Step::Done)
    }

    /// Records that the driver is about to be called. After this only `generation` may ever speak the turn.
    ///
    /// # Errors
    /// Store trouble; do not call the driver then.
    pub async fn begin_delivery(
        &self,
        claim: &DispatchClaim,
        generation: Generation,
    ) -> Result<BeginDelivery, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let Some(claimed) = tx.lock_claim(claim).await? else {
            return Ok(BeginDelivery::Stale);
        };
        if !claimed.deliverable() || claimed.generation != generation {
            return Ok(BeginDelivery::Moved);
        }
        if claimed.begun {
            return Ok(BeginDelivery::Again);
        }
        tx.execute(
            "begin_delivery",
            "UPDATE turns SET delivery_started_at = clock_timestamp() WHERE session_id = $1 AND turn = $2",
            &[text(&claim.session.as_str()), int4(&turn_no(claim.turn))],
        )
        .await?;
        tx.commit().await?;
        Ok(BeginDelivery::Begun)
    }

    /// The delivery is over: phase `running`, outbox row gone, the Completer looks from now on.
    ///
    /// # Errors
    /// Store trouble; nothing changed then.
    pub async fn delivered(
        &self,
        claim: &DispatchClaim,
        delivery: Delivery,
    ) -> Result<Step, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        tx.make_due(&claim.session).await?;
        let Some(claimed) = tx.lock_claim(claim).await? else {
            return Ok(Step::Stale);
        };
        if !claimed.open || !claimed.begun {
            return Ok(Step::Moved);
        }
        let accepted = delivery == Delivery::Accepted;
        tx.execute(
            "delivered",
            "UPDATE turns t SET delivered_at = CASE WHEN $3 THEN COALESCE(delivered_at, clock_timestamp()) END,
                    started_at = CASE WHEN $3 THEN COALESCE(started_at, clock_timestamp()) ELSE started_at END,
                    delivery_mode = CASE WHEN EXISTS (SELECT 1 FROM sandboxes b WHERE b.session_id = t.session_id
                                         AND b.generation = t.generation AND b.first_turn = t.turn)
                                    THEN 'fresh' ELSE 'live' END
              WHERE session_id = $1 AND turn = $2",
            &[text(&claim.session.as_str()), int4(&turn_no(claim.turn)), boolean(&accepted)],
        )
        .await?;
        tx.execute(
            "delivered",
            "UPDATE sessions SET phase = 'running', updated_at = now()
              WHERE id = $1 AND phase IN ('creating', 'redispatching')",
            &[text(&claim.session.as_str())],
        )
        .await?;
        tx.drop_dispatch(claim).await?;
        tx.notify(Channel::Ready, claim.session.as_str()).await?;
        tx.commit().await?;
        Ok(Step::Done)
    }

    /// The sandbox could not be made: the turn settles `provisioning_failed`, the session fails (or, canceling, is
    /// canceled), what was made of the sandbox is torn down; one transaction.
    ///
    /// # Errors
    /// Store trouble; nothing changed then.
    pub async fn provisioning_failed(
        &self,
        claim: &DispatchClaim,
        failure: FailureReason,
    ) -> Result<Step, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let session = claim.session.as_str();
        tx.make_due(&claim.session).await?;
        let Some(claimed) = tx.lock_claim(claim).await? else {
            return Ok(Step::Stale);
        };
        if !claimed.open || claimed.begun {
            return Ok(Step::Moved);
        }
        tx.execute(
            "provisioning_failed",
            "UPDATE turns SET verdict = 'truncated', reason = 'provisioning_failed', settled_at = now(),
                    ended_by = CASE WHEN $3 THEN 'canceled' ELSE 'lost' END
              WHERE session_id = $1 AND turn = $2 AND verdict = 'open'",
            &[text(&session), int4(&turn_no(claim.turn)), boolean(&(claimed.phase == Phase::Canceling))],
        )
        .await?;
        tx.execute(
            "provisioning_failed",
            "UPDATE sessions SET phase = CASE phase WHEN 'canceling' THEN 'canceled' ELSE 'failed' END,
                    canceled_at = CASE phase WHEN 'canceling' THEN now() END,
                    failure_reason = CASE phase WHEN 'canceling' THEN NULL ELSE $2 END, updated_at = now() WHERE id = $1",
            &[text(&session), text(&failure.as_str())],
        )
        .await?;
        tx.drop_dispatch(claim).await?;
        tx.stop_sandboxes(&claim.session).await?;
        tx.notify(Channel::Settled, session).await?;
        tx.commit().await?;
        Ok(Step::Done)
    }
}
