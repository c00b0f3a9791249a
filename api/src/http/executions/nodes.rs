//! Nodes of an execution.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::execution::NodeStatus;
use bex_proto::problem::Code;
use bex_proto::{limits, time};
use bex_store::executions::{NodeFacts, NodeRecorded, NodeRow};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::runs::raw;
use super::{Novelty, conflict, execution_id, only_workspace, recorded};
use crate::auth::{Caller, Role};
use crate::http::extract::{Params, Parsed, Payload, Segments};
use crate::http::sessions::workspace;
use crate::http::{Api, ApiError, validate};

/// What is known of a node. What is absent is not said yet; what was said stays.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordNode {
    /// Its place among the nodes.
    #[schema(maximum = 2147483647)]
    ordinal: u32,
    #[schema(max_length = 255)]
    agent_id: Option<String>,
    /// The version of its configuration that ran; needs `agentId`.
    #[schema(max_length = 255)]
    agent_version: Option<String>,
    /// Any JSON; kept as it is.
    #[schema(value_type = Option<Object>)]
    inputs: Option<Box<RawValue>>,
    /// Any JSON; kept as it is.
    #[schema(value_type = Option<Object>)]
    outputs: Option<Box<RawValue>>,
    /// Why it failed; at most 64 KiB.
    error: Option<String>,
    /// Moves forward only; one that was left behind changes nothing.
    #[schema(value_type = Option<String>)]
    status: Option<NodeStatus>,
    /// How often it was tried again; only grows.
    #[serde(default)]
    #[schema(maximum = 2147483647)]
    retries: u32,
    /// At most 16 KiB; kept as it is.
    #[schema(value_type = Option<Object>)]
    usage: Option<Box<RawValue>>,
    #[serde(default, with = "time::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Timestamp>,
    #[serde(default, with = "time::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    completed_at: Option<Timestamp>,
}

/// One node.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ExecutionNode)]
pub struct NodeView {
    node_id: String,
    ordinal: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    inputs: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    outputs: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    status: Option<NodeStatus>,
    retries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    usage: Option<Box<RawValue>>,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Timestamp>,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    completed_at: Option<Timestamp>,
    /// Raised with every change.
    revision: u64,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    recorded_at: Timestamp,
}

/// One page of nodes, in their order.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePage {
    items: Vec<NodeView>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl From<NodeRow> for NodeView {
    fn from(row: NodeRow) -> Self {
        let facts = row.facts;
        Self {
            node_id: row.id,
            ordinal: facts.ordinal,
            agent_id: facts.agent_id,
            agent_version: facts.agent_version,
            inputs: facts.inputs.map(raw),
            outputs: facts.outputs.map(raw),
            error: facts.error,
            status: facts.status,
            retries: facts.retries,
            usage: facts.usage.map(raw),
            started_at: facts.started_at,
            completed_at: facts.completed_at,
            revision: row.revision,
            recorded_at: row.recorded_at,
        }
    }
}

/// `PUT /v1/executions/{id}/nodes/{nodeId}`
pub async fn record(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments((id, node)): Segments<(String, String)>,
    params: Params,
    payload: Payload,
) -> Result<Response, ApiError> {
    caller.need(Role::Operator)?;
    let id = execution_id(&id)?;
    let workspace = only_workspace(&caller, params)?;
    api.execution_of(&workspace, &id).await?;
    let body: Parsed<RecordNode> = payload.json().await?;
    validate::text("the node's id", &node, limits::WORD_BYTES)?;
    let facts = check(body.value)?;
    let recorded = api.db.record_node(&workspace, &id, &node, &facts).await?;
    let (novelty, row) = match recorded {
        NodeRecorded::New(row) => (Novelty::New, row),
        NodeRecorded::Known(row) => (Novelty::Known, row),
        NodeRecorded::Conflict(field) => return Err(conflict(field)),
        NodeRecorded::Full => {
            return Err(ApiError::from(Code::ExecutionFull).with("limit", limits::EXECUTION_NODES));
        }
        NodeRecorded::NotFound => return Err(Code::NotFound.into()),
    };
    Ok((novelty.status(), Json(NodeView::from(*row))).into_response())
}

fn check(asked: RecordNode) -> Result<NodeFacts, ApiError> {
    let most = i32::MAX.unsigned_abs();
    for (field, value) in [("ordinal", asked.ordinal), ("retries", asked.retries)] {
        if value > most {
            return Err(ApiError::invalid(format!("{field} must be at most {most}")));
        }
    }
    validate::optional("agentId", asked.agent_id.as_deref(), limits::WORD_BYTES)?;
    validate::optional(
        "agentVersion",
        asked.agent_version.as_deref(),
        limits::WORD_BYTES,
    )?;
    recorded::only_with(
        ("agentVersion", asked.agent_version.is_some()),
        ("agentId", asked.agent_id.is_some()),
    )?;
    validate::optional("error", asked.error.as_deref(), limits::RECORD_ERROR_BYTES)?;
    Ok(NodeFacts {
        ordinal: asked.ordinal,
        agent_id: asked.agent_id,
        agent_version: asked.agent_version,
        inputs: recorded::json("inputs", asked.inputs)?,
        outputs: recorded::json("outputs", asked.outputs)?,
        error: asked.error,
        status: asked.status,
        retries: asked.retries,
        usage: recorded::object("usage", asked.usage, limits::RECORD_USAGE_BYTES)?,
        started_at: recorded::optional_time("startedAt", asked.started_at)?,
        completed_at: recorded::optional_time("completedAt", asked.completed_at)?,
    })
}

/// `GET /v1/executions/{id}/nodes`
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    mut params: Params,
) -> Result<Json<NodePage>, ApiError> {
    let id = execution_id(&id)?;
    let workspace = workspace(&caller, params.read("workspaceId", "a workspace id")?)?;
    let limit = params.limit(limits::LIST_DEFAULT, limits::LIST_LIMIT)?;
    let cursor = params.one("cursor")?;
    params.done()?;
    api.execution_of(&workspace, &id).await?;
    let place = cursor.as_deref().map(recorded::read_cursor).transpose()?;
    let place = place.map(|(ordinal, node)| {
        let ordinal = u32::try_from(ordinal).map_err(|_| ApiError::from(Code::InvalidCursor))?;
        Ok::<_, ApiError>((ordinal, node))
    });
    let place = place.transpose()?;
    let after = place
        .as_ref()
        .map(|(ordinal, node)| (*ordinal, node.as_str()));
    let page = api
        .db
        .execution_nodes(&workspace, &id, after, limit)
        .await?;
    let last = page.items.last().filter(|_| page.more);
    let next_cursor = last.map(|last| recorded::cursor(i64::from(last.facts.ordinal), &last.id));
    Ok(Json(NodePage {
        items: page.items.into_iter().map(NodeView::from).collect(),
        next_cursor,
    }))
}
