//! Rows of others that name what a package is of. There are none: keys that begin with the workspace, and what recording refuses, see to that.
//! A package is refused when there is one all the same, for then something else may be wrong too.

use bex_proto::{ExecutionId, WorkspaceId};

use super::Snapshot;
use crate::error::StoreError;
use crate::sql::{get, text, texts, word};

/// A row that should not be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intruder {
    /// In which table.
    pub table: String,
    /// Whose it says it is.
    pub workspace: WorkspaceId,
}

/// Another workspace may have an execution of the same id, and then rows of it; without one they are nobody's.
const OF_EXECUTION: &str = "
    WITH named AS (
        SELECT 'execution_nodes' AS found_in, workspace_id FROM execution_nodes WHERE execution_id = $1 AND workspace_id <> $2
        UNION ALL
        SELECT 'execution_sessions', workspace_id FROM execution_sessions WHERE execution_id = $1 AND workspace_id <> $2
        UNION ALL
        SELECT 'findings', workspace_id FROM findings WHERE execution_id = $1 AND workspace_id <> $2
        UNION ALL
        SELECT 'usage_ledger', workspace_id FROM usage_ledger WHERE execution_id = $1 AND workspace_id <> $2)
    SELECT found_in, workspace_id FROM named n
     WHERE NOT EXISTS (SELECT 1 FROM executions e WHERE e.id = $1 AND e.workspace_id = n.workspace_id) LIMIT 1";

/// Sessions have one owner.
const OF_SESSION: &str = "
    SELECT found_in, workspace_id FROM (
        SELECT 'usage_ledger' AS found_in, workspace_id FROM usage_ledger WHERE session_id = $1 AND workspace_id <> $2
        UNION ALL
        SELECT 'execution_sessions', workspace_id FROM execution_sessions WHERE session_id = $1 AND workspace_id <> $2) n LIMIT 1";

/// So have runs.
const OF_RUNS: &str = "
    SELECT found_in, workspace_id FROM (
        SELECT 'findings' AS found_in, workspace_id FROM findings WHERE run_id = ANY ($1) AND workspace_id <> $2
        UNION ALL
        SELECT 'usage_ledger', workspace_id FROM usage_ledger WHERE run_id = ANY ($1) AND workspace_id <> $2) n LIMIT 1";

impl Snapshot {
    /// A row of another workspace that names this execution as its own.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn intruder_of_execution(
        &self,
        workspace: &WorkspaceId,
        execution: &ExecutionId,
    ) -> Result<Option<Intruder>, StoreError> {
        let (execution, workspace) = (execution.as_str(), workspace.as_str());
        let params = [text(&execution), text(&workspace)];
        self.intruder("package_intruder_of_execution", OF_EXECUTION, &params)
            .await
    }

    /// A row of another workspace that names this session.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn intruder_of_session(
        &self,
        workspace: &WorkspaceId,
        session: &str,
    ) -> Result<Option<Intruder>, StoreError> {
        let workspace = workspace.as_str();
        let params = [text(&session), text(&workspace)];
        self.intruder("package_intruder_of_session", OF_SESSION, &params)
            .await
    }

    /// A row of another workspace that names one of these runs.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn intruder_of_runs(
        &self,
        workspace: &WorkspaceId,
        runs: &[String],
    ) -> Result<Option<Intruder>, StoreError> {
        let workspace = workspace.as_str();
        let params = [texts(&runs), text(&workspace)];
        self.intruder("package_intruder_of_runs", OF_RUNS, &params)
            .await
    }

    async fn intruder(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[crate::sql::Param<'_>],
    ) -> Result<Option<Intruder>, StoreError> {
        let row = self.query_opt(operation, sql, params).await?;
        row.map(|row| {
            Ok(Intruder {
                table: get(&row, "found_in")?,
                workspace: word(&row, "workspace_id")?,
            })
        })
        .transpose()
    }
}
