//! Findings: recorded in batches, read in the order in which they were decided.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use bex_proto::transcript::sha256_hex;
use bex_proto::{ExecutionId, RunId, limits, time};
use bex_store::executions::{Finding, FindingRow, FindingsOf, RecordCursor};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::runs::raw;
use super::{batched, only_workspace, recorded};
use crate::auth::{Caller, Role};
use crate::http::extract::{Params, Parsed, Payload};
use crate::http::sessions::workspace;
use crate::http::{Api, ApiError, validate};

/// Findings to record: all of them, or none.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordFindings {
    #[schema(min_items = 1, max_items = 1000)]
    findings: Vec<RecordFinding>,
}

/// One finding. The same again under its id changes nothing.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordFinding {
    #[schema(max_length = 255)]
    finding_id: String,
    #[schema(max_length = 255)]
    workflow_id: Option<String>,
    /// An execution of the workspace.
    execution_id: Option<String>,
    /// Needs `executionId`.
    #[schema(max_length = 255)]
    node_id: Option<String>,
    /// A run that the server gave.
    run_id: Option<String>,
    /// In a word or a few.
    #[schema(max_length = 255)]
    decision: String,
    /// Any JSON; kept as it is.
    #[schema(value_type = Object)]
    body: Box<RawValue>,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

/// One finding.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Finding)]
pub struct FindingView {
    finding_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    execution_id: Option<ExecutionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    run_id: Option<RunId>,
    decision: String,
    #[schema(value_type = Object)]
    body: Box<RawValue>,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    recorded_at: Timestamp,
    recorded_by: String,
}

/// One page of findings, in the order in which they were decided.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingPage {
    items: Vec<FindingView>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl From<FindingRow> for FindingView {
    fn from(row: FindingRow) -> Self {
        let finding = row.finding;
        Self {
            finding_id: finding.id,
            workflow_id: finding.workflow_id,
            execution_id: finding.execution,
            node_id: finding.node_id,
            run_id: finding.run,
            decision: finding.decision,
            body: raw(finding.body),
            at: finding.at,
            recorded_at: row.recorded_at,
            recorded_by: row.recorded_by,
        }
    }
}

/// `POST /v1/findings`
pub async fn record(
    State(api): State<Arc<Api>>,
    caller: Caller,
    params: Params,
    payload: Payload,
) -> Result<Response, ApiError> {
    caller.need(Role::Operator)?;
    let workspace = only_workspace(&caller, params)?;
    let body: Parsed<RecordFindings> = payload.json().await?;
    let asked = body.value.findings;
    batch_size("findings", asked.len())?;
    let findings = asked
        .into_iter()
        .enumerate()
        .map(|(i, asked)| check(&format!("findings[{i}]"), asked))
        .collect::<Result<Vec<_>, _>>()?;
    let batch = api
        .db
        .record_findings(&workspace, &findings, &caller.subject)
        .await?;
    batched("findings", batch)
}

/// A batch is not empty, and bounded.
pub(super) fn batch_size(field: &str, entries: usize) -> Result<(), ApiError> {
    if (1..=limits::RECORD_BATCH).contains(&entries) {
        return Ok(());
    }
    Err(ApiError::invalid(format!(
        "{field} must have 1 to {} entries",
        limits::RECORD_BATCH
    )))
}

/// An id of the wire that may be absent.
pub(super) fn id<T: std::str::FromStr>(
    field: &str,
    text: Option<&String>,
    what: &str,
) -> Result<Option<T>, ApiError> {
    text.map(|text| {
        text.parse()
            .map_err(|_| ApiError::invalid(format!("{field} is not {what}")))
    })
    .transpose()
}

fn check(field: &str, mut asked: RecordFinding) -> Result<Finding, ApiError> {
    let named = |name: &str| format!("{field}.{name}");
    let word = limits::WORD_BYTES;
    validate::text(&named("findingId"), &asked.finding_id, word)?;
    validate::optional(&named("workflowId"), asked.workflow_id.as_deref(), word)?;
    validate::optional(&named("nodeId"), asked.node_id.as_deref(), word)?;
    validate::text(&named("decision"), &asked.decision, word)?;
    let execution_id = named("executionId");
    let execution = id(
        &execution_id,
        asked.execution_id.as_ref(),
        "an execution id",
    )?;
    let run = id(&named("runId"), asked.run_id.as_ref(), "a run id")?;
    recorded::only_with(
        (&named("nodeId"), asked.node_id.is_some()),
        (&execution_id, asked.execution_id.is_some()),
    )?;
    asked.at = recorded::time(&named("at"), asked.at)?;
    // of what was understood, so that another order of fields is the same finding
    let content = serde_json::to_vec(&asked).expect("plain data always serialises");
    let body = recorded::json(&named("body"), Some(asked.body))?;
    Ok(Finding {
        id: asked.finding_id,
        workflow_id: asked.workflow_id,
        execution,
        node_id: asked.node_id,
        run,
        decision: asked.decision,
        body: body.unwrap_or_else(|| "null".to_owned()),
        at: asked.at,
        sha256: sha256_hex(&content),
    })
}

/// `GET /v1/findings`
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    mut params: Params,
) -> Result<Json<FindingPage>, ApiError> {
    let workspace = workspace(&caller, params.read("workspaceId", "a workspace id")?)?;
    let execution = params.read("executionId", "an execution id")?;
    let workflow = params.one("workflowId")?;
    let run = params.read("runId", "a run id")?;
    let limit = params.limit(limits::LIST_DEFAULT, limits::LIST_LIMIT)?;
    let cursor = params.one("cursor")?;
    params.done()?;
    validate::optional("workflowId", workflow.as_deref(), limits::WORD_BYTES)?;
    let of = match (execution, workflow, run) {
        (None, None, None) => FindingsOf::Workspace,
        (Some(execution), None, None) => {
            api.execution_of(&workspace, &execution).await?;
            FindingsOf::Execution(execution)
        }
        (None, Some(workflow), None) => FindingsOf::Workflow(workflow),
        (None, None, Some(run)) => FindingsOf::Run(run),
        _ => {
            return Err(ApiError::invalid(
                "one of executionId, workflowId and runId may stand",
            ));
        }
    };
    let place = cursor.as_deref().map(recorded::read_time_cursor);
    let after = place.transpose()?.map(|(at, id)| RecordCursor { at, id });
    let page = api
        .db
        .findings(&workspace, &of, after.as_ref(), limit)
        .await?;
    let last = page.items.last().filter(|_| page.more);
    let next_cursor = last.map(|row| recorded::time_cursor(row.finding.at, &row.finding.id));
    Ok(Json(FindingPage {
        items: page.items.into_iter().map(FindingView::from).collect(),
        next_cursor,
    }))
}
