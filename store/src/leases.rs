//! The Completer's leases: one replica works on a session at a time, and a fence number names each claim, so that a
//! replica that lost its lease cannot settle anything.

use std::time::Duration;

use bex_proto::{SessionId, limits};
use jiff::Timestamp;

use crate::error::StoreError;
use crate::pool::{Db, Tx};
use crate::sql::{float8, get, int8, number, seconds, text, unsigned, word};

/// One claim on one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// This claim's number: every claim has a higher one.
    pub fence: i64,
    /// Failed rounds in a row before this one.
    pub failures: u32,
    /// Since when nothing clear was seen of its sandbox in any round, whoever looked.
    pub unclear_since: Option<Timestamp>,
    /// The round before did not come to look.
    pub unseen: bool,
}

/// How a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// Everything was done.
    Done,
    /// Something failed; counted, so that the caller can back off.
    Failed,
    /// Nothing clear was seen of the sandbox: since when is kept until a round ends otherwise.
    Unclear,
    /// It did not come to look: nothing follows of the sandbox, and no window of unclear looks begins.
    Unseen,
}

impl Round {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Unclear => "unclear",
            Self::Unseen => "unseen",
        }
    }
}

/// Work exists for: a turn whose delivery began and that is open; missing parts that arrived late; a cancel; a sandbox
/// to tear down. Each arm reads a partial index that holds live sessions only. What a claim that ran out saw nobody knows, so
/// that the window of unclear looks begins again.
const CLAIM: &str = "
    WITH work AS (
        SELECT session_id FROM turns WHERE verdict = 'open' AND delivery_started_at IS NOT NULL
        UNION SELECT session_id FROM turns WHERE rejudge
        UNION SELECT id FROM sessions WHERE phase = 'canceling'
        UNION SELECT b.session_id FROM sandboxes b JOIN sessions s ON s.id = b.session_id
               WHERE b.state <> 'gone'
                 AND (b.state = 'stopping' AND (b.teardown_after IS NULL OR b.teardown_after <= now())
                      OR b.state = 'idle' AND (b.legacy OR s.phase = 'canceled' OR s.archived_at IS NOT NULL
                                               OR b.idle_since <= now() - $4 * interval '1 second'))),
    due AS (
        SELECT l.session_id FROM leases l JOIN work w ON w.session_id = l.session_id
         WHERE l.next_due_at <= now() AND (l.until IS NULL OR l.until < now())
         ORDER BY l.next_due_at LIMIT $2 FOR UPDATE OF l SKIP LOCKED)
    UPDATE leases l SET owner = $1, fence = l.fence + 1, woken = false, until = now() + $3 * interval '1 second',
           unclear_since = CASE WHEN l.until IS NULL THEN l.unclear_since END
      FROM due WHERE l.session_id = due.session_id
    RETURNING l.session_id, l.fence, l.failures, l.unclear_since, l.unseen";

const MAKE_DUE: &str = "UPDATE leases SET next_due_at = now(), woken = woken OR until IS NOT NULL WHERE session_id = $1";

impl Db {
    /// Claims up to `limit` due sessions for [`limits::LEASE`].
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn claim_leases(
        &self,
        owner: &str,
        limit: u32,
        idle_grace: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        let rows = self
            .query(
                "claim_leases",
                CLAIM,
                &[
                    text(&owner),
                    int8(&i64::from(number(limit))),
                    float8(&seconds(limits::LEASE)),
                    float8(&seconds(idle_grace)),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Lease {
                    session: word(row, "session_id")?,
                    fence: get(row, "fence")?,
                    failures: unsigned(row, "failures")?,
                    unclear_since: get(row, "unclear_since")?,
                    unseen: get(row, "unseen")?,
                })
            })
            .collect()
    }

    /// Extends a claim by [`limits::LEASE`] from now. False when it was lost.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn renew_lease(&self, lease: &Lease) -> Result<bool, StoreError> {
        let rows = self
            .execute(
                "renew_lease",
                "UPDATE leases SET until = now() + $3 * interval '1 second' WHERE session_id = $1 AND fence = $2",
                &[text(&lease.session.as_str()), int8(&lease.fence), float8(&seconds(limits::LEASE))],
            )
            .await?;
        Ok(rows == 1)
    }

    /// Gives a claim back; the session is due again after `next_due`, or at once when somebody woke it meanwhile. False
    /// when the claim was lost.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn release_lease(
        &self,
        lease: &Lease,
        next_due: Duration,
        round: Round,
    ) -> Result<bool, StoreError> {
        let rows = self
            .execute(
                "release_lease",
                "UPDATE leases SET owner = NULL, until = NULL,
                        failures = CASE WHEN $4 = 'failed' THEN failures + 1 ELSE 0 END,
                        unclear_since = CASE $4 WHEN 'unclear' THEN COALESCE(unclear_since, now())
                                                WHEN 'unseen' THEN unclear_since END,
                        unseen = $4 = 'unseen',
                        next_due_at = CASE WHEN woken THEN now() ELSE now() + $3 * interval '1 second' END,
                        woken = false
                  WHERE session_id = $1 AND fence = $2",
                &[text(&lease.session.as_str()), int8(&lease.fence), float8(&seconds(next_due)), text(&round.as_str())],
            )
            .await?;
        Ok(rows == 1)
    }

    /// Makes a session due now, also when it is being worked on: then it is due again at its release.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn make_due(&self, session: &SessionId) -> Result<(), StoreError> {
        self.execute("make_due", MAKE_DUE, &[text(&session.as_str())])
            .await
            .map(drop)
    }
}

impl Tx<'_> {
    pub(crate) async fn make_due(&self, session: &SessionId) -> Result<(), StoreError> {
        self.execute("make_due", MAKE_DUE, &[text(&session.as_str())])
            .await
            .map(drop)
    }

    /// Locks the lease row and says whether this claim still holds it. A claim that expired but that nobody took over
    /// still holds.
    pub(crate) async fn holds(&self, lease: &Lease) -> Result<bool, StoreError> {
        let row = self
            .query_opt(
                "holds",
                "SELECT 1 FROM leases WHERE session_id = $1 AND fence = $2 FOR UPDATE",
                &[text(&lease.session.as_str()), int8(&lease.fence)],
            )
            .await?;
        Ok(row.is_some())
    }
}
