//! Create, list, get, delete.

mod create;
pub(super) mod cursor;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::Chain;
use bex_proto::problem::Code;
use bex_proto::session::Phase;
use bex_proto::{TurnNo, WorkspaceId, limits};
use bex_store::audit::AuditEvent;
use bex_store::retention::Removal;
use bex_store::sessions::{ArchivedFilter, Delete, ListFilter, SessionRow};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::extract::{Params, Segments};
use super::views::SessionView;
use super::{Api, ApiError};
use crate::auth::{Caller, Role, Workspaces};

pub use create::{CreateSession, create};

/// One page of sessions, newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionPage {
    items: Vec<SessionView>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// `GET /v1/agent-sessions`
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    mut params: Params,
) -> Result<Json<SessionPage>, ApiError> {
    let workspace = workspace(&caller, params.read("workspaceId", "a workspace id")?)?;
    let phases: Result<Vec<Phase>, _> = params
        .all("phase")
        .iter()
        .map(|word| word.parse())
        .collect();
    let phases = phases.map_err(|_| ApiError::invalid("phase must be a phase"))?;
    let archived = match params.one("archived")?.as_deref() {
        None | Some("false") => ArchivedFilter::Without,
        Some("true") => ArchivedFilter::Only,
        Some("all") => ArchivedFilter::All,
        Some(_) => return Err(ApiError::invalid("archived must be false, true or all")),
    };
    let filter = ListFilter {
        phases,
        archived,
        repo: params.one("repo")?,
        words: super::validate::search(params.one("q")?.as_deref())?,
        created_before: params.read("createdBefore", "an ISO-8601 time")?,
        created_after: params.read("createdAfter", "an ISO-8601 time")?,
        cursor: params
            .one("cursor")?
            .map(|text| cursor::parse(&text))
            .transpose()?,
        limit: params.limit(limits::LIST_DEFAULT, limits::LIST_LIMIT)?,
    };
    params.done()?;
    super::validate::optional("repo", filter.repo.as_deref(), limits::REPO_BYTES)?;
    let (rows, next) = api.db.list_sessions(&workspace, &filter).await?;
    Ok(Json(SessionPage {
        items: rows.into_iter().map(SessionView::listed).collect(),
        next_cursor: next.as_ref().map(cursor::format),
    }))
}

/// The workspace asked for, or the caller's only one.
pub(super) fn workspace(
    caller: &Caller,
    asked: Option<WorkspaceId>,
) -> Result<WorkspaceId, ApiError> {
    let only = match &caller.workspaces {
        Workspaces::Some(own) if own.len() == 1 => own.first().cloned(),
        Workspaces::Some(_) | Workspaces::All => None,
    };
    let workspace = asked
        .or(only)
        .ok_or_else(|| ApiError::invalid("workspaceId is needed"))?;
    if caller.acts_for(&workspace) {
        Ok(workspace)
    } else {
        Err(Code::NotFound.into())
    }
}

/// `GET /v1/agent-sessions/{id}`
pub async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<SessionView>, ApiError> {
    let row = api.session_of(&caller, &id).await?;
    api.view(row).await.map(Json)
}

/// `DELETE /v1/agent-sessions/{id}`
pub async fn delete(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Response, ApiError> {
    caller.need(Role::Admin)?;
    let row = api.session_of(&caller, &id).await?;
    let removal = Removal {
        subject: &caller.subject,
        action: "session.delete",
        quiet_days: None,
    };
    match api.db.remove_session(&row.id, removal).await? {
        Delete::Deleted => {
            // the first batch at once, which is all of most sessions; the sweep removes the rest, and this too where it fails
            if let Err(error) = api.db.purge().await {
                tracing::debug!(session = %row.id, error = %Chain(&error), "parts are left to the sweep");
            }
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        Delete::Live => Err(Code::NotDeletable.into()),
        Delete::LegalHold => Err(Code::LegalHold.into()),
        Delete::NotFound => Err(Code::NotFound.into()),
    }
}

impl Api {
    /// A session with its newest turns.
    pub(super) async fn view(&self, row: SessionRow) -> Result<SessionView, ApiError> {
        let shown = limits::SESSION_TURNS_SHOWN;
        let from = TurnNo(row.turns.0.saturating_sub(shown - 1).max(1));
        let turns = self.db.turns_without_prompts(&row.id, from, shown).await?;
        Ok(SessionView::single(row, turns))
    }

    /// A session as it stands now, after a verb.
    pub(super) async fn view_again(&self, row: &SessionRow) -> Result<SessionView, ApiError> {
        let row = self.db.session(&row.id).await?.ok_or(Code::NotFound)?;
        self.view(row).await
    }

    /// Records what was done. The deed is done by then: a store that fails here is reported to people, not to the caller.
    pub(super) async fn audit(&self, caller: &Caller, row: &SessionRow, action: &str) {
        let event = AuditEvent {
            workspace: &row.workspace,
            subject: &caller.subject,
            action,
            session: Some(row.id.as_str()),
            result: "ok",
            detail: None,
        };
        if let Err(error) = self.db.audit_event(&event).await {
            tracing::error!(error = %Chain(&error), action, session = %row.id, "an audit event was not recorded");
        }
    }
}
