//! Executions themselves: recorded, listed, read with their sections, deleted.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::execution::{ConfigKind, ExecutionStatus, GovernanceMode, NamedSession};
use bex_proto::package::UsageTotals;
use bex_proto::problem::Code;
use bex_proto::{limits, time};
use bex_store::executions::{
    ConfigKey, ExecutionCursor, ExecutionFacts, ExecutionFilter, ExecutionRow, LedgerTotals,
    NamedSessionRow, Recorded, Removed, SessionName,
};
use bex_store::retention::Removal;
use http::{StatusCode, header};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::versions::VersionView;
use super::{Novelty, conflict, execution_id, only_workspace, recorded};
use crate::auth::{Caller, Role};
use crate::http::extract::{Params, Parsed, Payload, Segments};
use crate::http::sessions::{cursor, workspace};
use crate::http::{Api, ApiError, validate};
use crate::openapi::words;

/// What is known of an execution. What is absent is not said yet; what was said stays.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordExecution {
    /// Moves forward only; one that was left behind changes nothing.
    #[schema(schema_with = words::<ExecutionStatus>)]
    status: ExecutionStatus,
    #[schema(max_length = 255)]
    workflow_id: Option<String>,
    /// The version that runs; needs `workflowId`.
    #[schema(max_length = 255)]
    workflow_version: Option<String>,
    #[schema(max_length = 255)]
    spec_id: Option<String>,
    /// Needs `specId`.
    #[schema(max_length = 255)]
    spec_version: Option<String>,
    #[schema(max_length = 255)]
    model_scope: Option<String>,
    /// Needs `modelScope`.
    #[schema(max_length = 255)]
    model_version: Option<String>,
    #[schema(value_type = Option<String>)]
    governance_mode: Option<GovernanceMode>,
    /// Why it failed; at most 64 KiB.
    error: Option<String>,
    #[serde(default, with = "time::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Timestamp>,
    /// Needs a status that is terminal.
    #[serde(default, with = "time::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    completed_at: Option<Timestamp>,
    /// `inputTokens`, `outputTokens`, `totalTokens` and `callCount`, and what else there is; at most 16 KiB, kept as it is.
    #[schema(value_type = Option<Object>)]
    usage_totals: Option<Box<RawValue>>,
    /// Sessions of the workspace that it used, `ags-…` or `rms-…`: they are added to those that were named before.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 1000)]
    sessions: Vec<String>,
}

/// One execution.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Execution)]
pub struct ExecutionView {
    id: String,
    workspace_id: String,
    #[schema(schema_with = words::<ExecutionStatus>)]
    status: ExecutionStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    governance_mode: Option<GovernanceMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Timestamp>,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    completed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    usage_totals: Option<Box<RawValue>>,
    /// How many nodes were recorded.
    nodes: u32,
    /// Raised with every change of what stands here.
    revision: u64,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    recorded_at: Timestamp,
    recorded_by: String,
    /// The last change of it or a node.
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// One execution with what was recorded beside it, except its nodes, findings and usage entries, which have pages.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionDetail {
    #[serde(flatten)]
    execution: ExecutionView,
    /// Those it used, in the order in which they were named.
    sessions: Vec<SessionLink>,
    /// The version that ran; null where none was named, or it was not recorded.
    #[schema(required = true)]
    workflow: Option<VersionView>,
    #[schema(required = true)]
    exec_spec: Option<VersionView>,
    #[schema(required = true)]
    model_config: Option<VersionView>,
    /// The sum of its usage entries.
    ledger: LedgerView,
}

/// A session that an execution used.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionLink {
    /// It may be deleted by now.
    session_id: String,
    #[schema(schema_with = words::<NamedSession>)]
    kind: NamedSession,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    recorded_at: Timestamp,
}

/// A sum of usage entries.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Ledger)]
pub struct LedgerView {
    entries: u64,
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    calls: u64,
}

/// One page of executions, newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionPage {
    items: Vec<ExecutionView>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Stored JSON as it is; what is no JSON, which nobody stores, is shown as null.
pub(super) fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text)
        .unwrap_or_else(|_| RawValue::from_string("null".to_owned()).expect("null is JSON"))
}

impl From<ExecutionRow> for ExecutionView {
    fn from(row: ExecutionRow) -> Self {
        let facts = row.facts;
        Self {
            id: row.id.to_string(),
            workspace_id: row.workspace.to_string(),
            status: facts.status,
            workflow_id: facts.workflow_id,
            workflow_version: facts.workflow_version,
            spec_id: facts.spec_id,
            spec_version: facts.spec_version,
            model_scope: facts.model_scope,
            model_version: facts.model_version,
            governance_mode: facts.governance_mode,
            error: facts.error,
            started_at: facts.started_at,
            completed_at: facts.completed_at,
            usage_totals: facts.usage_totals.map(raw),
            nodes: row.nodes,
            revision: row.revision,
            recorded_at: row.recorded_at,
            recorded_by: row.recorded_by,
            updated_at: row.updated_at,
        }
    }
}

impl From<NamedSessionRow> for SessionLink {
    fn from(row: NamedSessionRow) -> Self {
        Self {
            session_id: row.session.as_str().to_owned(),
            kind: row.session.kind(),
            recorded_at: row.recorded_at,
        }
    }
}

impl From<LedgerTotals> for LedgerView {
    fn from(totals: LedgerTotals) -> Self {
        Self {
            entries: totals.entries,
            input_tokens: totals.input_tokens,
            output_tokens: totals.output_tokens,
            total_tokens: totals.total_tokens,
            calls: totals.calls,
        }
    }
}

/// `PUT /v1/executions/{id}`
pub async fn record(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    params: Params,
    payload: Payload,
) -> Result<Response, ApiError> {
    caller.need(Role::Operator)?;
    let id = execution_id(&id)?;
    let workspace = only_workspace(&caller, params)?;
    let body: Parsed<RecordExecution> = payload.json().await?;
    let (facts, sessions) = check(body.value)?;
    let recorded = api
        .db
        .record_execution(&workspace, &id, &facts, &sessions, &caller.subject)
        .await?;
    let (novelty, row) = match recorded {
        Recorded::New(row) => (Novelty::New, row),
        Recorded::Known(row) => (Novelty::Known, row),
        Recorded::Conflict(field) => return Err(conflict(field)),
        Recorded::Full => {
            return Err(
                ApiError::from(Code::ExecutionFull).with("limit", limits::EXECUTION_SESSIONS)
            );
        }
        Recorded::UnknownSession(index) => {
            return Err(ApiError::from(Code::NotFound)
                .detail(format!("sessions[{index}] is not there"))
                .with("index", index));
        }
        Recorded::WorkspaceDeleting => return Err(Code::NotFound.into()),
    };
    let location = format!("/v1/executions/{id}");
    let view = Json(ExecutionView::from(*row));
    Ok((novelty.status(), [(header::LOCATION, location)], view).into_response())
}

fn check(asked: RecordExecution) -> Result<(ExecutionFacts, Vec<SessionName>), ApiError> {
    for (field, value) in [
        ("workflowId", &asked.workflow_id),
        ("workflowVersion", &asked.workflow_version),
        ("specId", &asked.spec_id),
        ("specVersion", &asked.spec_version),
        ("modelScope", &asked.model_scope),
        ("modelVersion", &asked.model_version),
    ] {
        validate::optional(field, value.as_deref(), limits::WORD_BYTES)?;
    }
    for (field, version, other, id) in [
        (
            "workflowVersion",
            &asked.workflow_version,
            "workflowId",
            &asked.workflow_id,
        ),
        ("specVersion", &asked.spec_version, "specId", &asked.spec_id),
        (
            "modelVersion",
            &asked.model_version,
            "modelScope",
            &asked.model_scope,
        ),
    ] {
        recorded::only_with((field, version.is_some()), (other, id.is_some()))?;
    }
    recorded::only_with(
        ("completedAt", asked.completed_at.is_some()),
        ("a status that is terminal", asked.status.is_terminal()),
    )?;
    validate::optional("error", asked.error.as_deref(), limits::RECORD_ERROR_BYTES)?;
    if asked.sessions.len() > limits::EXECUTION_SESSIONS as usize {
        return Err(ApiError::invalid(format!(
            "sessions may have at most {} entries",
            limits::EXECUTION_SESSIONS
        )));
    }
    let session = |(i, text): (usize, &String)| {
        text.parse()
            .map_err(|_| ApiError::invalid(format!("sessions[{i}] is not a session id")))
    };
    let sessions = asked
        .sessions
        .iter()
        .enumerate()
        .map(session)
        .collect::<Result<_, _>>()?;
    let facts = ExecutionFacts {
        status: asked.status,
        workflow_id: asked.workflow_id,
        workflow_version: asked.workflow_version,
        spec_id: asked.spec_id,
        spec_version: asked.spec_version,
        model_scope: asked.model_scope,
        model_version: asked.model_version,
        governance_mode: asked.governance_mode,
        error: asked.error,
        started_at: recorded::optional_time("startedAt", asked.started_at)?,
        completed_at: recorded::optional_time("completedAt", asked.completed_at)?,
        usage_totals: usage_totals(asked.usage_totals)?,
    };
    Ok((facts, sessions))
}

/// Totals as packages promise them; what else is told beside them is kept.
fn usage_totals(asked: Option<Box<RawValue>>) -> Result<Option<String>, ApiError> {
    let told = recorded::object("usageTotals", asked, limits::RECORD_USAGE_BYTES)?;
    match &told {
        Some(text) if serde_json::from_str::<UsageTotals>(text).is_err() => Err(ApiError::invalid(
            "usageTotals must have inputTokens, outputTokens, totalTokens and callCount, whole numbers that are not negative",
        )),
        _ => Ok(told),
    }
}

/// `GET /v1/executions`
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    mut params: Params,
) -> Result<Json<ExecutionPage>, ApiError> {
    let workspace = workspace(&caller, params.read("workspaceId", "a workspace id")?)?;
    let statuses: Result<Vec<ExecutionStatus>, _> = params
        .all("status")
        .iter()
        .map(|word| word.parse())
        .collect();
    let cursor_text = params.one("cursor")?;
    let place = cursor_text.as_deref().map(cursor::parse_any).transpose()?;
    let filter = ExecutionFilter {
        statuses: statuses.map_err(|_| ApiError::invalid("status must be a status"))?,
        workflow_id: params.one("workflowId")?,
        recorded_before: params.read("recordedBefore", "an ISO-8601 time")?,
        recorded_after: params.read("recordedAfter", "an ISO-8601 time")?,
        cursor: place.map(|(recorded_at, id)| ExecutionCursor { recorded_at, id }),
        limit: params.limit(limits::LIST_DEFAULT, limits::LIST_LIMIT)?,
    };
    params.done()?;
    validate::optional(
        "workflowId",
        filter.workflow_id.as_deref(),
        limits::WORD_BYTES,
    )?;
    let page = api.db.list_executions(&workspace, &filter).await?;
    let last = page.items.last().filter(|_| page.more);
    let next_cursor = last.map(|last| cursor::format_any(last.recorded_at, &last.id));
    Ok(Json(ExecutionPage {
        items: page.items.into_iter().map(ExecutionView::from).collect(),
        next_cursor,
    }))
}

/// `GET /v1/executions/{id}`
pub async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    params: Params,
) -> Result<Json<ExecutionDetail>, ApiError> {
    let id = execution_id(&id)?;
    let workspace = only_workspace(&caller, params)?;
    let row = api.execution_of(&workspace, &id).await?;
    let section = async |kind: ConfigKind, id: &Option<String>, version: &Option<String>| {
        let (Some(id), Some(version)) = (id, version) else {
            return Ok(None);
        };
        let key = ConfigKey {
            kind,
            id: id.clone(),
        };
        let found = api.db.config_version(&workspace, &key, version).await?;
        Ok::<_, ApiError>(found.map(VersionView::from))
    };
    let facts = &row.facts;
    let workflow = section(
        ConfigKind::Workflow,
        &facts.workflow_id,
        &facts.workflow_version,
    );
    let workflow = workflow.await?;
    let exec_spec = section(ConfigKind::ExecSpec, &facts.spec_id, &facts.spec_version).await?;
    let model_config = section(
        ConfigKind::ModelConfig,
        &facts.model_scope,
        &facts.model_version,
    );
    let model_config = model_config.await?;
    let sessions = api.db.execution_sessions(&workspace, &id).await?;
    let ledger = api.db.usage_totals(&workspace, &id).await?.into();
    Ok(Json(ExecutionDetail {
        execution: row.into(),
        sessions: sessions.into_iter().map(SessionLink::from).collect(),
        workflow,
        exec_spec,
        model_config,
        ledger,
    }))
}

/// `DELETE /v1/executions/{id}`: with its nodes, findings and usage. Versions go by retention.
pub async fn delete(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    params: Params,
) -> Result<StatusCode, ApiError> {
    caller.need(Role::Admin)?;
    let id = execution_id(&id)?;
    let workspace = only_workspace(&caller, params)?;
    let removal = Removal {
        subject: &caller.subject,
        action: "execution.delete",
        quiet_days: None,
    };
    match api.db.remove_execution(&workspace, &id, removal).await? {
        Removed::Removed => Ok(StatusCode::NO_CONTENT),
        Removed::LegalHold => Err(Code::LegalHold.into()),
        Removed::Young | Removed::NotFound => Err(Code::NotFound.into()),
    }
}
