//! Recording an execution: one statement creates it, or adds facts and moves its status forward.

use bex_proto::execution::{ExecutionStatus, GovernanceMode, NamedSession};
use bex_proto::{ExecutionId, RemoteSessionId, SessionId, WorkspaceId, limits};
use jiff::Timestamp;
use tokio_postgres::Row;

use crate::error::StoreError;
use crate::pool::{Db, Tx};
use crate::sql::{get, int8, large, optional_word, text, texts, time, unsigned, word};

/// What is known of an execution; what is absent was not said yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionFacts {
    /// Of what workflow.
    pub workflow_id: Option<String>,
    /// The version that ran; only with its workflow.
    pub workflow_version: Option<String>,
    /// How it was to be executed.
    pub spec_id: Option<String>,
    /// The version that ran; only with its spec.
    pub spec_version: Option<String>,
    /// Under which scope models were configured.
    pub model_scope: Option<String>,
    /// The version that ran; only with its scope.
    pub model_version: Option<String>,
    /// Whether rules decided.
    pub governance_mode: Option<GovernanceMode>,
    /// Where it stands.
    pub status: ExecutionStatus,
    /// Why it failed.
    pub error: Option<String>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended; only with a status that is terminal.
    pub completed_at: Option<Timestamp>,
    /// A JSON object.
    pub usage_totals: Option<String>,
}

/// One execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionRow {
    /// The owner.
    pub workspace: WorkspaceId,
    /// Its id, within the workspace.
    pub id: ExecutionId,
    /// What was recorded.
    pub facts: ExecutionFacts,
    /// Raised with every change.
    pub revision: u64,
    /// How many nodes there are.
    pub nodes: u32,
    /// When it was recorded first.
    pub recorded_at: Timestamp,
    /// By whom.
    pub recorded_by: String,
    /// The last change of it or a node.
    pub updated_at: Timestamp,
}

/// A session that an execution names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionName {
    /// Of a sandbox.
    Agent(SessionId),
    /// Of a machine.
    Remote(RemoteSessionId),
}

/// A link as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSessionRow {
    /// Which; it may be deleted by now.
    pub session: SessionName,
    /// When it was named.
    pub recorded_at: Timestamp,
}

/// What became of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// It is new.
    New(Box<ExecutionRow>),
    /// It has new facts, or none: all of them were known.
    Known(Box<ExecutionRow>),
    /// It contradicts what was recorded: in this field.
    Conflict(&'static str),
    /// It would name more sessions than it may.
    Full,
    /// The workspace has no such session: its place in the list.
    UnknownSession(usize),
    /// The workspace is being deleted.
    WorkspaceDeleting,
}

impl SessionName {
    /// The id.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Agent(id) => id.as_str(),
            Self::Remote(id) => id.as_str(),
        }
    }

    /// Which kind of session it names.
    pub fn kind(&self) -> NamedSession {
        match self {
            Self::Agent(_) => NamedSession::Agent,
            Self::Remote(_) => NamedSession::Remote,
        }
    }
}

impl std::str::FromStr for SessionName {
    type Err = bex_proto::ids::InvalidId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse()
            .map(Self::Agent)
            .or_else(|_| text.parse().map(Self::Remote))
    }
}

impl ExecutionFacts {
    /// The first field in which `asked` says something else than is recorded here. A status that was left behind is no contradiction.
    fn contradicts(&self, asked: &Self) -> Option<&'static str> {
        fn differ<T: PartialEq>(known: &Option<T>, asked: &Option<T>) -> bool {
            matches!((known, asked), (Some(known), Some(asked)) if known != asked)
        }
        let status =
            self.status.is_terminal() && asked.status.is_terminal() && self.status != asked.status;
        [
            ("status", status),
            ("workflowId", differ(&self.workflow_id, &asked.workflow_id)),
            (
                "workflowVersion",
                differ(&self.workflow_version, &asked.workflow_version),
            ),
            ("specId", differ(&self.spec_id, &asked.spec_id)),
            (
                "specVersion",
                differ(&self.spec_version, &asked.spec_version),
            ),
            ("modelScope", differ(&self.model_scope, &asked.model_scope)),
            (
                "modelVersion",
                differ(&self.model_version, &asked.model_version),
            ),
            (
                "governanceMode",
                differ(&self.governance_mode, &asked.governance_mode),
            ),
            ("error", differ(&self.error, &asked.error)),
            ("startedAt", differ(&self.started_at, &asked.started_at)),
            (
                "completedAt",
                differ(&self.completed_at, &asked.completed_at),
            ),
            (
                "usageTotals",
                differ(&self.usage_totals, &asked.usage_totals),
            ),
        ]
        .into_iter()
        .find_map(|(field, differs)| differs.then_some(field))
    }
}

impl ExecutionRow {
    pub(super) fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            workspace: word(row, "workspace_id")?,
            id: word(row, "id")?,
            facts: ExecutionFacts {
                workflow_id: get(row, "workflow_id")?,
                workflow_version: get(row, "workflow_version")?,
                spec_id: get(row, "spec_id")?,
                spec_version: get(row, "spec_version")?,
                model_scope: get(row, "model_scope")?,
                model_version: get(row, "model_version")?,
                governance_mode: optional_word(row, "governance_mode")?,
                status: word(row, "status")?,
                error: get(row, "error")?,
                started_at: get(row, "started_at")?,
                completed_at: get(row, "completed_at")?,
                usage_totals: get(row, "usage_totals")?,
            },
            revision: large(row, "revision")?,
            nodes: unsigned(row, "nodes")?,
            recorded_at: get(row, "recorded_at")?,
            recorded_by: get(row, "recorded_by")?,
            updated_at: get(row, "updated_at")?,
        })
    }
}

/// Creates the row, or fills what was not said and moves the status on: the compare-and-set of every transition. No row: it contradicts, or
/// there is nothing to change; the row that stands is locked all the same.
const RECORD: &str = "
    INSERT INTO executions AS e (workspace_id, id, workflow_id, workflow_version, spec_id, spec_version, model_scope, model_version,
                                 governance_mode, status, error, started_at, completed_at, usage_totals, recorded_by)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
    ON CONFLICT (workspace_id, id) DO UPDATE
       SET workflow_id = COALESCE(e.workflow_id, excluded.workflow_id),
           workflow_version = COALESCE(e.workflow_version, excluded.workflow_version),
           spec_id = COALESCE(e.spec_id, excluded.spec_id), spec_version = COALESCE(e.spec_version, excluded.spec_version),
           model_scope = COALESCE(e.model_scope, excluded.model_scope),
           model_version = COALESCE(e.model_version, excluded.model_version),
           governance_mode = COALESCE(e.governance_mode, excluded.governance_mode),
           status = CASE e.status WHEN 'running' THEN excluded.status ELSE e.status END,
           error = COALESCE(e.error, excluded.error), started_at = COALESCE(e.started_at, excluded.started_at),
           completed_at = COALESCE(e.completed_at, excluded.completed_at),
           usage_totals = COALESCE(e.usage_totals, excluded.usage_totals),
           revision = e.revision + 1, updated_at = now()
     WHERE (e.status = 'running' OR excluded.status IN ('running', e.status))
       AND COALESCE(e.workflow_id = excluded.workflow_id, true) AND COALESCE(e.workflow_version = excluded.workflow_version, true)
       AND COALESCE(e.spec_id = excluded.spec_id, true) AND COALESCE(e.spec_version = excluded.spec_version, true)
       AND COALESCE(e.model_scope = excluded.model_scope, true) AND COALESCE(e.model_version = excluded.model_version, true)
       AND COALESCE(e.governance_mode = excluded.governance_mode, true)
       AND COALESCE(e.error = excluded.error, true) AND COALESCE(e.started_at = excluded.started_at, true)
       AND COALESCE(e.completed_at = excluded.completed_at, true) AND COALESCE(e.usage_totals = excluded.usage_totals, true)
       AND (e.status <> excluded.status AND excluded.status <> 'running'
            OR num_nulls(e.workflow_id, e.workflow_version, e.spec_id, e.spec_version, e.model_scope, e.model_version, e.governance_mode,
                         e.error, e.started_at, e.completed_at, e.usage_totals)
               > num_nulls(COALESCE(e.workflow_id, excluded.workflow_id), COALESCE(e.workflow_version, excluded.workflow_version),
                           COALESCE(e.spec_id, excluded.spec_id), COALESCE(e.spec_version, excluded.spec_version),
                           COALESCE(e.model_scope, excluded.model_scope), COALESCE(e.model_version, excluded.model_version),
                           COALESCE(e.governance_mode, excluded.governance_mode), COALESCE(e.error, excluded.error),
                           COALESCE(e.started_at, excluded.started_at), COALESCE(e.completed_at, excluded.completed_at),
                           COALESCE(e.usage_totals, excluded.usage_totals)))
    RETURNING e.*";

const READ: &str = "SELECT e.* FROM executions e WHERE e.workspace_id = $1 AND e.id = $2";

/// A session that exists in the workspace, or that the execution names already, is named.
const NAME: &str = "
    INSERT INTO execution_sessions (workspace_id, execution_id, session_id, session_kind)
    SELECT $1, $2, n.id, n.kind FROM unnest($3, $4) AS n (id, kind)
     WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = n.id AND s.workspace_id = $1)
        OR EXISTS (SELECT 1 FROM remote_sessions r WHERE r.id = n.id AND r.workspace_id = $1)
    ON CONFLICT DO NOTHING";

const NAMED: &str = "
    SELECT session_id, recorded_at FROM execution_sessions
     WHERE workspace_id = $1 AND execution_id = $2 ORDER BY recorded_at, session_id LIMIT $3";

impl Db {
    /// Creates an execution, or adds what is new to it. Facts that are known change nothing; a status that was left behind neither.
    /// Everything or nothing is recorded.
    ///
    /// # Errors
    /// Store trouble; nothing was recorded then.
    pub async fn record_execution(
        &self,
        workspace: &WorkspaceId,
        id: &ExecutionId,
        facts: &ExecutionFacts,
        sessions: &[SessionName],
        subject: &str,
    ) -> Result<Recorded, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        if !tx.may_record(workspace).await? {
            return Ok(Recorded::WorkspaceDeleting);
        }
        let changed = tx.record_facts(workspace, id, facts, subject).await?;
        // what exists is raised by every change
        let is_new = changed.as_ref().is_some_and(|row| row.revision == 1);
        let row = match changed {
            Some(row) => row,
            None => tx.execution(workspace, id).await?,
        };
        if let Some(field) = row.facts.contradicts(facts) {
            return Ok(Recorded::Conflict(field));
        }
        match tx.name_sessions(&row, sessions).await? {
            Naming::Unknown(index) => return Ok(Recorded::UnknownSession(index)),
            Naming::Full => return Ok(Recorded::Full),
            Naming::Done => {}
        }
        let row = Box::new(tx.execution(workspace, id).await?);
        tx.commit().await?;
        Ok(if is_new {
            Recorded::New(row)
        } else {
            Recorded::Known(row)
        })
    }

    /// One execution.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn execution(
        &self,
        workspace: &WorkspaceId,
        id: &ExecutionId,
    ) -> Result<Option<ExecutionRow>, StoreError> {
        self.query_opt(
            "execution",
            READ,
            &[text(&workspace.as_str()), text(&id.as_str())],
        )
        .await?
        .as_ref()
        .map(ExecutionRow::read)
        .transpose()
    }

    /// The sessions it names, in the order in which they were named: all of them, as they are bounded.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn execution_sessions(
        &self,
        workspace: &WorkspaceId,
        id: &ExecutionId,
    ) -> Result<Vec<NamedSessionRow>, StoreError> {
        let rows = self
            .query(
                "execution_sessions",
                NAMED,
                &[
                    text(&workspace.as_str()),
                    text(&id.as_str()),
                    int8(&i64::from(limits::EXECUTION_SESSIONS)),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(NamedSessionRow {
                    session: word(row, "session_id")?,
                    recorded_at: get(row, "recorded_at")?,
                })
            })
            .collect()
    }
}

enum Naming {
    Done,
    Full,
    Unknown(usize),
}

impl Tx<'_> {
    /// Whether the workspace takes records. Holds off its deletion until this transaction ends; recorders do not wait for each other.
    pub(super) async fn may_record(&self, workspace: &WorkspaceId) -> Result<bool, StoreError> {
        self.query(
            "may_record",
            "SELECT pg_advisory_xact_lock_shared(hashtextextended('bex_live/' || $1, 0))",
            &[text(&workspace.as_str())],
        )
        .await?;
        Ok(!self.is_being_deleted(workspace).await?)
    }

    async fn record_facts(
        &self,
        workspace: &WorkspaceId,
        id: &ExecutionId,
        facts: &ExecutionFacts,
        subject: &str,
    ) -> Result<Option<ExecutionRow>, StoreError> {
        self.query_opt(
            "record_execution",
            RECORD,
            &[
                text(&workspace.as_str()),
                text(&id.as_str()),
                text(&facts.workflow_id),
                text(&facts.workflow_version),
                text(&facts.spec_id),
                text(&facts.spec_version),
                text(&facts.model_scope),
                text(&facts.model_version),
                text(&facts.governance_mode.map(|mode| mode.as_str())),
                text(&facts.status.as_str()),
                text(&facts.error),
                time(&facts.started_at),
                time(&facts.completed_at),
                text(&facts.usage_totals),
                text(&subject),
            ],
        )
        .await?
        .as_ref()
        .map(ExecutionRow::read)
        .transpose()
    }

    async fn execution(
        &self,
        workspace: &WorkspaceId,
        id: &ExecutionId,
    ) -> Result<ExecutionRow, StoreError> {
        let row = self
            .query_one(
                "execution",
                READ,
                &[text(&workspace.as_str()), text(&id.as_str())],
            )
            .await?;
        ExecutionRow::read(&row)
    }

    async fn name_sessions(
        &self,
        row: &ExecutionRow,
        sessions: &[SessionName],
    ) -> Result<Naming, StoreError> {
        if sessions.is_empty() {
            return Ok(Naming::Done);
        }
        let mut sorted = sessions.to_vec();
        sorted.sort();
        sorted.dedup();
        let ids: Vec<&str> = sorted.iter().map(SessionName::as_str).collect();
        let kinds: Vec<&str> = sorted.iter().map(|name| name.kind().as_str()).collect();
        let workspace = row.workspace.as_str();
        let execution = row.id.as_str();
        let named = self
            .execute(
                "name_sessions",
                NAME,
                &[
                    text(&workspace),
                    text(&execution),
                    texts(&ids),
                    texts(&kinds),
                ],
            )
            .await?;
        let known = self
            .query(
                "name_sessions",
                NAMED,
                &[
                    text(&workspace),
                    text(&execution),
                    int8(&(i64::from(limits::EXECUTION_SESSIONS) + 1)),
                ],
            )
            .await?;
        if known.len() > limits::EXECUTION_SESSIONS as usize {
            return Ok(Naming::Full);
        }
        let known = known
            .iter()
            .map(|row| get::<&str>(row, "session_id"))
            .collect::<Result<std::collections::HashSet<_>, _>>()?;
        if let Some(index) = sessions.iter().position(|s| !known.contains(s.as_str())) {
            return Ok(Naming::Unknown(index));
        }
        if named > 0 {
            self.execute(
                "name_sessions",
                "UPDATE executions SET revision = revision + 1, updated_at = now() WHERE workspace_id = $1 AND id = $2",
                &[text(&workspace), text(&execution)],
            )
            .await?;
        }
        Ok(Naming::Done)
    }
}
