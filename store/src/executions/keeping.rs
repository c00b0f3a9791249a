//! How long executions and what was recorded beside them are kept. What belongs to a session under legal hold is not removed, by nobody.

use bex_proto::{ExecutionId, WorkspaceId};

use crate::error::StoreError;
use crate::pool::Db;
use crate::retention::Removal;
use crate::sql::{boolean, float8, get, int8, large, text, word};

/// What a deletion did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// The execution, its nodes, findings and usage are gone.
    Removed,
    /// A session it belongs to is kept by law.
    LegalHold,
    /// Something of it is younger.
    Young,
    /// The workspace has no such execution.
    NotFound,
}

/// How many rows a sweep of records removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Findings that are of no execution.
    pub findings: u64,
    /// Usage entries that are of no execution.
    pub usage: u64,
    /// Versions that no execution names.
    pub versions: u64,
}

impl Forgotten {
    /// All of them.
    pub fn rows(&self) -> u64 {
        self.findings + self.usage + self.versions
    }
}

/// Whether a session of workspace `$1` is held: by its id, which is the column named.
fn session_is_held(column: &str) -> String {
    format!(
        "(EXISTS (SELECT 1 FROM sessions s WHERE s.id = {column} AND s.workspace_id = $1 AND s.legal_hold)
          OR EXISTS (SELECT 1 FROM remote_sessions s WHERE s.id = {column} AND s.workspace_id = $1 AND s.legal_hold))"
    )
}

/// The same by one of its runs.
fn run_is_held(column: &str) -> String {
    format!(
        "(EXISTS (SELECT 1 FROM turns t JOIN sessions s ON s.id = t.session_id
                   WHERE t.run_id = {column} AND s.workspace_id = $1 AND s.legal_hold)
          OR EXISTS (SELECT 1 FROM remote_turns t JOIN remote_sessions s ON s.id = t.session_id
                      WHERE t.run_id = {column} AND s.workspace_id = $1 AND s.legal_hold))"
    )
}

/// Whether execution `e` belongs to a session that is held: it names it, or a finding or usage entry of it does.
fn execution_is_held() -> String {
    format!(
        "(EXISTS (SELECT 1 FROM execution_sessions x WHERE x.workspace_id = $1 AND x.execution_id = e.id AND {})
          OR EXISTS (SELECT 1 FROM findings x WHERE x.workspace_id = $1 AND x.execution_id = e.id AND x.run_id IS NOT NULL AND {})
          OR EXISTS (SELECT 1 FROM usage_ledger x WHERE x.workspace_id = $1 AND x.execution_id = e.id AND ({} OR {})))",
        session_is_held("x.session_id"),
        run_is_held("x.run_id"),
        session_is_held("x.session_id"),
        run_is_held("x.run_id"),
    )
}

/// Whether something of execution `e` is younger than `$2` days.
const IS_YOUNG: &str = "
    (e.updated_at > now() - $2 * interval '1 day'
     OR EXISTS (SELECT 1 FROM findings y WHERE y.workspace_id = $1 AND y.execution_id = e.id
                   AND y.recorded_at > now() - $2 * interval '1 day')
     OR EXISTS (SELECT 1 FROM usage_ledger y WHERE y.workspace_id = $1 AND y.execution_id = e.id
                   AND y.recorded_at > now() - $2 * interval '1 day'))";

impl Db {
    /// Executions of a workspace that were quiet for `days`, whatever their status: nothing of them is live here. The oldest first, at most
    /// `limit`. Only a proposal: [`Db::remove_execution`] looks again under the row's lock.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn expired_executions(
        &self,
        workspace: &WorkspaceId,
        days: u32,
        limit: u32,
    ) -> Result<Vec<ExecutionId>, StoreError> {
        let sql = format!(
            "SELECT e.id FROM executions e
              WHERE e.workspace_id = $1 AND e.updated_at <= now() - $2 * interval '1 day' AND NOT {IS_YOUNG} AND NOT {}
              ORDER BY e.updated_at LIMIT $3",
            execution_is_held()
        );
        let rows = self
            .query(
                "expired_executions",
                &sql,
                &[
                    text(&workspace.as_str()),
                    float8(&f64::from(days)),
                    int8(&i64::from(limit)),
                ],
            )
            .await?;
        rows.iter().map(|row| word(row, "id")).collect()
    }

    /// Deletes an execution with all that is of it, and the audit event that says so.
    ///
    /// # Errors
    /// Store trouble; nothing was deleted then.
    pub async fn remove_execution(
        &self,
        workspace: &WorkspaceId,
        id: &ExecutionId,
        removal: Removal<'_>,
    ) -> Result<Removed, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let (workspace, id) = (workspace.as_str(), id.as_str());
        let locked = tx
            .query_opt(
                "remove_execution",
                "SELECT 1 FROM executions WHERE workspace_id = $1 AND id = $2 FOR UPDATE",
                &[text(&workspace), text(&id)],
            )
            .await?;
        if locked.is_none() {
            return Ok(Removed::NotFound);
        }
        // looked at by a statement of its own, which sees what was recorded until the lock was there
        let sql = format!(
            "SELECT {} AS held, $3 AND {IS_YOUNG} AS young, e.nodes FROM executions e WHERE e.workspace_id = $1 AND e.id = $4",
            execution_is_held()
        );
        let days = removal.quiet_days.map_or(0.0, f64::from);
        let row = tx
            .query_one(
                "remove_execution",
                &sql,
                &[
                    text(&workspace),
                    float8(&days),
                    boolean(&removal.quiet_days.is_some()),
                    text(&id),
                ],
            )
            .await?;
        if get(&row, "held")? {
            return Ok(Removed::LegalHold);
        }
        if get(&row, "young")? {
            return Ok(Removed::Young);
        }
        tx.execute(
            "remove_execution",
            "WITH gone AS (DELETE FROM executions WHERE workspace_id = $1 AND id = $2)
             INSERT INTO audit_events (workspace_id, subject, action, result, detail)
             SELECT $1, $3, $4, 'ok', format('%s, nodes %s, findings %s, usage entries %s', e.id, e.nodes,
                        (SELECT count(*) FROM findings f WHERE f.workspace_id = $1 AND f.execution_id = $2),
                        (SELECT count(*) FROM usage_ledger u WHERE u.workspace_id = $1 AND u.execution_id = $2))
               FROM executions e WHERE e.workspace_id = $1 AND e.id = $2",
            &[
                text(&workspace),
                text(&id),
                text(&removal.subject),
                text(&removal.action),
            ],
        )
        .await?;
        tx.remove_packages_of(workspace, id).await?;
        tx.commit().await?;
        Ok(Removed::Removed)
    }

    /// Removes findings and usage that are of no execution, and versions that none names and nobody recorded again, where they are older
    /// than `days`: one batch of `limit` of each.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn forget_records(
        &self,
        workspace: &WorkspaceId,
        days: u32,
        limit: u32,
    ) -> Result<Forgotten, StoreError> {
        let findings = format!(
            "SELECT x.finding_id FROM findings x
              WHERE x.workspace_id = $1 AND x.execution_id IS NULL AND x.recorded_at <= now() - $2 * interval '1 day' AND NOT {}
              ORDER BY x.recorded_at LIMIT $3",
            run_is_held("x.run_id")
        );
        let usage = format!(
            "SELECT x.entry_id FROM usage_ledger x
              WHERE x.workspace_id = $1 AND x.execution_id IS NULL AND x.recorded_at <= now() - $2 * interval '1 day'
                AND NOT {} AND NOT {} ORDER BY x.recorded_at LIMIT $3",
            session_is_held("x.session_id"),
            run_is_held("x.run_id")
        );
        let sql = format!(
            "WITH findings_gone AS (DELETE FROM findings WHERE workspace_id = $1 AND finding_id IN ({findings}) RETURNING 1),
                  usage_gone AS (DELETE FROM usage_ledger WHERE workspace_id = $1 AND entry_id IN ({usage}) RETURNING 1),
                  versions_gone AS (DELETE FROM config_versions WHERE (workspace_id, kind, id, version) IN ({UNNAMED}) RETURNING 1)
             SELECT (SELECT count(*) FROM findings_gone) AS findings, (SELECT count(*) FROM usage_gone) AS usage,
                    (SELECT count(*) FROM versions_gone) AS versions"
        );
        let row = self
            .query_one(
                "forget_records",
                &sql,
                &[
                    text(&workspace.as_str()),
                    float8(&f64::from(days)),
                    int8(&i64::from(limit)),
                ],
            )
            .await?;
        Ok(Forgotten {
            findings: large(&row, "findings")?,
            usage: large(&row, "usage")?,
            versions: large(&row, "versions")?,
        })
    }
}

/// Versions that no execution or node names.
const UNNAMED: &str = "
    SELECT c.workspace_id, c.kind, c.id, c.version FROM config_versions c
     WHERE c.workspace_id = $1 AND c.seen_at <= now() - $2 * interval '1 day'
       AND CASE c.kind
               WHEN 'workflow' THEN NOT EXISTS (SELECT 1 FROM executions e WHERE e.workspace_id = $1
                                                   AND e.workflow_id = c.id AND e.workflow_version = c.version)
               WHEN 'exec_spec' THEN NOT EXISTS (SELECT 1 FROM executions e WHERE e.workspace_id = $1
                                                    AND e.spec_id = c.id AND e.spec_version = c.version)
               WHEN 'model_config' THEN NOT EXISTS (SELECT 1 FROM executions e WHERE e.workspace_id = $1
                                                       AND e.model_scope = c.id AND e.model_version = c.version)
               ELSE NOT EXISTS (SELECT 1 FROM execution_nodes n WHERE n.workspace_id = $1
                                   AND n.agent_id = c.id AND n.agent_version = c.version)
           END
     ORDER BY c.seen_at LIMIT $3";
