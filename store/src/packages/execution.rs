//! An execution, its nodes, its configurations, the sessions it names.

use bex_proto::execution::{ConfigKind, ExecutionStatus, GovernanceMode, NamedSession, NodeStatus};
use bex_proto::{ExecutionId, WorkspaceId, limits};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::Snapshot;
use crate::error::StoreError;
use crate::sql::{get, int4, int8, optional_word, text, unsigned, word};

/// An execution.
#[derive(Debug, Clone)]
pub struct ExecutionSource {
    /// Whose.
    pub workspace: WorkspaceId,
    /// Which.
    pub id: ExecutionId,
    /// The workflow and the version that ran.
    pub workflow: (Option<String>, Option<String>),
    /// How it was to be executed, likewise.
    pub spec: (Option<String>, Option<String>),
    /// With which models, likewise.
    pub model: (Option<String>, Option<String>),
    /// Whether rules decided.
    pub governance: Option<GovernanceMode>,
    /// Where it stands.
    pub status: ExecutionStatus,
    /// Why it failed.
    pub error: Option<String>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// JSON.
    pub usage_totals: Option<String>,
    /// How many nodes it has.
    pub nodes: u32,
}

/// A node of an execution.
#[derive(Debug, Clone)]
pub struct NodeSource {
    /// Whose.
    pub workspace: WorkspaceId,
    /// Its name.
    pub node_id: String,
    /// Its place.
    pub ordinal: u32,
    /// Who did it, configured how.
    pub agent: (Option<String>, Option<String>),
    /// JSON.
    pub inputs: Option<String>,
    /// JSON.
    pub outputs: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Where it stands.
    pub status: Option<NodeStatus>,
    /// How often it was tried again.
    pub retries: u32,
    /// JSON.
    pub usage: Option<String>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
}

/// A version of a configuration.
#[derive(Debug, Clone)]
pub struct ConfigSource {
    /// Whose.
    pub workspace: WorkspaceId,
    /// Of what.
    pub id: String,
    /// Which.
    pub version: String,
    /// JSON.
    pub body: String,
    /// When it was recorded.
    pub recorded_at: Timestamp,
}

/// A session that an execution names.
#[derive(Debug, Clone)]
pub struct SessionSource {
    /// Whose the naming is.
    pub workspace: WorkspaceId,
    /// Which; it may be gone.
    pub session: String,
    /// Of which kind.
    pub kind: NamedSession,
}

impl ExecutionSource {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            workspace: word(row, "workspace_id")?,
            id: word(row, "id")?,
            workflow: (get(row, "workflow_id")?, get(row, "workflow_version")?),
            spec: (get(row, "spec_id")?, get(row, "spec_version")?),
            model: (get(row, "model_scope")?, get(row, "model_version")?),
            governance: optional_word(row, "governance_mode")?,
            status: word(row, "status")?,
            error: get(row, "error")?,
            started_at: get(row, "started_at")?,
            completed_at: get(row, "completed_at")?,
            usage_totals: get(row, "usage_totals")?,
            nodes: unsigned(row, "nodes")?,
        })
    }
}

impl NodeSource {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            workspace: word(row, "workspace_id")?,
            node_id: get(row, "node_id")?,
            ordinal: unsigned(row, "ordinal")?,
            agent: (get(row, "agent_id")?, get(row, "agent_version")?),
            inputs: get(row, "inputs")?,
            outputs: get(row, "outputs")?,
            error: get(row, "error")?,
            status: optional_word(row, "status")?,
            retries: unsigned(row, "retries")?,
            usage: get(row, "usage")?,
            started_at: get(row, "started_at")?,
            completed_at: get(row, "completed_at")?,
        })
    }
}

/// As many rows as begin within the bytes, one at least.
const NODES: &str = "
    SELECT * FROM (
        SELECT n.*, sum(n.size) OVER (ORDER BY n.ordinal, n.node_id) - n.size AS before
          FROM (SELECT *, octet_length(COALESCE(inputs, '')) + octet_length(COALESCE(outputs, '')) + octet_length(COALESCE(error, '')) AS size
                  FROM execution_nodes WHERE workspace_id = $1 AND execution_id = $2 AND (ordinal, node_id) > ($3, $4)
                 ORDER BY ordinal, node_id LIMIT $5) n) q
     WHERE q.before < $6 ORDER BY q.ordinal, q.node_id";

/// Rows of one page.
const ROWS: i64 = 500;
/// Bytes in which the rows of a page begin.
const BYTES: i64 = 1024 * 1024;

impl Snapshot {
    /// Every workspace's execution of this id: they are different executions.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn executions(&self, id: &ExecutionId) -> Result<Vec<ExecutionSource>, StoreError> {
        let rows = self
            .query(
                "package_executions",
                "SELECT * FROM executions WHERE id = $1 ORDER BY workspace_id",
                &[text(&id.as_str())],
            )
            .await?;
        rows.iter().map(ExecutionSource::read).collect()
    }

    /// Nodes behind a place, in their order.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn nodes(
        &self,
        workspace: &WorkspaceId,
        execution: &ExecutionId,
        after: Option<(u32, &str)>,
    ) -> Result<Vec<NodeSource>, StoreError> {
        let (ordinal, node) = after.unwrap_or((0, ""));
        // nothing stands in front of ordinal 0 and the empty name
        let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let rows = self
            .query(
                "package_nodes",
                NODES,
                &[
                    text(&workspace.as_str()),
                    text(&execution.as_str()),
                    int4(&ordinal),
                    text(&node),
                    int8(&ROWS),
                    int8(&BYTES),
                ],
            )
            .await?;
        rows.iter().map(NodeSource::read).collect()
    }

    /// The agents of an execution's nodes and their versions, each once, in the order of their first nodes.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn node_agents(
        &self,
        workspace: &WorkspaceId,
        execution: &ExecutionId,
    ) -> Result<Vec<(String, Option<String>)>, StoreError> {
        let rows = self
            .query(
                "package_node_agents",
                "SELECT agent_id, agent_version FROM execution_nodes
                  WHERE workspace_id = $1 AND execution_id = $2 AND agent_id IS NOT NULL
                  GROUP BY agent_id, agent_version ORDER BY min(ordinal), agent_id, agent_version",
                &[text(&workspace.as_str()), text(&execution.as_str())],
            )
            .await?;
        rows.iter()
            .map(|row| Ok((get(row, "agent_id")?, get(row, "agent_version")?)))
            .collect()
    }

    /// A version of a configuration.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn config(
        &self,
        workspace: &WorkspaceId,
        kind: ConfigKind,
        id: &str,
        version: &str,
    ) -> Result<Option<ConfigSource>, StoreError> {
        let row = self
            .query_opt(
                "package_config",
                "SELECT * FROM config_versions WHERE workspace_id = $1 AND kind = $2 AND id = $3 AND version = $4",
                &[
                    text(&workspace.as_str()),
                    text(&kind.as_str()),
                    text(&id),
                    text(&version),
                ],
            )
            .await?;
        row.map(|row| {
            Ok(ConfigSource {
                workspace: word(&row, "workspace_id")?,
                id: get(&row, "id")?,
                version: get(&row, "version")?,
                body: get(&row, "body")?,
                recorded_at: get(&row, "recorded_at")?,
            })
        })
        .transpose()
    }

    /// The sessions an execution names, at most [`bex_proto::limits::EXECUTION_SESSIONS`], in the order of their naming.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn named_sessions(
        &self,
        workspace: &WorkspaceId,
        execution: &ExecutionId,
    ) -> Result<Vec<SessionSource>, StoreError> {
        let rows = self
            .query(
                "package_named_sessions",
                "SELECT * FROM execution_sessions WHERE workspace_id = $1 AND execution_id = $2 ORDER BY recorded_at, session_id LIMIT $3",
                &[
                    text(&workspace.as_str()),
                    text(&execution.as_str()),
                    int8(&i64::from(limits::EXECUTION_SESSIONS)),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(SessionSource {
                    workspace: word(row, "workspace_id")?,
                    session: get(row, "session_id")?,
                    kind: word(row, "session_kind")?,
                })
            })
            .collect()
    }
}
