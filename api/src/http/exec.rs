//! `POST /v1/agent-sessions/{id}/exec`: a user's command in a living sandbox, its output streamed as frames.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::exec::CONTENT_TYPE;
use bex_proto::problem::Code;
use bex_store::audit::AuditEvent;
use http::header;
use serde::Deserialize;
use utoipa::ToSchema;

use super::extract::{Parsed, Payload, Segments};
use super::sandbox_calls::target_of;
use super::{Api, ApiError, validate};
use crate::auth::{Caller, Role};
use crate::exec_client::ExecFailure;

/// When a full or recovering gateway may be asked again.
const RETRY_SECONDS: u32 = 1;

/// A command.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecRequest {
    /// Program and arguments.
    #[schema(min_items = 1, max_items = 256)]
    argv: Vec<String>,
    /// Its standard input.
    stdin: Option<String>,
}

/// The handler. Whoever reads the answer checks its last frame: a body without an exit or error frame is not whole.
pub async fn run(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    payload: Payload,
) -> Result<Response, ApiError> {
    caller.need(Role::Operator)?;
    let session = api.session_of(&caller, &id).await?;
    let body: Parsed<ExecRequest> = payload.json().await?;
    let ExecRequest { argv, stdin } = body.value;
    if argv.first().is_none_or(String::is_empty) {
        return Err(ApiError::invalid("argv must begin with a program"));
    }
    validate::words("argv", &argv)?;
    let sandbox = api.db.latest_sandbox(&session.id).await?;
    let target = sandbox
        .and_then(|sandbox| target_of(&session, &sandbox))
        .ok_or(Code::SandboxTerminated)?;
    // before the command runs: nothing is run that is not on record. Never its words, they may hold secrets.
    let event = AuditEvent {
        workspace: &session.workspace,
        subject: &caller.subject,
        action: "sandbox.exec",
        session: Some(session.id.as_str()),
        result: "ok",
        detail: None,
    };
    api.db.audit_event(&event).await?;
    let frames = api
        .sandboxes
        .run(&target, &caller.subject, argv, stdin)
        .await
        .map_err(refusal)?;
    let headers = [
        (header::CONTENT_TYPE, CONTENT_TYPE),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, frames).into_response())
}

/// A failed call into a sandbox as the caller hears it.
pub(super) fn refusal(failure: ExecFailure) -> ApiError {
    let code = match failure {
        ExecFailure::Terminated => Code::SandboxTerminated,
        ExecFailure::Revoked => Code::Revoked,
        ExecFailure::Busy => Code::TurnInFlight,
        ExecFailure::Unsupported => Code::Unsupported,
        ExecFailure::OutputLimit => Code::OutputLimit,
        ExecFailure::Timeout => Code::ExecTimeout,
        ExecFailure::Transport => Code::ExecTransport,
        ExecFailure::Unreachable => Code::Unavailable,
        ExecFailure::Refused(status) => refused_with(status),
    };
    match code {
        Code::Overloaded | Code::Unavailable => ApiError::from(code).retry_after(RETRY_SECONDS),
        other => other.into(),
    }
}

/// A gateway that is full, or whose store is away, is nobody's mistake; any other refusal is ours.
fn refused_with(status: u16) -> Code {
    [Code::Overloaded, Code::Unavailable]
        .into_iter()
        .find(|code| code.status() == status)
        .unwrap_or_else(|| {
            tracing::error!(status, "the gateway refused an exec request");
            Code::Internal
        })
}
