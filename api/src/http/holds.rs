//! Legal holds, retention and the deletion of a workspace: what an administrator says of how long things are kept.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::problem::Code;
use bex_proto::{WorkspaceId, time};
use bex_store::holds::{Hold, HoldSet};
use bex_store::sessions::Delete;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::{Parsed, Payload, Segments};
use super::views::SessionView;
use super::{Api, ApiError};
use crate::auth::{Caller, Role};

/// A century; more is a mistake.
const MOST_DAYS: u32 = 36_500;

/// How long a workspace keeps what is its.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = SetRetention)]
pub struct RetentionRequest {
    /// 0 keeps everything; null or absent: as the deployment says.
    days: Option<u32>,
}

/// How long a workspace keeps what is its.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Retention)]
pub struct RetentionView {
    workspace_id: String,
    /// The workspace's own; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    days: Option<u32>,
    /// What counts: its own, or the deployment's. 0: for ever.
    effective_days: u32,
    /// Since when the workspace is being deleted.
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    deleting_since: Option<Timestamp>,
}

/// `POST /v1/agent-sessions/{id}/legal-hold`
pub async fn hold(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<SessionView>, ApiError> {
    set(&api, &caller, &id, Hold::Held).await
}

/// `DELETE /v1/agent-sessions/{id}/legal-hold`
pub async fn release(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<SessionView>, ApiError> {
    set(&api, &caller, &id, Hold::Free).await
}

async fn set(
    api: &Api,
    caller: &Caller,
    id: &str,
    hold: Hold,
) -> Result<Json<SessionView>, ApiError> {
    caller.need(Role::Admin)?;
    let row = api.session_of(caller, id).await?;
    match api.db.set_hold(&row.id, hold, &caller.subject).await? {
        HoldSet::Changed | HoldSet::Same => api.view_again(&row).await.map(Json),
        HoldSet::NotFound => Err(Code::NotFound.into()),
    }
}

/// `GET /v1/workspaces/{workspaceId}/retention`
pub async fn retention(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<RetentionView>, ApiError> {
    let workspace = own(&caller, &id)?;
    view(&api, &workspace).await.map(Json)
}

/// `POST /v1/workspaces/{workspaceId}/retention`
pub async fn set_retention(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    payload: Payload,
) -> Result<Json<RetentionView>, ApiError> {
    caller.need(Role::Admin)?;
    let workspace = own(&caller, &id)?;
    let body: Parsed<RetentionRequest> = payload.json().await?;
    let days = body.value.days;
    if days.is_some_and(|days| days > MOST_DAYS) {
        return Err(ApiError::invalid(format!("days must be 0 to {MOST_DAYS}")));
    }
    api.db
        .set_retention(&workspace, days, &caller.subject)
        .await?;
    view(&api, &workspace).await.map(Json)
}

/// `DELETE /v1/workspaces/{workspaceId}`: its sessions are ended and deleted in the background.
pub async fn delete_workspace(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Response, ApiError> {
    caller.need(Role::Admin)?;
    let workspace = own(&caller, &id)?;
    match api
        .db
        .begin_workspace_deletion(&workspace, &caller.subject)
        .await?
    {
        Delete::LegalHold => Err(Code::LegalHold.into()),
        Delete::Deleted | Delete::Live | Delete::NotFound => {
            let view = view(&api, &workspace).await?;
            Ok((StatusCode::ACCEPTED, Json(view)).into_response())
        }
    }
}

/// A workspace the caller acts for; any other is none.
fn own(caller: &Caller, id: &str) -> Result<WorkspaceId, ApiError> {
    let workspace = id.parse().map_err(|_| Code::NotFound)?;
    if caller.acts_for(&workspace) {
        Ok(workspace)
    } else {
        Err(Code::NotFound.into())
    }
}

async fn view(api: &Api, workspace: &WorkspaceId) -> Result<RetentionView, ApiError> {
    let policy = api.db.workspace_policy(workspace).await?;
    let days = policy.as_ref().and_then(|policy| policy.retention_days);
    Ok(RetentionView {
        workspace_id: workspace.to_string(),
        days,
        effective_days: days.unwrap_or(api.retention_days),
        deleting_since: policy.and_then(|policy| policy.deleting_since),
    })
}
