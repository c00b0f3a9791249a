//! How long remote sessions are kept, and what becomes of them with their workspace.

use bex_proto::{RemoteSessionId, WorkspaceId};

use crate::error::StoreError;
use crate::holds::{Hold, HoldSet};
use crate::pool::Db;
use crate::sql::{boolean, float8, get, int8, large, text, word};

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

    /// Removes log events older than `days` that rows were made from, one bounded batch; returns how many went. Viewers that come later are
    /// told of the range.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn purge_remote_events(&self, days: u32, limit: u32) -> Result<u64, StoreError> {
        let row = self
            .query_one(
                "purge_remote_events",
                "WITH old AS (
                     SELECT e.session_id, e.event_index FROM remote_events e
                       JOIN remote_heads h ON h.session_id = e.session_id
                       JOIN remote_sessions s ON s.id = e.session_id
                      WHERE e.created_at < now() - $1 * interval '1 day' AND e.event_index < h.cursor_index
                        AND NOT s.legal_hold
                      ORDER BY e.session_id, e.event_index LIMIT $2),
                 -- their heads first, as everybody else does
                 locked AS (SELECT h.session_id FROM remote_heads h WHERE h.session_id IN (SELECT o.session_id FROM old o)
                             ORDER BY h.session_id FOR UPDATE),
                 ends AS (SELECT o.session_id, max(o.event_index) AS last FROM old o JOIN locked l ON l.session_id = o.session_id
                           GROUP BY o.session_id),
                 heads AS (UPDATE remote_heads h SET first_index = GREATEST(h.first_index, ends.last + 1)
                             FROM ends WHERE h.session_id = ends.session_id),
                 gone AS (DELETE FROM remote_events e USING ends
                           WHERE e.session_id = ends.session_id AND e.event_index <= ends.last RETURNING 1)
                 SELECT count(*) AS gone FROM gone",
                &[float8(&f64::from(days)), int8(&i64::from(limit))],
            )
            .await?;
        large(&row, "gone")
    }
}
