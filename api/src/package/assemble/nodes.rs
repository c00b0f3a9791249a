//! The nodes of an execution.

use bex_proto::execution::NodeStatus;
use bex_proto::time;
use bex_store::packages::{ExecutionSource, NodeSource};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Assembly, foreign};
use crate::package::PackageFault;
use crate::package::document::optional_json;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeView {
    node_id: String,
    inputs: Option<Box<RawValue>>,
    outputs: Option<Box<RawValue>>,
    error: Option<String>,
    status: Option<NodeStatus>,
    retries: u32,
    usage: Option<Box<RawValue>>,
    agent_id: Option<String>,
    agent_version: Option<String>,
    started_at: Option<String>,
    completed_at: Option<String>,
}

impl From<NodeSource> for NodeView {
    fn from(row: NodeSource) -> Self {
        Self {
            node_id: row.node_id,
            inputs: optional_json(row.inputs),
            outputs: optional_json(row.outputs),
            error: row.error,
            status: row.status,
            retries: row.retries,
            usage: optional_json(row.usage),
            agent_id: row.agent.0,
            agent_version: row.agent.1,
            started_at: row.started_at.map(time::format),
            completed_at: row.completed_at.map(time::format),
        }
    }
}

impl Assembly<'_> {
    /// Writes all of them; as many as the execution counts, or something is wrong with whose they are.
    pub(super) async fn nodes(&mut self, execution: &ExecutionSource) -> Result<(), PackageFault> {
        self.document.array("nodes").await?;
        let (mut last, mut count): (Option<(u32, String)>, u32) = (None, 0);
        loop {
            let after = last.as_ref().map(|(n, id)| (*n, id.as_str()));
            let page = self
                .snapshot
                .nodes(self.workspace, &execution.id, after)
                .await?;
            let Some(end) = page.last() else { break };
            last = Some((end.ordinal, end.node_id.clone()));
            for row in &page {
                self.own("execution_nodes", &row.workspace)?;
                count += 1;
            }
            let views: Vec<NodeView> = page.into_iter().map(NodeView::from).collect();
            self.document.items(views).await?;
        }
        if count != execution.nodes {
            return Err(foreign("execution_nodes"));
        }
        self.document.end_array().await
    }
}
