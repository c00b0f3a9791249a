//! Cancel, archive, unarchive: verbs that may be repeated and answer with the session as it stands.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use bex_proto::problem::Code;
use bex_store::sessions::{Archived, Cancel};

use super::extract::Segments;
use super::views::SessionView;
use super::{Api, ApiError};
use crate::auth::{Caller, Role};

/// `POST /v1/agent-sessions/{id}/cancel`: the Completer harvests first, then the session is canceled.
pub async fn cancel(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<SessionView>, ApiError> {
    caller.need(Role::Operator)?;
    let row = api.session_of(&caller, &id).await?;
    match api.db.request_cancel(&row.id).await? {
        Cancel::Canceling => api.audit(&caller, &row, "session.cancel").await,
        Cancel::AlreadyCanceling | Cancel::Terminal(_) => {}
        Cancel::NotFound => return Err(Code::NotFound.into()),
    }
    api.view_again(&row).await.map(Json)
}

/// `POST /v1/agent-sessions/{id}/archive`
pub async fn archive(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<SessionView>, ApiError> {
    caller.need(Role::Operator)?;
    let row = api.session_of(&caller, &id).await?;
    match api.db.archive(&row.id).await? {
        Archived::Done => api.view_again(&row).await.map(Json),
        Archived::NotFound => Err(Code::NotFound.into()),
    }
}

/// `POST /v1/agent-sessions/{id}/unarchive`
pub async fn unarchive(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<SessionView>, ApiError> {
    caller.need(Role::Operator)?;
    let row = api.session_of(&caller, &id).await?;
    match api.db.unarchive(&row.id).await? {
        Archived::Done => api.view_again(&row).await.map(Json),
        Archived::NotFound => Err(Code::NotFound.into()),
    }
}
