//! Settling a turn: count and digest of the stored bytes, the verdict, the session's phase and the sandbox's state move in
//! one transaction under the head row's lock, named by the Completer's fence. A verdict is proved, not assumed.

mod judge;

use bex_proto::driver::TurnState;
use bex_proto::ids::PartId;
use bex_proto::session::{EndedBy, FailureReason, Phase, TruncationReason, Verdict};
use bex_proto::{Generation, SessionId, TurnNo};

pub use judge::{Cause, Declared, Facts, Legacy, Stored, judge};

use crate::error::StoreError;
use crate::leases::Lease;
use crate::pool::{Db, Tx};
use crate::sql::{get, int4, number, optional_unsigned, quota_mark, text, turn_no, unsigned, word};
use crate::turns::TurnRow;
use crate::wake::Channel;

/// What the Completer found out about a turn that is over.
#[derive(Debug, Clone)]
pub struct Settle {
    /// The turn.
    pub turn: TurnNo,
    /// The generation that was observed; 0 for a turn no sandbox ever spoke.
    pub generation: Generation,
    /// Why it is over, where no recorded turn-end says so, and who ended it.
    pub cause: Cause,
    /// An older driver's end.
    pub legacy: Option<Legacy>,
    /// What the sandbox is now.
    pub sandbox: SandboxAfter,
    /// Why the session fails, when it does.
    pub failure: Option<FailureReason>,
}

/// What a settled turn's sandbox becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxAfter {
    /// Its driver takes another turn.
    Idle,
    /// It is to be torn down, whatever is left of it.
    Stopping,
}

/// What settle did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// The turn has its verdict and the session its phase.
    Now {
        /// Open never.
        verdict: Verdict,
        /// Of a truncated turn.
        reason: Option<TruncationReason>,
        /// Where the session stands now.
        phase: Phase,
    },
    /// It was settled before: nothing changed.
    Already(Verdict),
    /// Another generation speaks the turn now: nothing changed.
    WrongGeneration,
    /// The lease was lost: nothing changed.
    Stale,
    /// No such turn.
    NotFound,
}

/// What a second look at a truncated turn did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejudged {
    /// Everything arrived: the turn is complete now.
    Healed,
    /// It stays as it was.
    Unchanged,
    /// The lease was lost.
    Stale,
}

impl Db {
    /// Settles an open turn, once, by the turn-end that [`Db::record_turn_end`] kept.
    ///
    /// # Errors
    /// Store trouble; nothing changed then.
    pub async fn settle(&self, lease: &Lease, settle: &Settle) -> Result<Settled, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        if !tx.holds(lease).await? {
            return Ok(Settled::Stale);
        }
        let Some((phase, quota_mark)) = tx.lock_session(&lease.session).await? else {
            return Ok(Settled::NotFound);
        };
        let Some(turn) = tx.lock_turn(&lease.session, settle.turn).await? else {
            return Ok(Settled::NotFound);
        };
        if turn.verdict != Verdict::Open {
            return Ok(Settled::Already(turn.verdict));
        }
        if turn.generation != settle.generation {
            return Ok(Settled::WrongGeneration);
        }
        let declared = declared(&turn);
        let state = declared
            .as_ref()
            .map(|d| d.state)
            .or(settle.legacy.map(|l| l.state));
        let facts = Facts {
            turn: settle.turn,
            stored: tx.stored(&lease.session, settle.turn).await?,
            declared,
            quota_mark,
            unstorable: turn.unstorable,
            mismatch: turn.mismatch.is_some(),
            cause: if phase == Phase::Canceling {
                Cause::Canceled
            } else {
                settle.cause
            },
            stop_requested: turn.stop_requested_at.is_some(),
            legacy: settle.legacy,
        };
        let judgement = judge(&facts);
        let next = next_phase(phase, state);
        tx.write_verdict(&turn, judgement).await?;
        tx.write_phase(&lease.session, next, settle.failure).await?;
        tx.sandbox_after(lease, settle, next).await?;
        tx.execute(
            "settle",
            "DELETE FROM dispatches WHERE session_id = $1 AND turn = $2",
            &[text(&lease.session.as_str()), int4(&turn_no(settle.turn))],
        )
        .await?;
        tx.notify(Channel::Settled, lease.session.as_str()).await?;
        tx.commit().await?;
        Ok(Settled::Now {
            verdict: judgement.0,
            reason: judgement.1,
            phase: next,
        })
    }

    /// Looks again at truncated turns of the session whose missing parts arrived. `complete` never changes.
    ///
    /// # Errors
    /// Store trouble; nothing changed then.
    pub async fn rejudge(&self, lease: &Lease, turn: TurnNo) -> Result<Rejudged, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        if !tx.holds(lease).await? {
            return Ok(Rejudged::Stale);
        }
        let Some((_, quota_mark)) = tx.lock_session(&lease.session).await? else {
            return Ok(Rejudged::Unchanged);
        };
        let Some(row) = tx.lock_turn(&lease.session, turn).await? else {
            return Ok(Rejudged::Unchanged);
        };
        let declared = declared(&row);
        let may_heal = row.verdict == Verdict::Truncated
            && row
                .reason
                .is_some_and(|reason| reason.may_heal(declared.is_some()));
        let healed = may_heal && {
            let facts = Facts {
                turn,
                stored: tx.stored(&lease.session, turn).await?,
                declared,
                quota_mark,
                unstorable: row.unstorable,
                mismatch: row.mismatch.is_some(),
                cause: Cause::DriverEnded,
                stop_requested: row.stop_requested_at.is_some(),
                legacy: None,
            };
            judge(&facts).0 == Verdict::Complete
        };
        let sql = if healed {
            "UPDATE turns SET rejudge = false, verdict = 'complete', reason = NULL, healed_at = now()
              WHERE session_id = $1 AND turn = $2 AND verdict = 'truncated'"
        } else {
            "UPDATE turns SET rejudge = false WHERE session_id = $1 AND turn = $2"
        };
        tx.execute(
            "rejudge",
            sql,
            &[text(&lease.session.as_str()), int4(&turn_no(turn))],
        )
        .await?;
        if healed {
            tx.notify(Channel::Settled, lease.session.as_str()).await?;
        }
        tx.commit().await?;
        Ok(if healed {
            Rejudged::Healed
        } else {
            Rejudged::Unchanged
        })
    }

    /// Turns of the session that wait for [`Db::rejudge`].
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn turns_to_rejudge(&self, session: &SessionId) -> Result<Vec<TurnNo>, StoreError> {
        let rows = self
            .query(
                "turns_to_rejudge",
                "SELECT turn FROM turns WHERE session_id = $1 AND rejudge ORDER BY turn",
                &[text(&session.as_str())],
            )
            .await?;
        rows.iter()
            .map(|row| crate::sql::turn(row, "turn"))
            .collect()
    }
}

/// The turn-end that was recorded.
fn declared(row: &TurnRow) -> Option<Declared> {
    Some(Declared {
        parts: row.expected_parts?,
        sha256: row.expected_sha256.clone()?,
        state: row.driver_state?,
        dropped: row.dropped,
    })
}

/// Phase tells the outcome, whatever the verdict.
fn next_phase(phase: Phase, state: Option<TurnState>) -> Phase {
    match (phase, state) {
        (Phase::Canceling, _) => Phase::Canceled,
        (_, Some(TurnState::Succeeded | TurnState::Stopped)) => Phase::Completed,
        (_, Some(TurnState::Failed) | None) => Phase::Failed,
    }
}

impl Tx<'_> {
    /// Session row, then head row: nothing is appended, begun or deleted until commit.
    async fn lock_session(
        &self,
        session: &SessionId,
    ) -> Result<Option<(Phase, Option<PartId>)>, StoreError> {
        let id = session.as_str();
        let sql = "SELECT phase FROM sessions WHERE id = $1 FOR NO KEY UPDATE";
        let Some(row) = self.query_opt("lock_session", sql, &[text(&id)]).await? else {
            return Ok(None);
        };
        let phase = word(&row, "phase")?;
        // outbox rows are locked between session and head everywhere
        self.query(
            "lock_session",
            "SELECT 1 FROM dispatches WHERE session_id = $1 FOR UPDATE",
            &[text(&id)],
        )
        .await?;
        let sql =
            "SELECT quota_turn, quota_index FROM transcript_heads WHERE session_id = $1 FOR UPDATE";
        let head = self.query_one("lock_session", sql, &[text(&id)]).await?;
        Ok(Some((phase, quota_mark(&head)?)))
    }

    async fn lock_turn(
        &self,
        session: &SessionId,
        turn: TurnNo,
    ) -> Result<Option<TurnRow>, StoreError> {
        let sql = "SELECT * FROM turns WHERE session_id = $1 AND turn = $2 FOR UPDATE";
        let row = self
            .query_opt(
                "lock_turn",
                sql,
                &[text(&session.as_str()), int4(&turn_no(turn))],
            )
            .await?;
        row.as_ref().map(TurnRow::read).transpose()
    }

    /// Count, highest index and digest of the stored bytes, each part followed by a newline.
    async fn stored(&self, session: &SessionId, turn: TurnNo) -> Result<Stored, StoreError> {
        let row = self
            .query_one(
                "stored",
                "SELECT count(*)::integer AS parts, max(part_index) AS last,
                        encode(sha256(convert_to(COALESCE(string_agg(part || E'\\n', '' ORDER BY part_index), ''),
                                                 'UTF8')), 'hex') AS digest
                   FROM transcript_parts WHERE session_id = $1 AND turn = $2",
                &[text(&session.as_str()), int4(&turn_no(turn))],
            )
            .await?;
        Ok(Stored {
            parts: unsigned(&row, "parts")?,
            end: optional_unsigned(&row, "last")?.map_or(0, |last| last + 1),
            sha256: get(&row, "digest")?,
        })
    }

    async fn write_verdict(
        &self,
        turn: &TurnRow,
        (verdict, reason, ended_by): (Verdict, Option<TruncationReason>, EndedBy),
    ) -> Result<(), StoreError> {
        self.execute(
            "write_verdict",
            "UPDATE turns SET verdict = $3, reason = $4, ended_by = $5, settled_at = now(), rejudge = false
              WHERE session_id = $1 AND turn = $2 AND verdict = 'open'",
            &[
                text(&turn.session.as_str()),
                int4(&turn_no(turn.turn)),
                text(&verdict.as_str()),
                text(&reason.map(TruncationReason::as_str)),
                text(&ended_by.as_str()),
            ],
        )
        .await
        .map(drop)
    }

    async fn write_phase(
        &self,
        session: &SessionId,
        next: Phase,
        failure: Option<FailureReason>,
    ) -> Result<(), StoreError> {
        let failure = failure.filter(|_| next == Phase::Failed);
        self.execute(
            "write_phase",
            "UPDATE sessions SET phase = $2, failure_reason = $3, updated_at = now(),
                    canceled_at = CASE WHEN $2 = 'canceled' THEN now() END
              WHERE id = $1",
            &[
                text(&session.as_str()),
                text(&next.as_str()),
                text(&failure.map(FailureReason::as_str)),
            ],
        )
        .await
        .map(drop)
    }

    /// The sandbox that spoke moves as the Completer found it; a canceled session keeps none.
    async fn sandbox_after(
        &self,
        lease: &Lease,
        settle: &Settle,
        phase: Phase,
    ) -> Result<(), StoreError> {
        let session = lease.session.as_str();
        let sql = match settle.sandbox {
            SandboxAfter::Idle => {
                "UPDATE sandboxes SET state = 'idle', idle_since = now()
                  WHERE session_id = $1 AND generation = $2 AND state = 'turn'"
            }
            SandboxAfter::Stopping => {
                "UPDATE sandboxes SET state = 'stopping'
                  WHERE session_id = $1 AND generation = $2 AND state IN ('creating', 'turn', 'idle')"
            }
        };
        self.execute(
            "sandbox_after",
            sql,
            &[text(&session), int4(&number(settle.generation.0))],
        )
        .await?;
        if phase == Phase::Canceled {
            self.stop_sandboxes(&lease.session).await?;
        }
        Ok(())
    }
}
