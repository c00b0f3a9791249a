//! What batches of records have in common: all of a batch is recorded, or nothing of it.

use bex_proto::{ExecutionId, WorkspaceId};

use crate::error::StoreError;
use crate::pool::Tx;
use crate::sql::{get, large, text, texts};

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Batch {
    /// Everything of it is recorded.
    Done {
        /// Now.
        recorded: usize,
        /// Before, or twice in the batch: the same.
        duplicates: usize,
    },
    /// This entry's id was used for another one.
    Conflict(usize),
    /// This entry names an execution or a session that the workspace does not have, or a run of another one.
    Unknown(usize),
    /// The workspace is being deleted.
    WorkspaceDeleting,
}

/// A run that nobody has is nobody's: programs of other systems have runs too.
const FOREIGN_RUN: &str = "
    SELECT u.n FROM unnest($2) WITH ORDINALITY AS u (run, n)
     WHERE EXISTS (SELECT 1 FROM turns t JOIN sessions s ON s.id = t.session_id
                    WHERE t.run_id = u.run AND s.workspace_id <> $1)
        OR EXISTS (SELECT 1 FROM remote_turns t JOIN remote_sessions s ON s.id = t.session_id
                    WHERE t.run_id = u.run AND s.workspace_id <> $1)
     ORDER BY u.n LIMIT 1";

impl Tx<'_> {
    /// The first entry that names a run of another workspace: what is recorded of a run belongs to whoever has it.
    pub(super) async fn foreign_run(
        &self,
        workspace: &WorkspaceId,
        runs: &[Option<&str>],
    ) -> Result<Option<usize>, StoreError> {
        if runs.iter().all(Option::is_none) {
            return Ok(None);
        }
        let row = self
            .query_opt(
                "foreign_run",
                FOREIGN_RUN,
                &[text(&workspace.as_str()), texts(&runs)],
            )
            .await?;
        let Some(row) = row else { return Ok(None) };
        let place = large(&row, "n")?;
        Ok(Some(usize::try_from(place - 1).unwrap_or(usize::MAX)))
    }

    /// Keeps the executions that a batch names until this ends; the first entry whose execution the workspace does not have.
    pub(super) async fn keep_executions(
        &self,
        workspace: &WorkspaceId,
        named: &[Option<&ExecutionId>],
    ) -> Result<Option<usize>, StoreError> {
        let mut ids: Vec<&str> = named.iter().flatten().map(|id| id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(None);
        }
        let rows = self
            .query(
                "keep_executions",
                "SELECT id FROM executions WHERE workspace_id = $1 AND id = ANY ($2) ORDER BY id FOR KEY SHARE",
                &[text(&workspace.as_str()), texts(&ids)],
            )
            .await?;
        let known = rows
            .iter()
            .map(|row| get::<&str>(row, "id"))
            .collect::<Result<std::collections::HashSet<_>, _>>()?;
        Ok(named
            .iter()
            .position(|id| id.is_some_and(|id| !known.contains(id.as_str()))))
    }

    /// What the batch's ids stand for now, compared with what it says: the first entry that is another one. `sql` selects `id` and
    /// `sha256` of a workspace's ids.
    pub(super) async fn first_conflict(
        &self,
        workspace: &WorkspaceId,
        sql: &'static str,
        entries: &[(&str, &str)],
    ) -> Result<Option<usize>, StoreError> {
        let ids: Vec<&str> = entries.iter().map(|(id, _)| *id).collect();
        let rows = self
            .query(
                "first_conflict",
                sql,
                &[text(&workspace.as_str()), texts(&ids)],
            )
            .await?;
        let known = rows
            .iter()
            .map(|row| Ok((get::<&str>(row, "id")?, get::<&str>(row, "sha256")?)))
            .collect::<Result<std::collections::HashMap<_, _>, StoreError>>()?;
        Ok(entries
            .iter()
            .position(|(id, sha256)| known.get(id) != Some(sha256)))
    }
}
