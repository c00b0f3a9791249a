//! Remote sessions: create, list, get, archive, delete, and what administrators do.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::problem::Code;
use bex_proto::remote::{Activity, Answer, RemoteState};
use bex_proto::session::SessionKind;
use bex_proto::{Chain, MachineId, RemoteSessionId, limits, time};
use bex_store::audit::AuditEvent;
use bex_store::holds::{Hold, HoldSet};
use bex_store::remote::{
    Moved, NewRemoteSession, RemoteCreated, RemoteListFilter, RemoteSessionRow,
};
use bex_store::sessions::ArchivedFilter;
use http::{StatusCode, header};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::auth::{Caller, Role};
use crate::http::extract::{Params, Parsed, Payload, Segments};
use crate::http::sessions::cursor;
use crate::http::views::TicketView;
use crate::http::{Api, ApiError, validate};
use crate::openapi::words;

/// A session to create on a machine.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateRemoteSession {
    /// One of the workspace's.
    machine_id: String,
    #[schema(schema_with = words::<SessionKind>)]
    kind: SessionKind,
    /// `chat`, `agent` or `terminal`; `workflow` exactly with a workflowId, which is then the default.
    #[schema(value_type = Option<String>)]
    activity: Option<Activity>,
    /// Exactly of an autonomous session.
    workflow_id: Option<String>,
    title: Option<String>,
    project_path: Option<String>,
    cli_tool: Option<String>,
    model: Option<String>,
}

/// One remote session.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RemoteSession)]
pub struct RemoteSessionView {
    id: String,
    workspace_id: String,
    machine_id: String,
    #[schema(schema_with = words::<SessionKind>)]
    kind: SessionKind,
    #[schema(value_type = String)]
    activity: Activity,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    project_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cli_tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    created_by: String,
    #[schema(value_type = String)]
    state: RemoteState,
    /// How it ends, while it is ending.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    ending_as: Option<RemoteState>,
    /// Why it failed, in its machine's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The program's own session id.
    #[serde(skip_serializing_if = "Option::is_none")]
    cli_session_id: Option<String>,
    counters: RemoteCounters,
    legal_hold: bool,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    paused_at: Option<Timestamp>,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    archived_at: Option<Timestamp>,
}

/// What a session has come to.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteCounters {
    /// Rows of messages.
    messages: u64,
    /// Rows of turns.
    turns: u64,
    /// The first event that is missing, which is how many there are where none is.
    next_event_index: u64,
    /// Events below were removed by the retention.
    first_event_index: u64,
    log_bytes: u64,
    /// From usage reports.
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    requests: u64,
}

/// One page of sessions, newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteSessionPage {
    items: Vec<RemoteSessionView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl From<RemoteSessionRow> for RemoteSessionView {
    fn from(row: RemoteSessionRow) -> Self {
        let [
            input_tokens,
            output_tokens,
            cache_read_tokens,
            cache_write_tokens,
            requests,
        ] = row.usage;
        Self {
            id: row.id.to_string(),
            workspace_id: row.workspace.to_string(),
            machine_id: row.machine.to_string(),
            kind: row.kind,
            activity: row.activity,
            workflow_id: row.workflow_id,
            title: row.title,
            project_path: row.project_path,
            cli_tool: row.cli_tool,
            model: row.model,
            created_by: row.created_by,
            ending_as: row.ending_as.filter(|_| !row.state.is_terminal()),
            state: row.state,
            error: row.error,
            cli_session_id: row.cli_session_id,
            counters: RemoteCounters {
                messages: row.head.message_count,
                turns: row.head.turn_count,
                next_event_index: row.head.next_index,
                first_event_index: row.head.first_index,
                log_bytes: row.head.bytes,
                input_tokens,
                output_tokens,
                cache_read_tokens,
                cache_write_tokens,
                requests,
            },
            legal_hold: row.legal_hold,
            created_at: row.created_at,
            updated_at: row.updated_at,
            paused_at: row.paused_at,
            ended_at: row.ended_at,
            archived_at: row.archived_at,
        }
    }
}

/// `POST /v1/remote-sessions`
pub async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    payload: Payload,
) -> Result<Response, ApiError> {
    caller.need(Role::Operator)?;
    let body: Parsed<CreateRemoteSession> = payload.json().await?;
    let idempotency = body.idempotency("remote.create", &caller)?;
    let asked = body.value;
    let machine: MachineId = asked
        .machine_id
        .parse()
        .map_err(|_| ApiError::invalid("machineId is not a machine id"))?;
    for (field, value, most) in [
        ("workflowId", &asked.workflow_id, limits::WORD_BYTES),
        ("title", &asked.title, limits::TITLE_BYTES),
        ("projectPath", &asked.project_path, limits::REPO_BYTES),
        ("cliTool", &asked.cli_tool, limits::WORD_BYTES),
        ("model", &asked.model, limits::WORD_BYTES),
    ] {
        validate::optional(field, value.as_deref(), most)?;
    }
    let autonomous = asked.kind == SessionKind::Autonomous;
    if autonomous != asked.workflow_id.is_some() {
        return Err(ApiError::invalid(
            "a session is autonomous exactly when it has a workflowId",
        ));
    }
    let usual = match autonomous {
        true => Activity::Workflow,
        false => Activity::Agent,
    };
    let activity = asked.activity.unwrap_or(usual);
    if autonomous != (activity == Activity::Workflow) {
        return Err(ApiError::invalid(
            "activity is workflow exactly when there is a workflowId",
        ));
    }
    let row = api.db.machine(&machine).await?.ok_or(Code::NotFound)?;
    if !caller.acts_for(&row.workspace) {
        return Err(Code::NotFound.into());
    }
    if row.revoked_at.is_some() {
        return Err(Code::MachineRevoked.into());
    }
    let new = NewRemoteSession {
        id: RemoteSessionId::random(),
        workspace: row.workspace,
        machine,
        kind: asked.kind,
        activity,
        workflow_id: asked.workflow_id,
        title: asked.title,
        project_path: asked.project_path,
        cli_tool: asked.cli_tool,
        model: asked.model,
        created_by: caller.subject.clone(),
        idempotency,
    };
    let id = match api.db.create_remote_session(&new).await? {
        RemoteCreated::New => new.id.clone(),
        RemoteCreated::Replayed(id) => id,
        RemoteCreated::KeyConflict => return Err(Code::IdempotencyConflict.into()),
        RemoteCreated::WorkspaceDeleting => return Err(Code::NotFound.into()),
    };
    let session = api.db.remote_session(&id).await?.ok_or(Code::NotFound)?;
    if id == new.id {
        api.audit_remote(&caller.subject, &session, "remote.create")
            .await;
    }
    let location = [(header::LOCATION, format!("/v1/remote-sessions/{id}"))];
    Ok((
        StatusCode::CREATED,
        location,
        Json(RemoteSessionView::from(session)),
    )
        .into_response())
}

/// `GET /v1/remote-sessions`
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    mut params: Params,
) -> Result<Json<RemoteSessionPage>, ApiError> {
    let asked = params.read("workspaceId", "a workspace id")?;
    let workspace = crate::http::sessions::workspace(&caller, asked)?;
    let states: Result<Vec<RemoteState>, _> = params
        .all("state")
        .iter()
        .map(|word| word.parse())
        .collect();
    let archived = match params.one("archived")?.as_deref() {
        None | Some("false") => ArchivedFilter::Without,
        Some("true") => ArchivedFilter::Only,
        Some("all") => ArchivedFilter::All,
        Some(_) => return Err(ApiError::invalid("archived must be false, true or all")),
    };
    let filter = RemoteListFilter {
        states: states.map_err(|_| ApiError::invalid("state must be a state"))?,
        archived,
        machine: params.read("machineId", "a machine id")?,
        words: validate::search(params.one("q")?.as_deref())?,
        cursor: params
            .one("cursor")?
            .as_deref()
            .map(cursor::parse_any)
            .transpose()?,
        limit: params.limit(limits::LIST_DEFAULT, limits::LIST_LIMIT)?,
    };
    params.done()?;
    let (rows, next) = api.db.remote_sessions(&workspace, &filter).await?;
    let next_cursor = next.map(|(at, id)| cursor::format_any(at, &id));
    Ok(Json(RemoteSessionPage {
        items: rows.into_iter().map(RemoteSessionView::from).collect(),
        next_cursor,
    }))
}

/// `GET /v1/remote-sessions/{id}`: 200 in every state.
pub async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<RemoteSessionView>, ApiError> {
    let row = api.remote_of(&caller, &id).await?;
    Ok(Json(row.into()))
}

/// `POST /v1/remote-sessions/{id}/archive`
pub async fn archive(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<RemoteSessionView>, ApiError> {
    api.set_archived(&caller, &id, true).await
}

/// `POST /v1/remote-sessions/{id}/unarchive`
pub async fn unarchive(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<RemoteSessionView>, ApiError> {
    api.set_archived(&caller, &id, false).await
}

/// `DELETE /v1/remote-sessions/{id}`
pub async fn delete(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<StatusCode, ApiError> {
    caller.need(Role::Admin)?;
    let row = api.remote_of(&caller, &id).await?;
    match api.db.delete_remote_session(&row.id).await? {
        Moved::Done(Answer::Refuses(code)) => Err(code.into()),
        Moved::Done(_) => {
            api.audit_remote(&caller.subject, &row, "remote.delete")
                .await;
            Ok(StatusCode::NO_CONTENT)
        }
        Moved::NotFound => Err(Code::NotFound.into()),
    }
}

/// `POST /v1/remote-sessions/{id}/legal-hold`
pub async fn hold(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<RemoteSessionView>, ApiError> {
    api.set_remote_hold(&caller, &id, Hold::Held).await
}

/// `DELETE /v1/remote-sessions/{id}/legal-hold`
pub async fn release(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<RemoteSessionView>, ApiError> {
    api.set_remote_hold(&caller, &id, Hold::Free).await
}

/// `POST /v1/remote-sessions/{id}/rebuild`: turns and messages are made again from the log.
pub async fn rebuild(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Response, ApiError> {
    caller.need(Role::Admin)?;
    let row = api.remote_of(&caller, &id).await?;
    if !api.db.reset_built(&row.id).await? {
        return Err(ApiError::invalid(
            "a part of the log was removed: rows cannot be made again",
        ));
    }
    api.audit_remote(&caller.subject, &row, "remote.rebuild")
        .await;
    api.builders.wake(&row.id);
    let view = api.remote_view_again(&row.id).await?;
    Ok((StatusCode::ACCEPTED, Json(view)).into_response())
}

/// `POST /v1/remote-sessions/{id}/attach-ticket`
pub async fn ticket(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Response, ApiError> {
    let row = api.remote_of(&caller, &id).await?;
    let now = api.db.now().await?;
    let ticket = api
        .tickets
        .mint_remote(&caller.subject, &row.id, &row.workspace, now);
    let ticket = TicketView::from(ticket);
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(ticket)).into_response())
}

impl Api {
    /// A session of one of the caller's workspaces; any other is none.
    pub(crate) async fn remote_of(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<RemoteSessionRow, ApiError> {
        let id: RemoteSessionId = id.parse().map_err(|_| Code::NotFound)?;
        let row = self.db.remote_session(&id).await?.ok_or(Code::NotFound)?;
        if caller.acts_for(&row.workspace) {
            Ok(row)
        } else {
            Err(Code::NotFound.into())
        }
    }

    pub(super) async fn remote_view_again(
        &self,
        id: &RemoteSessionId,
    ) -> Result<RemoteSessionView, ApiError> {
        let row = self.db.remote_session(id).await?.ok_or(Code::NotFound)?;
        Ok(row.into())
    }

    async fn set_remote_hold(
        &self,
        caller: &Caller,
        id: &str,
        hold: Hold,
    ) -> Result<Json<RemoteSessionView>, ApiError> {
        caller.need(Role::Admin)?;
        let row = self.remote_of(caller, id).await?;
        match self
            .db
            .set_remote_hold(&row.id, hold, &caller.subject)
            .await?
        {
            HoldSet::Changed | HoldSet::Same => self.remote_view_again(&row.id).await.map(Json),
            HoldSet::NotFound => Err(Code::NotFound.into()),
        }
    }

    async fn set_archived(
        &self,
        caller: &Caller,
        id: &str,
        archived: bool,
    ) -> Result<Json<RemoteSessionView>, ApiError> {
        caller.need(Role::Operator)?;
        let row = self.remote_of(caller, id).await?;
        self.db.archive_remote_session(&row.id, archived).await?;
        let action = match archived {
            true => "remote.archive",
            false => "remote.unarchive",
        };
        self.audit_remote(&caller.subject, &row, action).await;
        self.remote_view_again(&row.id).await.map(Json)
    }

    /// Records what was done. The deed is done by then: a store that fails here is reported to people, not to the caller.
    pub(super) async fn audit_remote(&self, subject: &str, row: &RemoteSessionRow, action: &str) {
        let event = AuditEvent {
            workspace: &row.workspace,
            subject,
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
