//! The usage ledger: what executions, sessions and runs used. Each entry counts once, under its id.

use bex_proto::{ExecutionId, RunId, WorkspaceId};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::batches::Batch;
use super::pages::{Page, RecordCursor};
use super::record::SessionName;
use crate::error::StoreError;
use crate::pool::{Db, Tx};
use crate::sql::{get, int8, int8s, large, optional_word, text, texts, time, times};

/// An entry to record. The caller has checked lengths and numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageEntry {
    /// Its id within the workspace.
    pub id: String,
    /// Of an execution.
    pub execution: Option<ExecutionId>,
    /// Of a session of the workspace.
    pub session: Option<SessionName>,
    /// Of a node of the execution.
    pub node_id: Option<String>,
    /// Of a run.
    pub run: Option<RunId>,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// All tokens.
    pub total_tokens: u64,
    /// Requests to models.
    pub calls: u64,
    /// A decimal number of at most 12 digits before and after the point, and its currency.
    pub cost: Option<(String, String)>,
    /// When.
    pub at: Timestamp,
    /// Of all of the above: the same entry has the same.
    pub sha256: String,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// What was recorded.
    pub entry: UsageEntry,
    /// When.
    pub recorded_at: Timestamp,
    /// By whom.
    pub recorded_by: String,
}

/// Whose usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsageOf {
    /// All of the workspace.
    Workspace,
    /// An execution's.
    Execution(ExecutionId),
    /// A session's.
    Session(SessionName),
    /// A run's.
    Run(RunId),
}

/// The sum of an execution's entries; what no column holds counts as the largest that one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerTotals {
    /// How many entries.
    pub entries: u64,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// All tokens.
    pub total_tokens: u64,
    /// Requests to models.
    pub calls: u64,
}

impl UsageRow {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let cost: Option<String> = get(row, "cost_text")?;
        let currency: Option<String> = get(row, "currency")?;
        Ok(Self {
            entry: UsageEntry {
                id: get(row, "entry_id")?,
                execution: optional_word(row, "execution_id")?,
                session: optional_word(row, "session_id")?,
                node_id: get(row, "node_id")?,
                run: optional_word(row, "run_id")?,
                input_tokens: large(row, "input_tokens")?,
                output_tokens: large(row, "output_tokens")?,
                total_tokens: large(row, "total_tokens")?,
                calls: large(row, "calls")?,
                cost: cost.zip(currency),
                at: get(row, "at")?,
                sha256: get(row, "sha256")?,
            },
            recorded_at: get(row, "recorded_at")?,
            recorded_by: get(row, "recorded_by")?,
        })
    }
}

/// In the order of ids, as findings.
const RECORD: &str = "
    INSERT INTO usage_ledger (workspace_id, entry_id, execution_id, session_id, node_id, run_id, input_tokens, output_tokens, total_tokens,
                              calls, cost, currency, at, sha256, recorded_by)
    SELECT $1, u.id, u.execution, u.session, u.node, u.run, u.input, u.output, u.total, u.calls, u.cost::numeric, u.currency, u.at, u.sha256, $15
      FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
           AS u (id, execution, session, node, run, input, output, total, calls, cost, currency, at, sha256)
     ORDER BY u.id ON CONFLICT DO NOTHING";

const KNOWN: &str = "SELECT entry_id AS id, sha256 FROM usage_ledger WHERE workspace_id = $1 AND entry_id = ANY ($2)";

/// The first new entry whose session the workspace does not have. What was recorded before stays, though its session may be gone.
const STRANGER: &str = "
    SELECT u.n FROM unnest($2, $3) WITH ORDINALITY AS u (id, session, n)
     WHERE u.session IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = u.session AND s.workspace_id = $1)
       AND NOT EXISTS (SELECT 1 FROM remote_sessions r WHERE r.id = u.session AND r.workspace_id = $1)
       AND NOT EXISTS (SELECT 1 FROM usage_ledger l WHERE l.workspace_id = $1 AND l.entry_id = u.id)
     ORDER BY u.n LIMIT 1";

const TOTALS: &str = "
    SELECT count(*) AS entries, LEAST(COALESCE(sum(input_tokens), 0), 9223372036854775807)::bigint AS input_tokens,
           LEAST(COALESCE(sum(output_tokens), 0), 9223372036854775807)::bigint AS output_tokens,
           LEAST(COALESCE(sum(total_tokens), 0), 9223372036854775807)::bigint AS total_tokens,
           LEAST(COALESCE(sum(calls), 0), 9223372036854775807)::bigint AS calls
      FROM usage_ledger WHERE workspace_id = $1 AND execution_id = $2";

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Db {
    /// Records entries: all of them, or none.
    ///
    /// # Errors
    /// Store trouble; nothing was recorded then.
    pub async fn record_usage(
        &self,
        workspace: &WorkspaceId,
        entries: &[UsageEntry],
        subject: &str,
    ) -> Result<Batch, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        if !tx.may_record(workspace).await? {
            return Ok(Batch::WorkspaceDeleting);
        }
        let executions: Vec<_> = entries.iter().map(|e| e.execution.as_ref()).collect();
        if let Some(index) = tx.keep_executions(workspace, &executions).await? {
            return Ok(Batch::Unknown(index));
        }
        if let Some(index) = tx.stranger(workspace, entries).await? {
            return Ok(Batch::Unknown(index));
        }
        let runs: Vec<_> = entries
            .iter()
            .map(|e| e.run.as_ref().map(RunId::as_str))
            .collect();
        if let Some(index) = tx.foreign_run(workspace, &runs).await? {
            return Ok(Batch::Unknown(index));
        }
        let recorded = tx.insert_usage(workspace, entries, subject).await?;
        let said: Vec<(&str, &str)> = entries
            .iter()
            .map(|e| (e.id.as_str(), e.sha256.as_str()))
            .collect();
        if let Some(index) = tx.first_conflict(workspace, KNOWN, &said).await? {
            return Ok(Batch::Conflict(index));
        }
        tx.commit().await?;
        Ok(Batch::Done {
            recorded,
            duplicates: entries.len() - recorded,
        })
    }

    /// Entries behind `after`, in the order of their times; at most `limit`.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn usage(
        &self,
        workspace: &WorkspaceId,
        of: &UsageOf,
        after: Option<&RecordCursor>,
        limit: u32,
    ) -> Result<Page<UsageRow>, StoreError> {
        let (column, value) = match of {
            UsageOf::Workspace => ("$2 IS NULL", None),
            UsageOf::Execution(id) => ("execution_id = $2", Some(id.as_str())),
            UsageOf::Session(id) => ("session_id = $2", Some(id.as_str())),
            UsageOf::Run(id) => ("run_id = $2", Some(id.as_str())),
        };
        let sql = format!(
            "SELECT u.*, count(*) OVER () AS found
               FROM (SELECT *, trim_scale(cost)::text AS cost_text FROM usage_ledger WHERE workspace_id = $1 AND {column}
                        AND ($3 IS NULL OR (at, entry_id) > ($3, $4)) ORDER BY at, entry_id LIMIT $5) u
              ORDER BY u.at, u.entry_id"
        );
        let rows = self
            .query(
                "usage",
                &sql,
                &[
                    text(&workspace.as_str()),
                    text(&value),
                    time(&after.map(|cursor| cursor.at)),
                    text(&after.map(|cursor| cursor.id.as_str())),
                    int8(&(i64::from(limit) + 1)),
                ],
            )
            .await?;
        Page::read(&rows, limit, UsageRow::read)
    }

    /// The sum of an execution's entries.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn usage_totals(
        &self,
        workspace: &WorkspaceId,
        execution: &ExecutionId,
    ) -> Result<LedgerTotals, StoreError> {
        let row = self
            .query_one(
                "usage_totals",
                TOTALS,
                &[text(&workspace.as_str()), text(&execution.as_str())],
            )
            .await?;
        Ok(LedgerTotals {
            entries: large(&row, "entries")?,
            input_tokens: large(&row, "input_tokens")?,
            output_tokens: large(&row, "output_tokens")?,
            total_tokens: large(&row, "total_tokens")?,
            calls: large(&row, "calls")?,
        })
    }
}

impl Tx<'_> {
    async fn stranger(
        &self,
        workspace: &WorkspaceId,
        entries: &[UsageEntry],
    ) -> Result<Option<usize>, StoreError> {
        let ids: Vec<&str> = entries.iter().map(|e| e.id.as_str()).collect();
        let sessions: Vec<Option<&str>> = entries
            .iter()
            .map(|e| e.session.as_ref().map(SessionName::as_str))
            .collect();
        let row = self
            .query_opt(
                "stranger",
                STRANGER,
                &[text(&workspace.as_str()), texts(&ids), texts(&sessions)],
            )
            .await?;
        let Some(row) = row else { return Ok(None) };
        let place = large(&row, "n")?;
        Ok(Some(usize::try_from(place - 1).unwrap_or(usize::MAX)))
    }

    async fn insert_usage(
        &self,
        workspace: &WorkspaceId,
        entries: &[UsageEntry],
        subject: &str,
    ) -> Result<usize, StoreError> {
        let column =
            |of: fn(&UsageEntry) -> &str| -> Vec<&str> { entries.iter().map(of).collect() };
        let optional = |of: fn(&UsageEntry) -> Option<&str>| -> Vec<Option<&str>> {
            entries.iter().map(of).collect()
        };
        let counts = |of: fn(&UsageEntry) -> u64| -> Vec<i64> {
            entries.iter().map(|e| signed(of(e))).collect()
        };
        let at: Vec<Timestamp> = entries.iter().map(|e| e.at).collect();
        let recorded = self
            .execute(
                "record_usage",
                RECORD,
                &[
                    text(&workspace.as_str()),
                    texts(&column(|e| &e.id)),
                    texts(&optional(|e| e.execution.as_ref().map(ExecutionId::as_str))),
                    texts(&optional(|e| e.session.as_ref().map(SessionName::as_str))),
                    texts(&optional(|e| e.node_id.as_deref())),
                    texts(&optional(|e| e.run.as_ref().map(RunId::as_str))),
                    int8s(&counts(|e| e.input_tokens)),
                    int8s(&counts(|e| e.output_tokens)),
                    int8s(&counts(|e| e.total_tokens)),
                    int8s(&counts(|e| e.calls)),
                    texts(&optional(|e| {
                        e.cost.as_ref().map(|(cost, _)| cost.as_str())
                    })),
                    texts(&optional(|e| {
                        e.cost.as_ref().map(|(_, unit)| unit.as_str())
                    })),
                    times(&at),
                    texts(&column(|e| &e.sha256)),
                    text(&subject),
                ],
            )
            .await?;
        Ok(usize::try_from(recorded).unwrap_or(usize::MAX))
    }
}
