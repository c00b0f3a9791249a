//! How long remote sessions are kept, and what becomes of them with their workspace.

use bex_proto::problem::Code;
use bex_proto::remote::{Answer, Operation};
use bex_proto::{RemoteSessionId, WorkspaceId};

use super::sessions::Moved;
use crate::error::StoreError;
use crate::holds::{Hold, HoldSet};
use crate::pool::Db;
use crate::sql::{boolean, float8, get, int8, large, text, word};
use crate::wake::Channel;

/// Log events that one transaction of a deletion removes.
const DELETE_EVENTS: i64 = 20_000;

/// What one transaction of a deletion came to.
enum Step {
    /// A part of the log went.
    Part,
    /// That is what becomes of the session.
    Last(Moved),
}

impl Db {
    /// Sessions of a workspace that have ended, are not held, and were quiet for `days`: the oldest first, at most `limit`.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn expired_remote_sessions(
        &self,
        workspace: &WorkspaceId,
        days: u32,
        limit: u32,
    ) -> Result<Vec<RemoteSessionId>, StoreError> {
        let rows = self
            .query(
                "expired_remote_sessions",
                "SELECT id FROM remote_sessions
                  WHERE workspace_id = $1 AND state IN ('completed', 'stopped', 'error') AND NOT legal_hold
                    AND updated_at <= now() - $2 * interval '1 day'
                  ORDER BY updated_at LIMIT $3",
                &[
                    text(&workspace.as_str()),
                    float8(&f64::from(days)),
                    int8(&i64::from(limit)),
                ],
            )
            .await?;
        rows.iter().map(|row| word(row, "id")).collect()
    }

    /// Deletes a session that has ended, with everything of it. Its log goes first, in bounded transactions: where that is cut short, the
    /// session stands with the rest of its log, as one that the retention looked at, and can be deleted again.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn delete_remote_session(
        &self,
        session: &RemoteSessionId,
    ) -> Result<Moved, StoreError> {
        loop {
            if let Step::Last(moved) = self.delete_step(session).await? {
                return Ok(moved);
            }
        }
    }

    async fn delete_step(&self, session: &RemoteSessionId) -> Result<Step, StoreError> {
        let id = session.as_str();
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let sql =
            "SELECT workspace_id, state, legal_hold FROM remote_sessions WHERE id = $1 FOR UPDATE";
        let row = tx.query_opt("delete_step", sql, &[text(&id)]).await?;
        let Some(row) = row else {
            return Ok(Step::Last(Moved::NotFound));
        };
        let answer = match get::<bool>(&row, "legal_hold")? {
            true => Answer::Refuses(Code::LegalHold),
            false => Operation::Delete.answer(word(&row, "state")?),
        };
        if answer != Answer::Does {
            return Ok(Step::Last(Moved::Done(answer)));
        }
        // a statement of its own, so that the next one sees what whoever had it stored
        let sql = "SELECT 1 FROM remote_heads WHERE session_id = $1 FOR UPDATE";
        tx.query("delete_step", sql, &[text(&id)]).await?;
        let params = [text(&id), int8(&DELETE_EVENTS)];
        let deleted = tx.query_one("delete_step", DELETE, &params).await?;
        if get::<i64>(&deleted, "gone")? == DELETE_EVENTS {
            tx.commit().await?;
            return Ok(Step::Part);
        }
        let sql = "DELETE FROM remote_sessions WHERE id = $1";
        tx.execute("delete_step", sql, &[text(&id)]).await?;
        tx.remove_packages_of(get(&row, "workspace_id")?, id)
            .await?;
        tx.notify(Channel::Remote, id).await?;
        tx.commit().await?;
        Ok(Step::Last(Moved::Done(answer)))
    }

    /// Ends the live sessions of a workspace as they are and makes its machines' tokens void; returns how many sessions there were.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn wind_down_remote(&self, workspace: &WorkspaceId) -> Result<u64, StoreError> {
        self.execute(
            "wind_down_remote",
            "UPDATE machines SET revoked_at = now() WHERE workspace_id = $1 AND revoked_at IS NULL",
            &[text(&workspace.as_str())],
        )
        .await?;
        self.execute(
            "wind_down_remote",
            "UPDATE remote_sessions s
                SET state = 'ending', ending_as = 'stopped', ending_since = now(), ending_index = h.next_index, updated_at = now()
               FROM remote_heads h WHERE h.session_id = s.id AND s.workspace_id = $1 AND s.state IN ('active', 'paused')",
            &[text(&workspace.as_str())],
        )
        .await
    }

    /// Places or lifts a hold; the audit log says who did.
    ///
    /// # Errors
    /// Store trouble; nothing changed then.
    pub async fn set_remote_hold(
        &self,
        session: &RemoteSessionId,
        hold: Hold,
        subject: &str,
    ) -> Result<HoldSet, StoreError> {
        let held = hold == Hold::Held;
        let action = match hold {
            Hold::Held => "remote.hold",
            Hold::Free => "remote.release",
        };
        let row = self
            .query_one(
                "set_remote_hold",
                "WITH changed AS (UPDATE remote_sessions SET legal_hold = $2, updated_at = now()
                                   WHERE id = $1 AND legal_hold <> $2 RETURNING id, workspace_id),
                      noted AS (INSERT INTO audit_events (workspace_id, subject, action, session_id, result)
                                SELECT workspace_id, $3, $4, id, 'ok' FROM changed)
                 SELECT EXISTS (SELECT 1 FROM changed) AS changed,
                        EXISTS (SELECT 1 FROM remote_sessions WHERE id = $1) AS known",
                &[
                    text(&session.as_str()),
                    boolean(&held),
                    text(&subject),
                    text(&action),
                ],
            )
            .await?;
        Ok(match (get(&row, "known")?, get(&row, "changed")?) {
            (false, _) => HoldSet::NotFound,
            (true, true) => HoldSet::Changed,
            (true, false) => HoldSet::Same,
        })
    }

    /// Removes log events older than `days` that rows were made from: one bounded batch of one session, the one with the oldest; returns how
    /// many went, 0 where there are no more. Viewers that come later are told of the range.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn purge_remote_events(&self, days: u32, limit: u32) -> Result<u64, StoreError> {
        loop {
            let row = self
                .query_opt(
                    "purge_remote_events",
                    PURGE,
                    &[float8(&f64::from(days)), int8(&i64::from(limit))],
                )
                .await?;
            let Some(row) = row else {
                return Ok(0);
            };
            let gone = large(&row, "gone")?;
            // else its age is known better now, and another is the oldest
            if gone > 0 {
                return Ok(gone);
            }
        }
    }
}

/// The first events of a session's log go, and its head knows of it.
const DELETE: &str = "
    WITH batch AS (
        SELECT e.event_index FROM remote_events e WHERE e.session_id = $1 ORDER BY e.event_index LIMIT $2),
    gone AS (
        DELETE FROM remote_events e USING batch b
         WHERE e.session_id = $1 AND e.event_index = b.event_index RETURNING e.event_index),
    known AS (
        UPDATE remote_heads h SET first_index = GREATEST(h.first_index, g.first)
          FROM (SELECT max(event_index) + 1 AS first FROM gone) g WHERE h.session_id = $1 AND g.first IS NOT NULL)
    SELECT count(*) AS gone FROM gone";

/// The session whose events are the oldest, as far as heads know, has the first of them removed, or its head learns how old they are. The head
/// is locked before its events, as everybody else does. An event that came late is younger than those behind it, and goes with them.
const PURGE: &str = "
    WITH one AS (
        SELECT h.session_id, h.first_index, h.cursor_index FROM remote_heads h JOIN remote_sessions s ON s.id = h.session_id
         WHERE h.first_at < now() - $1 * interval '1 day' AND h.first_index < h.cursor_index AND NOT s.legal_hold
         ORDER BY h.first_at LIMIT 1 FOR UPDATE OF h),
    batch AS (
        SELECT e.event_index, e.created_at FROM remote_events e
         WHERE e.session_id = (SELECT session_id FROM one) AND e.event_index >= (SELECT first_index FROM one)
           AND e.event_index < (SELECT cursor_index FROM one) ORDER BY e.event_index LIMIT $2),
    ends AS (
        SELECT one.session_id, one.first_index AS low, COALESCE((SELECT max(b.event_index) + 1 FROM batch b WHERE b.created_at < now() - $1 * interval '1 day'),
                                        CASE WHEN EXISTS (SELECT 1 FROM batch) THEN one.first_index ELSE one.cursor_index END) AS first
          FROM one),
    gone AS (
        DELETE FROM remote_events e
         WHERE e.session_id = (SELECT session_id FROM ends) AND e.event_index >= (SELECT low FROM ends)
           AND e.event_index < (SELECT first FROM ends) RETURNING 1),
    known AS (
        UPDATE remote_heads h
           SET first_index = ends.first,
               first_at = (SELECT e.created_at FROM remote_events e
                            WHERE e.session_id = ends.session_id AND e.event_index >= ends.first ORDER BY e.event_index LIMIT 1)
          FROM ends WHERE h.session_id = ends.session_id)
    SELECT (SELECT count(*) FROM gone) AS gone FROM one";
