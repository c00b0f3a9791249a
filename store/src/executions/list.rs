//! The list of executions: newest first, keyset pages, every filter optional.

use bex_proto::execution::ExecutionStatus;
use bex_proto::{ExecutionId, WorkspaceId};
use jiff::Timestamp;

use super::pages::Page;
use super::record::ExecutionRow;
use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{int8, text, texts, time};

/// Where a page ended: the next begins behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionCursor {
    /// Of the last item.
    pub recorded_at: Timestamp,
    /// Of the last item.
    pub id: ExecutionId,
}

/// What to list.
#[derive(Debug, Clone, Default)]
pub struct ExecutionFilter {
    /// Any of these; empty means every status.
    pub statuses: Vec<ExecutionStatus>,
    /// Exactly this workflow.
    pub workflow_id: Option<String>,
    /// Exclusive.
    pub recorded_before: Option<Timestamp>,
    /// Exclusive.
    pub recorded_after: Option<Timestamp>,
    /// Where to go on.
    pub cursor: Option<ExecutionCursor>,
    /// Items.
    pub limit: u32,
}

impl Db {
    /// One page of a workspace's executions.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn list_executions(
        &self,
        workspace: &WorkspaceId,
        filter: &ExecutionFilter,
    ) -> Result<Page<ExecutionRow>, StoreError> {
        let statuses: Vec<&str> = filter.statuses.iter().map(|s| s.as_str()).collect();
        // said only where it is asked for, so that its index is used
        let workflow = match filter.workflow_id {
            Some(_) => "workflow_id = $3",
            None => "$3 IS NULL",
        };
        let sql = format!(
            "SELECT q.*, count(*) OVER () AS found
               FROM (SELECT * FROM executions
                      WHERE workspace_id = $1 AND (cardinality($2) = 0 OR status = ANY ($2)) AND {workflow}
                        AND ($4 IS NULL OR recorded_at < $4) AND ($5 IS NULL OR recorded_at > $5)
                        AND ($6 IS NULL OR (recorded_at, id) < ($6, $7))
                      ORDER BY recorded_at DESC, id DESC LIMIT $8) q
              ORDER BY q.recorded_at DESC, q.id DESC"
        );
        let cursor = filter.cursor.as_ref();
        let rows = self
            .query(
                "list_executions",
                &sql,
                &[
                    text(&workspace.as_str()),
                    texts(&statuses),
                    text(&filter.workflow_id),
                    time(&filter.recorded_before),
                    time(&filter.recorded_after),
                    time(&cursor.map(|cursor| cursor.recorded_at)),
                    text(&cursor.map(|cursor| cursor.id.as_str())),
                    int8(&(i64::from(filter.limit) + 1)),
                ],
            )
            .await?;
        Page::read(&rows, filter.limit, ExecutionRow::read)
    }
}
