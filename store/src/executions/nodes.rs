//! Nodes of an execution, in the order that their engine gave them.

use bex_proto::execution::NodeStatus;
use bex_proto::{ExecutionId, WorkspaceId, limits};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::pages::Page;
use crate::error::StoreError;
use crate::pool::{Db, Tx};
use crate::sql::{get, int4, int8, large, number, optional_word, text, time, unsigned};

/// What is known of a node; what is absent was not said yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its place among the nodes; at most [`i32::MAX`].
    pub ordinal: u32,
    /// Which agent worked on it.
    pub agent_id: Option<String>,
    /// The version of its configuration; only with the agent.
    pub agent_version: Option<String>,
    /// JSON.
    pub inputs: Option<String>,
    /// JSON.
    pub outputs: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Where it stands.
    pub status: Option<NodeStatus>,
    /// How often it was tried again; only grows.
    pub retries: u32,
    /// A JSON object.
    pub usage: Option<String>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Its id within the execution.
    pub id: String,
    /// What was recorded.
    pub facts: NodeFacts,
    /// Raised with every change.
    pub revision: u64,
    /// When it was recorded first.
    pub recorded_at: Timestamp,
}

/// What became of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeRecorded {
    /// It is new.
    New(Box<NodeRow>),
    /// It has new facts, or none: all of them were known.
    Known(Box<NodeRow>),
    /// It contradicts what was recorded: in this field.
    Conflict(&'static str),
    /// The execution has as many nodes as it may have.
    Full,
    /// The workspace has no such execution.
    NotFound,
}

impl NodeFacts {
    fn contradicts(&self, asked: &Self) -> Option<&'static str> {
        fn differ<T: PartialEq>(known: &Option<T>, asked: &Option<T>) -> bool {
            matches!((known, asked), (Some(known), Some(asked)) if known != asked)
        }
        let over = |status: Option<NodeStatus>| status.is_some_and(|status| status.stage() == 2);
        [
            ("ordinal", self.ordinal != asked.ordinal),
            (
                "status",
                over(self.status) && over(asked.status) && self.status != asked.status,
            ),
            ("agentId", differ(&self.agent_id, &asked.agent_id)),
            (
                "agentVersion",
                differ(&self.agent_version, &asked.agent_version),
            ),
            ("inputs", differ(&self.inputs, &asked.inputs)),
            ("outputs", differ(&self.outputs, &asked.outputs)),
            ("error", differ(&self.error, &asked.error)),
            ("usage", differ(&self.usage, &asked.usage)),
            ("startedAt", differ(&self.started_at, &asked.started_at)),
            (
                "completedAt",
                differ(&self.completed_at, &asked.completed_at),
            ),
        ]
        .into_iter()
        .find_map(|(field, differs)| differs.then_some(field))
    }
}

impl NodeRow {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: get(row, "node_id")?,
            facts: NodeFacts {
                ordinal: unsigned(row, "ordinal")?,
                agent_id: get(row, "agent_id")?,
                agent_version: get(row, "agent_version")?,
                inputs: get(row, "inputs")?,
                outputs: get(row, "outputs")?,
                error: get(row, "error")?,
                status: optional_word(row, "status")?,
                retries: unsigned(row, "retries")?,
                usage: get(row, "usage")?,
                started_at: get(row, "started_at")?,
                completed_at: get(row, "completed_at")?,
            },
            revision: large(row, "revision")?,
            recorded_at: get(row, "recorded_at")?,
        })
    }
}

/// As with an execution: creates, or fills what was not said, moves the status on and lets retries grow.
const RECORD: &str = "
    INSERT INTO execution_nodes AS e (workspace_id, execution_id, node_id, ordinal, agent_id, agent_version, inputs, outputs, error,
                                      status, retries, usage, started_at, completed_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
    ON CONFLICT (workspace_id, execution_id, node_id) DO UPDATE
       SET agent_id = COALESCE(e.agent_id, excluded.agent_id), agent_version = COALESCE(e.agent_version, excluded.agent_version),
           inputs = COALESCE(e.inputs, excluded.inputs), outputs = COALESCE(e.outputs, excluded.outputs),
           error = COALESCE(e.error, excluded.error),
           status = CASE WHEN e.status IS NULL OR e.status = 'pending' THEN COALESCE(excluded.status, e.status)
                         WHEN e.status = 'running' AND excluded.status <> 'pending' THEN excluded.status ELSE e.status END,
           retries = GREATEST(e.retries, excluded.retries), usage = COALESCE(e.usage, excluded.usage),
           started_at = COALESCE(e.started_at, excluded.started_at),
           completed_at = COALESCE(e.completed_at, excluded.completed_at), revision = e.revision + 1
     WHERE e.ordinal = excluded.ordinal
       AND (COALESCE(e.status, 'pending') IN ('pending', 'running')
            OR COALESCE(excluded.status, 'pending') IN ('pending', 'running', e.status))
       AND COALESCE(e.agent_id = excluded.agent_id, true) AND COALESCE(e.agent_version = excluded.agent_version, true)
       AND COALESCE(e.inputs = excluded.inputs, true) AND COALESCE(e.outputs = excluded.outputs, true)
       AND COALESCE(e.error = excluded.error, true) AND COALESCE(e.usage = excluded.usage, true)
       AND COALESCE(e.started_at = excluded.started_at, true) AND COALESCE(e.completed_at = excluded.completed_at, true)
       AND (excluded.retries > e.retries
            OR e.status IS NULL AND excluded.status IS NOT NULL
            OR e.status = 'pending' AND excluded.status <> 'pending'
            OR e.status = 'running' AND excluded.status NOT IN ('pending', 'running')
            OR num_nulls(e.agent_id, e.agent_version, e.inputs, e.outputs, e.error, e.usage, e.started_at, e.completed_at)
               > num_nulls(COALESCE(e.agent_id, excluded.agent_id), COALESCE(e.agent_version, excluded.agent_version),
                           COALESCE(e.inputs, excluded.inputs), COALESCE(e.outputs, excluded.outputs),
                           COALESCE(e.error, excluded.error), COALESCE(e.usage, excluded.usage),
                           COALESCE(e.started_at, excluded.started_at), COALESCE(e.completed_at, excluded.completed_at)))
    RETURNING e.*";

const PAGE: &str = "
    SELECT * FROM (
        SELECT n.*, count(*) OVER () AS found,
               sum(n.bytes) OVER (ORDER BY n.ordinal, n.node_id) - n.bytes AS before
          FROM (SELECT *, COALESCE(octet_length(inputs), 0) + COALESCE(octet_length(outputs), 0)
                          + COALESCE(octet_length(error), 0) + COALESCE(octet_length(usage), 0) AS bytes
                  FROM execution_nodes
                 WHERE workspace_id = $1 AND execution_id = $2 AND ($3 IS NULL OR (ordinal, node_id) > ($3, $4))
                 ORDER BY ordinal, node_id LIMIT $5) n) q
     WHERE q.before < $6 ORDER BY q.ordinal, q.node_id";

impl Db {
    /// Creates a node, or adds what is new to it, also when its execution is over: reports may come late.
    ///
    /// # Errors
    /// Store trouble; nothing was recorded then.
    pub async fn record_node(
        &self,
        workspace: &WorkspaceId,
        execution: &ExecutionId,
        node: &str,
        facts: &NodeFacts,
    ) -> Result<NodeRecorded, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        if !tx.may_record(workspace).await? {
            return Ok(NodeRecorded::NotFound);
        }
        let Some(held) = tx
            .query_opt(
                "record_node",
                "SELECT nodes FROM executions WHERE workspace_id = $1 AND id = $2 FOR NO KEY UPDATE",
                &[text(&workspace.as_str()), text(&execution.as_str())],
            )
            .await?
        else {
            return Ok(NodeRecorded::NotFound);
        };
        let Some(row) = tx
            .record_node_facts(workspace, execution, node, facts)
            .await?
        else {
            let row = tx.node(workspace, execution, node).await?;
            return Ok(match row.facts.contradicts(facts) {
                Some(field) => NodeRecorded::Conflict(field),
                None => NodeRecorded::Known(Box::new(row)),
            });
        };
        // what exists is raised by every change
        let is_new = row.revision == 1;
        if is_new && unsigned(&held, "nodes")? >= limits::EXECUTION_NODES {
            return Ok(NodeRecorded::Full);
        }
        tx.execute(
            "record_node",
            "UPDATE executions SET nodes = nodes + $3, updated_at = now() WHERE workspace_id = $1 AND id = $2",
            &[
                text(&workspace.as_str()),
                text(&execution.as_str()),
                int4(&i32::from(is_new)),
            ],
        )
        .await?;
        tx.commit().await?;
        Ok(if is_new {
            NodeRecorded::New(Box::new(row))
        } else {
            NodeRecorded::Known(Box::new(row))
        })
    }

    /// Nodes behind `after` in order: at most `limit` and about [`limits::RECORD_PAGE_BYTES`], one at least where there is one.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn execution_nodes(
        &self,
        workspace: &WorkspaceId,
        execution: &ExecutionId,
        after: Option<(u32, &str)>,
        limit: u32,
    ) -> Result<Page<NodeRow>, StoreError> {
        let ordinal = after.map(|(ordinal, _)| number(ordinal));
        let node = after.map(|(_, node)| node);
        let bytes = i64::try_from(limits::RECORD_PAGE_BYTES).unwrap_or(i64::MAX);
        let rows = self
            .query(
                "execution_nodes",
                PAGE,
                &[
                    text(&workspace.as_str()),
                    text(&execution.as_str()),
                    int4(&ordinal),
                    text(&node),
                    int8(&(i64::from(limit) + 1)),
                    int8(&bytes),
                ],
            )
            .await?;
        Page::read(&rows, limit, NodeRow::read)
    }
}

impl Tx<'_> {
    async fn record_node_facts(
        &self,
        workspace: &WorkspaceId,
        execution: &ExecutionId,
        node: &str,
        facts: &NodeFacts,
    ) -> Result<Option<NodeRow>, StoreError> {
        self.query_opt(
            "record_node",
            RECORD,
            &[
                text(&workspace.as_str()),
                text(&execution.as_str()),
                text(&node),
                int4(&number(facts.ordinal)),
                text(&facts.agent_id),
                text(&facts.agent_version),
                text(&facts.inputs),
                text(&facts.outputs),
                text(&facts.error),
                text(&facts.status.map(|status| status.as_str())),
                int4(&number(facts.retries)),
                text(&facts.usage),
                time(&facts.started_at),
                time(&facts.completed_at),
            ],
        )
        .await?
        .as_ref()
        .map(NodeRow::read)
        .transpose()
    }

    async fn node(
        &self,
        workspace: &WorkspaceId,
        execution: &ExecutionId,
        node: &str,
    ) -> Result<NodeRow, StoreError> {
        let row = self
            .query_one(
                "record_node",
                "SELECT * FROM execution_nodes WHERE workspace_id = $1 AND execution_id = $2 AND node_id = $3",
                &[
                    text(&workspace.as_str()),
                    text(&execution.as_str()),
                    text(&node),
                ],
            )
            .await?;
        NodeRow::read(&row)
    }
}
