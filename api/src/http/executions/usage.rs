//! The usage ledger: recorded in batches, read in the order of time.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use bex_proto::transcript::sha256_hex;
use bex_proto::{ExecutionId, RunId, limits, time};
use bex_store::executions::{RecordCursor, SessionName, UsageEntry, UsageOf, UsageRow};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::findings::{batch_size, id};
use super::{batched, only_workspace, recorded};
use crate::auth::{Caller, Role};
use crate::http::extract::{Params, Parsed, Payload};
use crate::http::sessions::workspace;
use crate::http::{Api, ApiError, validate};

/// Digits of a cost before and after its point.
const COST_DIGITS: usize = 12;
/// A currency's letters.
const CURRENCY_LETTERS: usize = 3;

/// Entries to record: all of them, or none.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordUsage {
    #[schema(min_items = 1, max_items = 1000)]
    entries: Vec<RecordUsageEntry>,
}

/// One entry. The same again under its id counts once.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordUsageEntry {
    #[schema(max_length = 255)]
    entry_id: String,
    /// An execution of the workspace.
    execution_id: Option<String>,
    /// A session of the workspace, `ags-…` or `rms-…`.
    session_id: Option<String>,
    /// Needs `executionId`.
    #[schema(max_length = 255)]
    node_id: Option<String>,
    /// A run that the server gave.
    run_id: Option<String>,
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    /// Input and output where it is absent.
    total_tokens: Option<u64>,
    #[serde(default)]
    calls: u64,
    cost: Option<Cost>,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

/// A cost.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cost {
    /// A decimal number of at most 12 digits before and after the point, e.g. `0.0042`.
    amount: String,
    /// Three capital letters, e.g. `EUR`.
    currency: String,
}

/// One entry.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UsageEntry)]
pub struct UsageView {
    entry_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    execution_id: Option<ExecutionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    run_id: Option<RunId>,
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    calls: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    recorded_at: Timestamp,
    recorded_by: String,
}

/// One page of entries, in the order of time.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsagePage {
    items: Vec<UsageView>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl From<UsageRow> for UsageView {
    fn from(row: UsageRow) -> Self {
        let entry = row.entry;
        Self {
            entry_id: entry.id,
            execution_id: entry.execution,
            session_id: entry.session.map(|session| session.as_str().to_owned()),
            node_id: entry.node_id,
            run_id: entry.run,
            input_tokens: entry.input_tokens,
            output_tokens: entry.output_tokens,
            total_tokens: entry.total_tokens,
            calls: entry.calls,
            cost: entry
                .cost
                .map(|(amount, currency)| Cost { amount, currency }),
            at: entry.at,
            recorded_at: row.recorded_at,
            recorded_by: row.recorded_by,
        }
    }
}

/// `POST /v1/usage`
pub async fn record(
    State(api): State<Arc<Api>>,
    caller: Caller,
    params: Params,
    payload: Payload,
) -> Result<Response, ApiError> {
    caller.need(Role::Operator)?;
    let workspace = only_workspace(&caller, params)?;
    let body: Parsed<RecordUsage> = payload.json().await?;
    let asked = body.value.entries;
    batch_size("entries", asked.len())?;
    let entries = asked
        .into_iter()
        .enumerate()
        .map(|(i, asked)| check(&format!("entries[{i}]"), asked))
        .collect::<Result<Vec<_>, _>>()?;
    let batch = api
        .db
        .record_usage(&workspace, &entries, &caller.subject)
        .await?;
    batched("entries", batch)
}

fn check(field: &str, mut asked: RecordUsageEntry) -> Result<UsageEntry, ApiError> {
    let named = |name: &str| format!("{field}.{name}");
    validate::text(&named("entryId"), &asked.entry_id, limits::WORD_BYTES)?;
    validate::optional(
        &named("nodeId"),
        asked.node_id.as_deref(),
        limits::WORD_BYTES,
    )?;
    let execution_id = named("executionId");
    let execution = id(
        &execution_id,
        asked.execution_id.as_ref(),
        "an execution id",
    )?;
    let session = id(
        &named("sessionId"),
        asked.session_id.as_ref(),
        "a session id",
    )?;
    let run = id(&named("runId"), asked.run_id.as_ref(), "a run id")?;
    recorded::only_with(
        (&named("nodeId"), asked.node_id.is_some()),
        (&execution_id, asked.execution_id.is_some()),
    )?;
    let sum = asked.input_tokens.saturating_add(asked.output_tokens);
    let total = *asked.total_tokens.get_or_insert(sum);
    for (name, value) in [
        ("inputTokens", asked.input_tokens),
        ("outputTokens", asked.output_tokens),
        ("totalTokens", total),
        ("calls", asked.calls),
    ] {
        recorded::count(&named(name), value)?;
    }
    if let Some(cost) = &asked.cost {
        check_cost(&named("cost"), cost)?;
    }
    asked.at = recorded::time(&named("at"), asked.at)?;
    // of what was understood, so that another order of fields is the same entry
    let content = serde_json::to_vec(&asked).expect("plain data always serialises");
    Ok(UsageEntry {
        id: asked.entry_id,
        execution,
        session,
        node_id: asked.node_id,
        run,
        input_tokens: asked.input_tokens,
        output_tokens: asked.output_tokens,
        total_tokens: total,
        calls: asked.calls,
        cost: asked.cost.map(|cost| (cost.amount, cost.currency)),
        at: asked.at,
        sha256: sha256_hex(&content),
    })
}

fn check_cost(field: &str, cost: &Cost) -> Result<(), ApiError> {
    let digits = |text: &str| {
        (1..=COST_DIGITS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    let decimal = match cost.amount.split_once('.') {
        None => digits(&cost.amount),
        Some((whole, fraction)) => digits(whole) && digits(fraction),
    };
    if !decimal {
        return Err(ApiError::invalid(format!(
            "{field}.amount must be a decimal number of at most {COST_DIGITS} digits before and after the point"
        )));
    }
    let letters = cost.currency.bytes().all(|b| b.is_ascii_uppercase());
    if !letters || cost.currency.len() != CURRENCY_LETTERS {
        return Err(ApiError::invalid(format!(
            "{field}.currency must be three capital letters"
        )));
    }
    Ok(())
}

/// `GET /v1/usage`
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    mut params: Params,
) -> Result<Json<UsagePage>, ApiError> {
    let workspace = workspace(&caller, params.read("workspaceId", "a workspace id")?)?;
    let execution = params.read("executionId", "an execution id")?;
    let session: Option<SessionName> = params.read("sessionId", "a session id")?;
    let run = params.read("runId", "a run id")?;
    let limit = params.limit(limits::LIST_DEFAULT, limits::LIST_LIMIT)?;
    let cursor = params.one("cursor")?;
    params.done()?;
    let of = match (execution, session, run) {
        (None, None, None) => UsageOf::Workspace,
        (Some(execution), None, None) => {
            api.execution_of(&workspace, &execution).await?;
            UsageOf::Execution(execution)
        }
        (None, Some(session), None) => UsageOf::Session(session),
        (None, None, Some(run)) => UsageOf::Run(run),
        _ => {
            return Err(ApiError::invalid(
                "one of executionId, sessionId and runId may stand",
            ));
        }
    };
    let place = cursor.as_deref().map(recorded::read_time_cursor);
    let after = place.transpose()?.map(|(at, id)| RecordCursor { at, id });
    let page = api.db.usage(&workspace, &of, after.as_ref(), limit).await?;
    let last = page.items.last().filter(|_| page.more);
    let next_cursor = last.map(|row| recorded::time_cursor(row.entry.at, &row.entry.id));
    Ok(Json(UsagePage {
        items: page.items.into_iter().map(UsageView::from).collect(),
        next_cursor,
    }))
}
