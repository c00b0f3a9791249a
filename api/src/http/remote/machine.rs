//! What a machine asks with its token: heartbeats, commands, and what it says of its sessions.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use bex_proto::problem::Code;
use bex_proto::remote::{Answer, CommandKind, RemoteState};
use bex_proto::transcript::sha256_hex;
use bex_proto::{Chain, CommandId, RemoteSessionId, limits, time};
use bex_store::remote::{
    CommandState, Ending, MachineRow, Moved, RemoteSessionRow, Reported, UsageReport,
};
use bex_store::wake::Channel;
use http::request::Parts;
use http::{StatusCode, header};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;

use crate::auth::bearer;
use crate::http::extract::{Params, Parsed, Payload, Segments};
use crate::http::{Api, ApiError, validate};

/// Commands of one answer.
const COMMANDS: u32 = 50;

/// A machine that calls.
pub struct Machine {
    /// Its row.
    pub row: MachineRow,
}

impl Machine {
    /// In audit rows.
    pub fn subject(&self) -> String {
        format!("machine:{}", self.row.id)
    }
}

impl FromRequestParts<Arc<Api>> for Machine {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let header = parts.headers.get(header::AUTHORIZATION);
        let token = header
            .and_then(|value| bearer(value.as_bytes()))
            .ok_or(Code::Unauthenticated)?;
        let row = api.db.machine_of_token(&sha256_hex(token)).await?;
        let row = row.ok_or(Code::Unauthenticated)?;
        if let Err(error) = api.db.machine_seen(&row.id, None).await {
            tracing::debug!(error = %Chain(&error), machine = %row.id, "a machine's call was not noted");
        }
        Ok(Self { row })
    }
}

/// What a machine says of itself.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Heartbeat {
    /// Shown to people: versions, load, whatever helps them. At most 16 KiB.
    #[schema(value_type = Option<Object>)]
    detail: Option<Box<RawValue>>,
}

/// `POST /v1/machine/heartbeat`
pub async fn heartbeat(
    State(api): State<Arc<Api>>,
    machine: Machine,
    payload: Payload,
) -> Result<StatusCode, ApiError> {
    let body: Parsed<Heartbeat> = payload.json().await?;
    api.is_still(&machine).await?;
    let detail = body.value.detail;
    let detail = detail.as_ref().map(|detail| detail.get());
    if let Some(detail) = detail {
        validate::text("detail", detail, limits::MACHINE_DETAIL_BYTES)?;
        if detail.contains("\\u0000") {
            return Err(ApiError::invalid("detail must not have a NUL character"));
        }
    }
    api.db.machine_seen(&machine.row.id, detail).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Commands that wait for a machine.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandPage {
    commands: Vec<CommandView>,
}

/// A command. It comes until it is answered, always with the same id.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = MachineCommand)]
pub struct CommandView {
    id: String,
    session_id: String,
    #[schema(value_type = String)]
    kind: CommandKind,
    #[schema(value_type = Object)]
    payload: Box<RawValue>,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// `GET /v1/machine/commands`: waits up to 25 s for one.
pub async fn commands(
    State(api): State<Arc<Api>>,
    machine: Machine,
    mut params: Params,
) -> Result<Response, ApiError> {
    let most = limits::COMMAND_POLL.as_secs();
    let wait = params.read::<u64>("waitSeconds", "whole seconds")?;
    let session = params.read::<RemoteSessionId>("sessionId", "a remote session's id")?;
    params.done()?;
    let wait = Duration::from_secs(wait.unwrap_or(most).min(most));
    let deadline = Instant::now() + wait;
    let id = &machine.row.id;
    // before the first look, so that nothing falls between look and wait
    let mut notices = api.notices.subscribe();
    loop {
        // a machine that was revoked hears so at once, even if that was between its token's check and our listening
        api.is_still(&machine).await?;
        let taken = api.db.take_commands(id, session.as_ref(), COMMANDS).await?;
        let left = deadline.saturating_duration_since(Instant::now());
        if !taken.is_empty() || left.is_zero() {
            let commands = taken.into_iter().map(|command| CommandView {
                id: command.id.to_string(),
                session_id: command.session.to_string(),
                kind: command.kind,
                payload: RawValue::from_string(command.payload)
                    .unwrap_or_else(|_| RawValue::NULL.to_owned()),
                created_at: command.created_at,
            });
            let page = CommandPage {
                commands: commands.collect(),
            };
            return Ok(([(header::CACHE_CONTROL, "no-store")], Json(page)).into_response());
        }
        let _ = timeout(left, notices.heard(Channel::Machine, id.as_str())).await;
    }
}

/// What became of a command.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommandResult {
    /// Whether it was done.
    done: bool,
    /// What there is to say of it.
    detail: Option<String>,
}

/// `POST /v1/machine/commands/{id}`
pub async fn answer(
    State(api): State<Arc<Api>>,
    machine: Machine,
    Segments(id): Segments<String>,
    payload: Payload,
) -> Result<StatusCode, ApiError> {
    let id: CommandId = id.parse().map_err(|_| Code::NotFound)?;
    let body: Parsed<CommandResult> = payload.json().await?;
    api.is_still(&machine).await?;
    let CommandResult { done, detail } = body.value;
    validate::optional("detail", detail.as_deref(), limits::MACHINE_DETAIL_BYTES)?;
    let state = match done {
        true => CommandState::Done,
        false => CommandState::Failed,
    };
    let known = api
        .db
        .command_done(&machine.row.id, &id, state, detail.as_deref())
        .await?;
    match known {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Code::NotFound.into()),
    }
}

/// How a session ends, as its machine says.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoteStatus {
    /// `completed`, `stopped` or `error`.
    #[schema(value_type = String)]
    state: RemoteState,
    /// How many events there are: the end is told when all of them are there, or have been waited for.
    events: Option<u64>,
    /// Why it failed.
    error: Option<String>,
}

/// `POST /v1/remote-sessions/{id}/status`
pub async fn status(
    State(api): State<Arc<Api>>,
    machine: Machine,
    Segments(id): Segments<String>,
    payload: Payload,
) -> Result<Json<super::sessions::RemoteSessionView>, ApiError> {
    let session = api.session_of_machine(&machine, &id).await?;
    let body: Parsed<RemoteStatus> = payload.json().await?;
    api.is_still(&machine).await?;
    let RemoteStatus {
        state,
        events,
        error,
    } = body.value;
    if !state.is_terminal() {
        return Err(ApiError::invalid(
            "state must be completed, stopped or error",
        ));
    }
    validate::optional("error", error.as_deref(), limits::MACHINE_DETAIL_BYTES)?;
    let far = session.head.high_index + limits::REMOTE_WINDOW;
    if events.is_some_and(|events| events > far) {
        return Err(
            ApiError::from(Code::EventTooFar).with("nextEventIndex", session.head.next_index)
        );
    }
    let ending = Ending {
        as_: state,
        // fewer than there are it cannot be: those behind a gap would never be read
        events: events.map(|events| events.max(session.head.high_index)),
        error: error.as_deref(),
    };
    match api.db.end_remote_session(&session.id, ending).await? {
        Moved::Done(Answer::Refuses(code)) => Err(code.into()),
        Moved::Done(_) => {
            api.audit_remote(&machine.subject(), &session, "remote.status")
                .await;
            api.builders.wake(&session.id);
            api.remote_view_again(&session.id).await.map(Json)
        }
        Moved::NotFound => Err(Code::NotFound.into()),
    }
}

/// What a machine used.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = UsageReport)]
pub struct UsageBody {
    /// The reporter's id of this report: counted once.
    report_id: String,
    input_tokens: u64,
    output_tokens: u64,
    #[serde(default)]
    cache_read_tokens: u64,
    #[serde(default)]
    cache_write_tokens: u64,
    #[serde(default = "one")]
    requests: u64,
}

fn one() -> u64 {
    1
}

/// The answer to a usage report.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageCounted {
    report_id: String,
    /// It had been counted.
    duplicate: bool,
}

/// `POST /v1/remote-sessions/{id}/usage`
pub async fn usage(
    State(api): State<Arc<Api>>,
    machine: Machine,
    Segments(id): Segments<String>,
    payload: Payload,
) -> Result<Json<UsageCounted>, ApiError> {
    let session = api.session_of_machine(&machine, &id).await?;
    let body: Parsed<UsageBody> = payload.json().await?;
    api.is_still(&machine).await?;
    let report = body.value;
    validate::text("reportId", &report.report_id, limits::WORD_BYTES)?;
    let tokens = [
        report.input_tokens,
        report.output_tokens,
        report.cache_read_tokens,
        report.cache_write_tokens,
    ];
    let sum = tokens.iter().try_fold(0u64, |sum, n| sum.checked_add(*n));
    if sum.is_none_or(|sum| sum > limits::USAGE_TOKENS) || report.requests > limits::USAGE_REQUESTS
    {
        return Err(ApiError::invalid(format!(
            "a report has at most {} tokens and {} requests",
            limits::USAGE_TOKENS,
            limits::USAGE_REQUESTS
        )));
    }
    // of what was understood, so that another order of fields is the same report
    let content = serde_json::to_vec(&report).expect("plain data always serialises");
    let counted = UsageReport {
        session: &session.id,
        report_id: &report.report_id,
        sha256: &sha256_hex(&content),
        counts: [tokens[0], tokens[1], tokens[2], tokens[3], report.requests],
    };
    let duplicate = match api.db.report_usage(&counted).await? {
        Reported::Counted => false,
        Reported::Duplicate => true,
        Reported::Conflict => return Err(Code::ReportConflict.into()),
    };
    Ok(Json(UsageCounted {
        report_id: report.report_id,
        duplicate,
    }))
}

impl Api {
    /// Refuses a machine that was revoked while its request was waited for: its token was looked at before.
    pub(super) async fn is_still(&self, machine: &Machine) -> Result<(), ApiError> {
        let row = self.db.machine(&machine.row.id).await?;
        match row.is_some_and(|row| row.revoked_at.is_none()) {
            true => Ok(()),
            false => Err(Code::Unauthenticated.into()),
        }
    }

    /// A session of this machine; any other is none.
    pub(super) async fn session_of_machine(
        &self,
        machine: &Machine,
        id: &str,
    ) -> Result<RemoteSessionRow, ApiError> {
        let id: RemoteSessionId = id.parse().map_err(|_| Code::NotFound)?;
        let row = self.db.remote_session(&id).await?.ok_or(Code::NotFound)?;
        if row.machine == machine.row.id {
            Ok(row)
        } else {
            Err(Code::NotFound.into())
        }
    }
}
