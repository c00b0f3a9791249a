//! Findings and usage, in keyset pages.

use bex_proto::{ExecutionId, WorkspaceId};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::Snapshot;
use crate::error::StoreError;
use crate::sql::{get, int8, large, text, texts, time, word};

/// A finding.
#[derive(Debug, Clone)]
pub struct FindingSource {
    /// Whose.
    pub workspace: WorkspaceId,
    /// Its id.
    pub id: String,
    /// About which workflow.
    pub workflow_id: Option<String>,
    /// About which execution.
    pub execution_id: Option<String>,
    /// About which node.
    pub node_id: Option<String>,
    /// About which run.
    pub run_id: Option<String>,
    /// What was decided.
    pub decision: String,
    /// JSON.
    pub body: String,
    /// When.
    pub at: Timestamp,
}

/// An entry of the usage ledger.
#[derive(Debug, Clone)]
pub struct UsageSource {
    /// Whose.
    pub workspace: WorkspaceId,
    /// Its id.
    pub id: String,
    /// Of which node.
    pub node_id: Option<String>,
    /// Of which session.
    pub session_id: Option<String>,
    /// Of which run.
    pub run_id: Option<String>,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Tokens counted.
    pub total_tokens: u64,
    /// Calls of models.
    pub calls: u64,
    /// A decimal number.
    pub cost: Option<String>,
    /// Of it.
    pub currency: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// Of what records are read. What is of an execution is not found again by its run or session.
#[derive(Debug, Clone)]
pub enum RecordsOf<'a> {
    /// What names the execution.
    Execution(&'a ExecutionId),
    /// What names the workflow and nothing nearer.
    Workflow(&'a str),
    /// What names one of these runs.
    Runs(&'a [String]),
    /// What names one of these runs, but no execution (and, of usage, no session).
    RunsAlone(&'a [String]),
    /// Usage that names one of these runs, but no session.
    RunsWithoutSession(&'a [String]),
    /// Usage that names the session.
    Session(&'a str),
    /// Usage that names the session, but no execution.
    SessionAlone(&'a str),
}

/// Where a page begins: behind this record.
#[derive(Debug, Clone, Copy)]
pub struct RecordAfter<'a> {
    /// When it was.
    pub at: Timestamp,
    /// Its id.
    pub id: &'a str,
}

/// Rows of one page.
const ROWS: i64 = 500;
/// Bytes in which the findings of a page begin.
const BYTES: i64 = 1024 * 1024;

impl RecordsOf<'_> {
    /// The condition over parameter 2, which is a text or, of runs, a list.
    fn findings(&self) -> &'static str {
        match self {
            Self::Execution(_) => "execution_id = $2",
            Self::Workflow(_) => "workflow_id = $2 AND execution_id IS NULL AND run_id IS NULL",
            Self::Runs(_) | Self::RunsWithoutSession(_) => "run_id = ANY ($2)",
            Self::RunsAlone(_) => "run_id = ANY ($2) AND execution_id IS NULL",
            // findings name no session
            Self::Session(_) | Self::SessionAlone(_) => "$2 IS NULL",
        }
    }

    fn usage(&self) -> &'static str {
        match self {
            Self::Execution(_) => "execution_id = $2",
            // usage names no workflow
            Self::Workflow(_) => "$2 IS NULL",
            Self::Runs(_) => "run_id = ANY ($2)",
            Self::RunsAlone(_) => {
                "run_id = ANY ($2) AND execution_id IS NULL AND session_id IS NULL"
            }
            Self::RunsWithoutSession(_) => "run_id = ANY ($2) AND session_id IS NULL",
            Self::Session(_) => "session_id = $2",
            Self::SessionAlone(_) => "session_id = $2 AND execution_id IS NULL",
        }
    }
}

impl Snapshot {
    /// Findings behind `after`, in the order of their times; none is the end.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn findings(
        &self,
        workspace: &WorkspaceId,
        of: &RecordsOf<'_>,
        after: Option<RecordAfter<'_>>,
    ) -> Result<Vec<FindingSource>, StoreError> {
        let sql = format!(
            "SELECT * FROM (
                 SELECT f.*, sum(octet_length(f.body)) OVER (ORDER BY f.at, f.finding_id) - octet_length(f.body) AS before
                   FROM (SELECT * FROM findings WHERE workspace_id = $1 AND {}
                            AND ($3 IS NULL OR (at, finding_id) > ($3, $4)) ORDER BY at, finding_id LIMIT $5) f) q
              WHERE q.before < $6 ORDER BY q.at, q.finding_id",
            of.findings()
        );
        let rows = self
            .records("package_findings", &sql, workspace, of, after, Some(&BYTES))
            .await?;
        rows.iter().map(FindingSource::read).collect()
    }

    /// Entries of the usage ledger behind `after`, likewise.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn usage(
        &self,
        workspace: &WorkspaceId,
        of: &RecordsOf<'_>,
        after: Option<RecordAfter<'_>>,
    ) -> Result<Vec<UsageSource>, StoreError> {
        let sql = format!(
            "SELECT *, trim_scale(cost)::text AS cost_text FROM usage_ledger WHERE workspace_id = $1 AND {}
                AND ($3 IS NULL OR (at, entry_id) > ($3, $4)) ORDER BY at, entry_id LIMIT $5",
            of.usage()
        );
        let rows = self
            .records("package_usage", &sql, workspace, of, after, None)
            .await?;
        rows.iter().map(UsageSource::read).collect()
    }

    async fn records(
        &self,
        operation: &'static str,
        sql: &str,
        workspace: &WorkspaceId,
        of: &RecordsOf<'_>,
        after: Option<RecordAfter<'_>>,
        bytes: Option<&i64>,
    ) -> Result<Vec<Row>, StoreError> {
        let workspace = workspace.as_str();
        let execution = match of {
            RecordsOf::Execution(id) => id.as_str(),
            RecordsOf::Workflow(id) | RecordsOf::Session(id) | RecordsOf::SessionAlone(id) => id,
            RecordsOf::Runs(_) | RecordsOf::RunsAlone(_) | RecordsOf::RunsWithoutSession(_) => "",
        };
        let named = match of {
            RecordsOf::Runs(runs)
            | RecordsOf::RunsAlone(runs)
            | RecordsOf::RunsWithoutSession(runs) => texts(runs),
            _ => text(&execution),
        };
        let (at, id) = (after.map(|a| a.at), after.map(|a| a.id));
        let mut params = vec![text(&workspace), named, time(&at), text(&id), int8(&ROWS)];
        if let Some(bytes) = bytes {
            params.push(int8(bytes));
        }
        self.query(operation, sql, &params).await
    }
}

impl FindingSource {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            workspace: word(row, "workspace_id")?,
            id: get(row, "finding_id")?,
            workflow_id: get(row, "workflow_id")?,
            execution_id: get(row, "execution_id")?,
            node_id: get(row, "node_id")?,
            run_id: get(row, "run_id")?,
            decision: get(row, "decision")?,
            body: get(row, "body")?,
            at: get(row, "at")?,
        })
    }
}

impl UsageSource {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            workspace: word(row, "workspace_id")?,
            id: get(row, "entry_id")?,
            node_id: get(row, "node_id")?,
            session_id: get(row, "session_id")?,
            run_id: get(row, "run_id")?,
            input_tokens: large(row, "input_tokens")?,
            output_tokens: large(row, "output_tokens")?,
            total_tokens: large(row, "total_tokens")?,
            calls: large(row, "calls")?,
            cost: get(row, "cost_text")?,
            currency: get(row, "currency")?,
            at: get(row, "at")?,
        })
    }
}
