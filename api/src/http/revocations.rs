//! `POST /v1/revocations`: ends matching streams within a second and voids older tickets.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::Chain;
use bex_proto::problem::Code;
use bex_proto::{RemoteSessionId, WorkspaceId, limits};
use bex_store::audit::AuditEvent;
use bex_store::revocations::Revocation;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::{Parsed, Payload};
use super::{Api, ApiError, validate};
use crate::auth::{Caller, Role};

/// Whom to revoke: everybody of the workspace, or only a subject, or only a session, or both.
#[derive(Clone, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Revocation)]
pub struct RevocationBody {
    workspace_id: String,
    /// Only this subject's tickets.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// Only tickets for this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
}

/// The handler.
pub async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    payload: Payload,
) -> Result<Response, ApiError> {
    caller.need(Role::Admin)?;
    let body: Parsed<RevocationBody> = payload.json().await?;
    let asked = body.value;
    let workspace: WorkspaceId = asked
        .workspace_id
        .parse()
        .map_err(|_| ApiError::invalid("workspaceId is not a workspace id"))?;
    if !caller.acts_for(&workspace) {
        return Err(Code::NotFound.into());
    }
    validate::optional("subject", asked.subject.as_deref(), limits::WORD_BYTES)?;
    if let Some(id) = &asked.session_id {
        let owner = match id.parse::<RemoteSessionId>() {
            Ok(_) => api.remote_of(&caller, id).await?.workspace,
            Err(_) => api.session_of(&caller, id).await?.workspace,
        };
        if owner != workspace {
            return Err(Code::NotFound.into());
        }
    }
    let revocation = Revocation {
        workspace: workspace.clone(),
        subject: asked.subject.clone(),
        session: asked.session_id.clone(),
        created_by: caller.subject.clone(),
    };
    api.db.revoke(&revocation).await?;
    let event = AuditEvent {
        workspace: &workspace,
        subject: &caller.subject,
        action: "revocation.create",
        session: asked.session_id.as_deref(),
        result: "ok",
        detail: None,
    };
    if let Err(error) = api.db.audit_event(&event).await {
        tracing::error!(error = %Chain(&error), workspace = %workspace, "an audit event was not recorded");
    }
    Ok((StatusCode::CREATED, Json(asked)).into_response())
}
