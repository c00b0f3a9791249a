//! Findings: what rules or reviewers decided about an execution, a node or a run. Each stands once, under its id.

use bex_proto::{ExecutionId, RunId, WorkspaceId, limits};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::batches::Batch;
use super::pages::{Page, RecordCursor};
use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, int8, optional_word, text, texts, time, times};

/// A finding to record. The caller has checked lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its id within the workspace.
    pub id: String,
    /// About a workflow.
    pub workflow_id: Option<String>,
    /// About an execution.
    pub execution: Option<ExecutionId>,
    /// About a node of it.
    pub node_id: Option<String>,
    /// About a run.
    pub run: Option<RunId>,
    /// What was decided.
    pub decision: String,
    /// JSON.
    pub body: String,
    /// When it was decided.
    pub at: Timestamp,
    /// Of all of the above: the same finding has the same.
    pub sha256: String,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindingRow {
    /// What was recorded.
    pub finding: Finding,
    /// When.
    pub recorded_at: Timestamp,
    /// By whom.
    pub recorded_by: String,
}

/// Whose findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindingsOf {
    /// All of the workspace.
    Workspace,
    /// Those about an execution.
    Execution(ExecutionId),
    /// Those about a workflow.
    Workflow(String),
    /// Those about a run.
    Run(RunId),
}

impl FindingRow {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            finding: Finding {
                id: get(row, "finding_id")?,
                workflow_id: get(row, "workflow_id")?,
                execution: optional_word(row, "execution_id")?,
                node_id: get(row, "node_id")?,
                run: optional_word(row, "run_id")?,
                decision: get(row, "decision")?,
                body: get(row, "body")?,
                at: get(row, "at")?,
                sha256: get(row, "sha256")?,
            },
            recorded_at: get(row, "recorded_at")?,
            recorded_by: get(row, "recorded_by")?,
        })
    }
}

/// In the order of ids, so that batches that have some in common wait for each other and never in a ring.
const RECORD: &str = "
    INSERT INTO findings (workspace_id, finding_id, workflow_id, execution_id, node_id, run_id, decision, body, at, sha256, recorded_by)
    SELECT $1, u.*, $11 FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10) AS u (id, workflow, execution, node, run, decision, body, at, sha256)
     ORDER BY u.id ON CONFLICT DO NOTHING";

const KNOWN: &str = "SELECT finding_id AS id, sha256 FROM findings WHERE workspace_id = $1 AND finding_id = ANY ($2)";

fn page_of(column: &str) -> String {
    format!(
        "SELECT * FROM (
             SELECT f.*, count(*) OVER () AS found,
                    sum(octet_length(f.body)) OVER (ORDER BY f.at, f.finding_id) - octet_length(f.body) AS before
               FROM (SELECT * FROM findings WHERE workspace_id = $1 AND {column}
                        AND ($3 IS NULL OR (at, finding_id) > ($3, $4)) ORDER BY at, finding_id LIMIT $5) f) q
          WHERE q.before < $6 ORDER BY q.at, q.finding_id"
    )
}

impl Db {
    /// Records findings: all of them, or none.
    ///
    /// # Errors
    /// Store trouble; nothing was recorded then.
    pub async fn record_findings(
        &self,
        workspace: &WorkspaceId,
        findings: &[Finding],
        subject: &str,
    ) -> Result<Batch, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        if !tx.may_record(workspace).await? {
            return Ok(Batch::WorkspaceDeleting);
        }
        let executions: Vec<_> = findings.iter().map(|f| f.execution.as_ref()).collect();
        if let Some(index) = tx.keep_executions(workspace, &executions).await? {
            return Ok(Batch::Unknown(index));
        }
        let runs: Vec<_> = findings
            .iter()
            .map(|f| f.run.as_ref().map(RunId::as_str))
            .collect();
        if let Some(index) = tx.foreign_run(workspace, &runs).await? {
            return Ok(Batch::Unknown(index));
        }
        let column = |of: fn(&Finding) -> &str| -> Vec<&str> { findings.iter().map(of).collect() };
        let optional = |of: fn(&Finding) -> Option<&str>| -> Vec<Option<&str>> {
            findings.iter().map(of).collect()
        };
        let at: Vec<Timestamp> = findings.iter().map(|f| f.at).collect();
        let recorded = tx
            .execute(
                "record_findings",
                RECORD,
                &[
                    text(&workspace.as_str()),
                    texts(&column(|f| &f.id)),
                    texts(&optional(|f| f.workflow_id.as_deref())),
                    texts(&optional(|f| f.execution.as_ref().map(ExecutionId::as_str))),
                    texts(&optional(|f| f.node_id.as_deref())),
                    texts(&runs),
                    texts(&column(|f| &f.decision)),
                    texts(&column(|f| &f.body)),
                    times(&at),
                    texts(&column(|f| &f.sha256)),
                    text(&subject),
                ],
            )
            .await?;
        let entries: Vec<(&str, &str)> = findings
            .iter()
            .map(|f| (f.id.as_str(), f.sha256.as_str()))
            .collect();
        if let Some(index) = tx.first_conflict(workspace, KNOWN, &entries).await? {
            return Ok(Batch::Conflict(index));
        }
        tx.commit().await?;
        let recorded = usize::try_from(recorded).unwrap_or(usize::MAX);
        Ok(Batch::Done {
            recorded,
            duplicates: findings.len() - recorded,
        })
    }

    /// Findings behind `after`, in the order in which they were decided: at most `limit` and about [`limits::RECORD_PAGE_BYTES`], one at
    /// least where there is one.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn findings(
        &self,
        workspace: &WorkspaceId,
        of: &FindingsOf,
        after: Option<&RecordCursor>,
        limit: u32,
    ) -> Result<Page<FindingRow>, StoreError> {
        let (column, value) = match of {
            FindingsOf::Workspace => ("$2 IS NULL", None),
            FindingsOf::Execution(id) => ("execution_id = $2", Some(id.as_str())),
            FindingsOf::Workflow(id) => ("workflow_id = $2", Some(id.as_str())),
            FindingsOf::Run(id) => ("run_id = $2", Some(id.as_str())),
        };
        let bytes = i64::try_from(limits::RECORD_PAGE_BYTES).unwrap_or(i64::MAX);
        let rows = self
            .query(
                "findings",
                &page_of(column),
                &[
                    text(&workspace.as_str()),
                    text(&value),
                    time(&after.map(|cursor| cursor.at)),
                    text(&after.map(|cursor| cursor.id.as_str())),
                    int8(&(i64::from(limit) + 1)),
                    int8(&bytes),
                ],
            )
            .await?;
        Page::read(&rows, limit, FindingRow::read)
    }
}
