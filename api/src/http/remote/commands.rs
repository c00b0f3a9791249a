//! What people tell a machine's session: chat, abort, stop, pause, resume, and answers to permission requests.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::problem::Code;
use bex_proto::remote::{CommandKind, RemoteState};
use bex_proto::{CommandId, limits};
use bex_store::idempotency::Idempotency;
use bex_store::remote::{NewCommand, RemoteSessionRow, Told};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::auth::{Caller, Role};
use crate::http::extract::{Parsed, Payload, Segments};
use crate::http::{Api, ApiError, validate};

/// When a full queue may have room again.
const RETRY_SECONDS: u32 = 5;

/// What to say to the agent.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChatRequest {
    /// At most 100 000 bytes.
    content: String,
}

/// Why.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = CommandReason)]
pub struct ReasonRequest {
    reason: Option<String>,
}

/// A person's answer to a permission request.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionRequest {
    /// The request's own id.
    request_id: String,
    /// Whether the agent may.
    allow: bool,
    /// What there is to say of it.
    message: Option<String>,
}

/// A verb's answer.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandTold {
    /// The command that waits for the machine; absent where there was nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    command_id: Option<String>,
    /// Where the session stands now.
    #[schema(value_type = String)]
    state: RemoteState,
}

/// `POST /v1/remote-sessions/{id}/chat`
pub async fn chat(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    payload: Payload,
) -> Result<Response, ApiError> {
    caller.need(Role::Operator)?;
    let session = api.remote_of(&caller, &id).await?;
    let body: Parsed<ChatRequest> = payload.json().await?;
    let idempotency = body.idempotency(&format!("remote.chat {}", session.id), &caller)?;
    validate::text("content", &body.value.content, limits::CHAT_BYTES)?;
    let says = Some(body.value.content.as_str());
    let payload = json!({"content": says});
    api.tell(
        &caller,
        &session,
        CommandKind::Chat,
        payload,
        says,
        idempotency,
    )
    .await
}

macro_rules! verbs {
    ($($verb:ident $kind:ident $doc:literal),+) => {
        $(#[doc = $doc]
        pub async fn $verb(
            State(api): State<Arc<Api>>,
            caller: Caller,
            Segments(id): Segments<String>,
            payload: Payload,
        ) -> Result<Response, ApiError> {
            caller.need(Role::Operator)?;
            let session = api.remote_of(&caller, &id).await?;
            let body: Parsed<ReasonRequest> = payload.json().await?;
            let reason = body.value.reason;
            validate::optional("reason", reason.as_deref(), limits::TITLE_BYTES)?;
            let payload = json!({"reason": reason});
            api.tell(&caller, &session, CommandKind::$kind, payload, None, None).await
        })+
    };
}
verbs!(
    abort Abort "`POST /v1/remote-sessions/{id}/abort`: ends the turn; what it said is kept.",
    stop Stop "`POST /v1/remote-sessions/{id}/stop`: ends the session, with what its machine has still to say.",
    pause Pause "`POST /v1/remote-sessions/{id}/pause`",
    resume Resume "`POST /v1/remote-sessions/{id}/resume`"
);

/// `POST /v1/remote-sessions/{id}/permission`
pub async fn permission(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    payload: Payload,
) -> Result<Response, ApiError> {
    caller.need(Role::Operator)?;
    let session = api.remote_of(&caller, &id).await?;
    let body: Parsed<PermissionRequest> = payload.json().await?;
    let idempotency = body.idempotency(&format!("remote.permission {}", session.id), &caller)?;
    let asked = body.value;
    validate::text("requestId", &asked.request_id, limits::WORD_BYTES)?;
    validate::optional("message", asked.message.as_deref(), limits::TITLE_BYTES)?;
    let payload =
        json!({"requestId": asked.request_id, "allow": asked.allow, "message": asked.message});
    api.tell(
        &caller,
        &session,
        CommandKind::Permission,
        payload,
        None,
        idempotency,
    )
    .await
}

impl Api {
    async fn tell(
        &self,
        caller: &Caller,
        session: &RemoteSessionRow,
        kind: CommandKind,
        payload: serde_json::Value,
        says: Option<&str>,
        idempotency: Option<Idempotency>,
    ) -> Result<Response, ApiError> {
        let payload = payload.to_string();
        let command = NewCommand {
            id: CommandId::random(),
            workspace: &session.workspace,
            session: &session.id,
            kind,
            payload: &payload,
            says,
            subject: &caller.subject,
            idempotency: idempotency.as_ref(),
        };
        match self.db.tell_machine(&command).await? {
            Told::Queued(queued) => {
                let action = format!("remote.{kind}");
                self.audit_remote(&caller.subject, session, &action).await;
                self.builders.wake(&session.id);
                let told = CommandTold {
                    command_id: Some(queued.command.to_string()),
                    state: queued.state,
                };
                Ok((StatusCode::ACCEPTED, Json(told)).into_response())
            }
            Told::Already(state) => Ok(Json(CommandTold {
                command_id: None,
                state,
            })
            .into_response()),
            Told::Refused(Code::CommandQueueFull) => {
                Err(ApiError::from(Code::CommandQueueFull).retry_after(RETRY_SECONDS))
            }
            Told::Refused(code) => Err(ApiError::from(code).with("state", session.state.as_str())),
            Told::KeyConflict => Err(Code::IdempotencyConflict.into()),
            Told::NotFound => Err(Code::NotFound.into()),
        }
    }
}
