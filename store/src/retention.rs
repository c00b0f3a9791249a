//! How long sessions and audit rows are kept, and how they are forgotten.
//!
//! A session is deleted in one short transaction: its row, everything that refers to it, and the audit event that says so. Its
//! parts, which may be a hundred thousand, are invisible from then on and are removed in batches; a crash between two batches
//! leaves work in `deletions`, for whoever comes next.

use bex_proto::session::Phase;
use bex_proto::{SessionId, WorkspaceId};
use jiff::Timestamp;

use crate::error::StoreError;
use crate::pool::{Db, Tx};
use crate::sessions::Delete;
use crate::sql::{float8, get, int4, int8, number, optional_unsigned, text, word};
use crate::wake::Channel;

/// Parts removed in one transaction.
const PURGE_BATCH: i64 = 1000;

/// How long a workspace keeps what is its.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspacePolicy {
    /// Days; `None`: as the deployment says; 0: for ever.
    pub retention_days: Option<u32>,
    /// Since when the workspace is being deleted.
    pub deleting_since: Option<Timestamp>,
}

/// A workspace that has something, and its policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptWorkspace {
    /// Which.
    pub workspace: WorkspaceId,
    /// Its own policy, if it has one.
    pub policy: Option<WorkspacePolicy>,
}

/// Who deletes a session, and when it may be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removal<'a> {
    /// For the audit log.
    pub subject: &'a str,
    /// For the audit log, e.g. `session.delete`.
    pub action: &'a str,
    /// Only when it has been quiet for so many days.
    pub quiet_days: Option<u32>,
}

/// What one batch of a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purged {
    /// So many parts of one session.
    Parts(u64),
    /// Nothing is left to remove, or others are at it.
    Nothing,
}

const WORKSPACES: &str = "
    WITH RECURSIVE s AS (
        (SELECT workspace_id FROM sessions ORDER BY workspace_id LIMIT 1)
        UNION ALL SELECT (SELECT n.workspace_id FROM sessions n WHERE n.workspace_id > s.workspace_id
                           ORDER BY n.workspace_id LIMIT 1) FROM s WHERE s.workspace_id IS NOT NULL),
    m AS (
        (SELECT workspace_id FROM machines ORDER BY workspace_id LIMIT 1)
        UNION ALL SELECT (SELECT n.workspace_id FROM machines n WHERE n.workspace_id > m.workspace_id
                           ORDER BY n.workspace_id LIMIT 1) FROM m WHERE m.workspace_id IS NOT NULL),
    a AS (
        (SELECT workspace_id FROM audit_events ORDER BY workspace_id LIMIT 1)
        UNION ALL SELECT (SELECT n.workspace_id FROM audit_events n WHERE n.workspace_id > a.workspace_id
                           ORDER BY n.workspace_id LIMIT 1) FROM a WHERE a.workspace_id IS NOT NULL),
    v AS (
        (SELECT workspace_id FROM stream_audit ORDER BY workspace_id LIMIT 1)
        UNION ALL SELECT (SELECT n.workspace_id FROM stream_audit n WHERE n.workspace_id > v.workspace_id
                           ORDER BY n.workspace_id LIMIT 1) FROM v WHERE v.workspace_id IS NOT NULL),
    e AS (
        (SELECT workspace_id FROM executions ORDER BY workspace_id LIMIT 1)
        UNION ALL SELECT (SELECT n.workspace_id FROM executions n WHERE n.workspace_id > e.workspace_id
                           ORDER BY n.workspace_id LIMIT 1) FROM e WHERE e.workspace_id IS NOT NULL),
    f AS (
        (SELECT workspace_id FROM findings ORDER BY workspace_id LIMIT 1)
        UNION ALL SELECT (SELECT n.workspace_id FROM findings n WHERE n.workspace_id > f.workspace_id
                           ORDER BY n.workspace_id LIMIT 1) FROM f WHERE f.workspace_id IS NOT NULL),
    u AS (
        (SELECT workspace_id FROM usage_ledger ORDER BY workspace_id LIMIT 1)
        UNION ALL SELECT (SELECT n.workspace_id FROM usage_ledger n WHERE n.workspace_id > u.workspace_id
                           ORDER BY n.workspace_id LIMIT 1) FROM u WHERE u.workspace_id IS NOT NULL),
    c AS (
        (SELECT workspace_id FROM config_versions ORDER BY workspace_id LIMIT 1)
        UNION ALL SELECT (SELECT n.workspace_id FROM config_versions n WHERE n.workspace_id > c.workspace_id
                           ORDER BY n.workspace_id LIMIT 1) FROM c WHERE c.workspace_id IS NOT NULL)
    SELECT w.workspace_id, p.workspace_id IS NOT NULL AS known, p.retention_days, p.deleting_since
      FROM (SELECT workspace_id FROM s UNION SELECT workspace_id FROM a UNION SELECT workspace_id FROM v
            UNION SELECT workspace_id FROM m UNION SELECT workspace_id FROM e UNION SELECT workspace_id FROM f
            UNION SELECT workspace_id FROM u UNION SELECT workspace_id FROM c UNION SELECT workspace_id FROM workspace_policies) w
      LEFT JOIN workspace_policies p USING (workspace_id)
     WHERE w.workspace_id IS NOT NULL ORDER BY w.workspace_id";

impl Db {
    /// Every workspace that has sessions, records of executions, audit rows or a policy. One index look-up for each, not one for each row.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn kept_workspaces(&self) -> Result<Vec<KeptWorkspace>, StoreError> {
        let rows = self.query("kept_workspaces", WORKSPACES, &[]).await?;
        rows.iter()
            .map(|row| {
                Ok(KeptWorkspace {
                    workspace: word(row, "workspace_id")?,
                    policy: if get(row, "known")? {
                        Some(policy(row)?)
                    } else {
                        None
                    },
                })
            })
            .collect()
    }

    /// A workspace's own policy.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn workspace_policy(
        &self,
        workspace: &WorkspaceId,
    ) -> Result<Option<WorkspacePolicy>, StoreError> {
        self.query_opt(
            "workspace_policy",
            "SELECT retention_days, deleting_since FROM workspace_policies WHERE workspace_id = $1",
            &[text(&workspace.as_str())],
        )
        .await?
        .as_ref()
        .map(policy)
        .transpose()
    }

    /// Sets how many days a workspace keeps what is its; `None`: as the deployment says. The audit log says who did it.
    ///
    /// # Errors
    /// Store trouble; nothing changed then.
    pub async fn set_retention(
        &self,
        workspace: &WorkspaceId,
        days: Option<u32>,
        subject: &str,
    ) -> Result<(), StoreError> {
        let days = days.map(number);
        let detail = days.map_or_else(|| "default".to_owned(), |days| format!("days {days}"));
        self.execute(
            "set_retention",
            "WITH noted AS (INSERT INTO audit_events (workspace_id, subject, action, result, detail)
                            VALUES ($1, $3, 'workspace.retention', 'ok', $4))
             INSERT INTO workspace_policies (workspace_id, retention_days, updated_by) VALUES ($1, $2, $3)
             ON CONFLICT (workspace_id) DO UPDATE SET retention_days = $2, updated_by = $3, updated_at = now()",
            &[
                text(&workspace.as_str()),
                int4(&days),
                text(&subject),
                text(&detail),
            ],
        )
        .await
        .map(drop)
    }

    /// Marks a workspace as one to be deleted: it takes no new session and no record, and the sweep removes what it has. Refused while a session
    /// of it is under legal hold.
    ///
    /// # Errors
    /// Store trouble; nothing changed then.
    pub async fn begin_workspace_deletion(
        &self,
        workspace: &WorkspaceId,
        subject: &str,
    ) -> Result<Delete, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let id = workspace.as_str();
        // creators of sessions take it too: either they are first and their session is deleted, or they see the mark
        tx.lock_creation(workspace).await?;
        let sql =
            "SELECT EXISTS (SELECT 1 FROM sessions WHERE workspace_id = $1 AND legal_hold)
                     OR EXISTS (SELECT 1 FROM remote_sessions WHERE workspace_id = $1 AND legal_hold) AS held";
        let row = tx
            .query_one("begin_workspace_deletion", sql, &[text(&id)])
            .await?;
        if get(&row, "held")? {
            return Ok(Delete::LegalHold);
        }
        tx.execute(
            "begin_workspace_deletion",
            "INSERT INTO workspace_policies (workspace_id, deleting_since, updated_by) VALUES ($1, now(), $2)
             ON CONFLICT (workspace_id) DO UPDATE
                SET deleting_since = COALESCE(workspace_policies.deleting_since, now()), updated_by = $2, updated_at = now()",
            &[text(&id), text(&subject)],
        )
        .await?;
        tx.execute(
            "begin_workspace_deletion",
            "INSERT INTO audit_events (workspace_id, subject, action, result) VALUES ($1, $2, 'workspace.delete', 'ok')",
            &[text(&id), text(&subject)],
        )
        .await?;
        tx.commit().await?;
        Ok(Delete::Deleted)
    }

    /// Takes a workspace's sessions off steering, so that an idle sandbox is removed without its grace, and names those that are still
    /// active and are to be canceled; at most `limit` of either.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn wind_down(
        &self,
        workspace: &WorkspaceId,
        limit: u32,
    ) -> Result<Vec<SessionId>, StoreError> {
        let id = workspace.as_str();
        self.execute(
            "wind_down",
            "UPDATE sessions SET archived_at = now() WHERE id IN (
                 SELECT id FROM sessions WHERE workspace_id = $1 AND archived_at IS NULL LIMIT $2)",
            &[text(&id), int8(&i64::from(limit))],
        )
        .await?;
        let rows = self
            .query(
                "wind_down",
                "SELECT id FROM sessions WHERE workspace_id = $1 AND phase IN ('creating', 'running', 'redispatching')
                  LIMIT $2",
                &[text(&id), int8(&i64::from(limit))],
            )
            .await?;
        rows.iter().map(|row| word(row, "id")).collect()
    }

    /// Ends the deletion of a workspace that has no session and no record of an execution any more. Its audit rows go by retention.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn end_workspace_deletion(&self, workspace: &WorkspaceId) -> Result<(), StoreError> {
        self.execute(
            "end_workspace_deletion",
            "WITH gone AS (DELETE FROM workspace_policies WHERE workspace_id = $1 AND deleting_since IS NOT NULL
                              AND NOT EXISTS (SELECT 1 FROM sessions WHERE workspace_id = $1)
                              AND NOT EXISTS (SELECT 1 FROM remote_sessions WHERE workspace_id = $1)
                              AND NOT EXISTS (SELECT 1 FROM executions WHERE workspace_id = $1)
                              AND NOT EXISTS (SELECT 1 FROM findings WHERE workspace_id = $1)
                              AND NOT EXISTS (SELECT 1 FROM usage_ledger WHERE workspace_id = $1)
                              AND NOT EXISTS (SELECT 1 FROM config_versions WHERE workspace_id = $1) RETURNING workspace_id),
                  machines_gone AS (DELETE FROM machines WHERE workspace_id IN (SELECT workspace_id FROM gone))
             INSERT INTO audit_events (workspace_id, subject, action, result)
             SELECT workspace_id, 'system:retention', 'workspace.deleted', 'ok' FROM gone",
            &[text(&workspace.as_str())],
        )
        .await
        .map(drop)
    }

    /// Sessions of a workspace that may be deleted now: over, without a sandbox, without a hold, quiet for `quiet_days`. The oldest
    /// first, at most `limit`. Only a proposal: [`Db::remove_session`] looks again under the session's lock.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn expired_sessions(
        &self,
        workspace: &WorkspaceId,
        quiet_days: u32,
        limit: u32,
    ) -> Result<Vec<SessionId>, StoreError> {
        let rows = self
            .query(
                "expired_sessions",
                // what was created later cannot be quiet for so long: the workspace's index is read from its old end
                "SELECT id FROM sessions s WHERE workspace_id = $1
                    AND created_at <= now() - $2 * interval '1 day' AND updated_at <= now() - $2 * interval '1 day'
                    AND phase IN ('completed', 'failed', 'canceled') AND NOT legal_hold
                    AND NOT EXISTS (SELECT 1 FROM sandboxes b WHERE b.session_id = s.id AND b.state <> 'gone')
                  ORDER BY created_at, id LIMIT $3",
                &[
                    text(&workspace.as_str()),
                    float8(&f64::from(quiet_days)),
                    int8(&i64::from(limit)),
                ],
            )
            .await?;
        rows.iter().map(|row| word(row, "id")).collect()
    }

    /// Deletes a session when nothing of it is live, with the audit event that says so. Its parts are left to [`Db::purge`].
    ///
    /// # Errors
    /// Store trouble; nothing was deleted then.
    pub async fn remove_session(
        &self,
        session: &SessionId,
        removal: Removal<'_>,
    ) -> Result<Delete, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let id = session.as_str();
        let sql = "SELECT 1 FROM leases WHERE session_id = $1 FOR UPDATE";
        tx.query("remove_session", sql, &[text(&id)]).await?;
        let quiet = removal.quiet_days.map(f64::from);
        let sql = "SELECT workspace_id, phase, legal_hold,
                          EXISTS (SELECT 1 FROM sandboxes b WHERE b.session_id = s.id AND b.state <> 'gone')
                          OR COALESCE(updated_at > now() - $2 * interval '1 day', false) AS living
                     FROM sessions s WHERE id = $1 FOR UPDATE";
        let Some(row) = tx
            .query_opt("remove_session", sql, &[text(&id), float8(&quiet)])
            .await?
        else {
            return Ok(Delete::NotFound);
        };
        if get(&row, "legal_hold")? {
            return Ok(Delete::LegalHold);
        }
        if !word::<Phase>(&row, "phase")?.is_terminal() || get(&row, "living")? {
            return Ok(Delete::Live);
        }
        let workspace: &str = get(&row, "workspace_id")?;
        tx.note_removal(id, workspace, removal).await?;
        // the head first: an append that waits for it finds no head afterwards, so no part can outlive its session
        for sql in [
            "SELECT 1 FROM transcript_heads WHERE session_id = $1 FOR UPDATE",
            "DELETE FROM idempotency_keys WHERE session_id = $1",
            "DELETE FROM sessions WHERE id = $1",
        ] {
            tx.query("remove_session", sql, &[text(&id)]).await?;
        }
        tx.remove_packages_of(workspace, id).await?;
        tx.notify(Channel::Settled, id).await?;
        tx.commit().await?;
        Ok(Delete::Deleted)
    }

    /// Removes one batch of parts of a session that is gone. Several may do it at once, each at another session.
    ///
    /// # Errors
    /// Store trouble; the batch is then still there, or gone.
    pub async fn purge(&self) -> Result<Purged, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let sql =
            "SELECT session_id FROM deletions ORDER BY deleted_at LIMIT 1 FOR UPDATE SKIP LOCKED";
        let Some(row) = tx.query_opt("purge", sql, &[]).await? else {
            return Ok(Purged::Nothing);
        };
        let session: &str = get(&row, "session_id")?;
        let parts = tx
            .execute(
                "purge",
                "DELETE FROM transcript_parts p USING (
                     SELECT turn, part_index FROM transcript_parts WHERE session_id = $1 LIMIT $2) one
                  WHERE p.session_id = $1 AND p.turn = one.turn AND p.part_index = one.part_index",
                &[text(&session), int8(&PURGE_BATCH)],
            )
            .await?;
        if parts == 0 {
            let sql = "DELETE FROM deletions WHERE session_id = $1";
            tx.execute("purge", sql, &[text(&session)]).await?;
        }
        tx.commit().await?;
        Ok(Purged::Parts(parts))
    }

    /// Records what a sweep of audit rows forgot.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn note_audit_sweep(
        &self,
        workspace: &WorkspaceId,
        rows: u64,
        days: u32,
    ) -> Result<(), StoreError> {
        let detail = format!("rows {rows}, older than {days} days");
        self.execute(
            "note_audit_sweep",
            "INSERT INTO audit_events (workspace_id, subject, action, result, detail)
             VALUES ($1, 'system:retention', 'audit.sweep', 'ok', $2)",
            &[text(&workspace.as_str()), text(&detail)],
        )
        .await
        .map(drop)
    }
}

impl Tx<'_> {
    /// The audit event, with what there was, and the work that is left.
    async fn note_removal(
        &self,
        session: &str,
        workspace: &str,
        removal: Removal<'_>,
    ) -> Result<(), StoreError> {
        self.execute(
            "note_removal",
            "WITH left_over AS (INSERT INTO deletions (session_id, workspace_id) VALUES ($1, $2))
             INSERT INTO audit_events (workspace_id, subject, action, session_id, result, detail)
             SELECT $2, $3, $4, $1, 'ok', format('turns %s, parts %s, bytes %s, statements %s', s.turns, h.parts, h.bytes,
                        (SELECT count(*) FROM turn_statements n WHERE n.session_id = $1))
               FROM sessions s JOIN transcript_heads h ON h.session_id = s.id WHERE s.id = $1",
            &[
                text(&session),
                text(&workspace),
                text(&removal.subject),
                text(&removal.action),
            ],
        )
        .await
        .map(drop)
    }

    /// Whether the workspace is being deleted. The caller holds its creation lock.
    pub(crate) async fn is_being_deleted(
        &self,
        workspace: &WorkspaceId,
    ) -> Result<bool, StoreError> {
        let row = self
            .query_one(
                "is_being_deleted",
                "SELECT EXISTS (SELECT 1 FROM workspace_policies WHERE workspace_id = $1 AND deleting_since IS NOT NULL)
                        AS deleting",
                &[text(&workspace.as_str())],
            )
            .await?;
        get(&row, "deleting")
    }

    /// One creator per workspace at a time.
    pub(crate) async fn lock_creation(&self, workspace: &WorkspaceId) -> Result<(), StoreError> {
        self.query(
            "lock_creation",
            "SELECT pg_advisory_xact_lock(hashtextextended('bex_live/' || $1, 0))",
            &[text(&workspace.as_str())],
        )
        .await
        .map(drop)
    }
}

fn policy(row: &tokio_postgres::Row) -> Result<WorkspacePolicy, StoreError> {
    Ok(WorkspacePolicy {
        retention_days: optional_unsigned(row, "retention_days")?,
        deleting_since: get(row, "deleting_since")?,
    })
}
