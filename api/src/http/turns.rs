//! The turns of a session: every one begins here, and may be stopped here.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::problem::Code;
use bex_proto::session::Verdict;
use bex_proto::ticket::AttachAction;
use bex_proto::{TurnNo, limits};
use bex_store::sessions::{BeginTurn, NewTurn, SessionRow};
use bex_store::wake::Channel;
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::{Params, Parsed, Payload, Segments};
use super::sandbox_calls::target_of;
use super::settle_wait::Waited;
use super::views::{BegunTurn, TurnView};
use super::{Api, ApiError, validate};
use crate::auth::{Caller, Role};
use crate::exec_client::ExecFailure;
use crate::tickets::{Grant, Target};

/// When a caller should try an open turn again, seconds: about what a Completer's tick takes.
const RETRY_SECONDS: u32 = 5;

/// A turn to begin.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BeginTurnRequest {
    /// At most 100 000 bytes.
    #[schema(min_length = 1)]
    prompt: String,
}

/// Turns in order, prompts included.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnPage {
    turns: Vec<TurnView>,
    /// The `from` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_from: Option<u32>,
}

/// `POST /v1/agent-sessions/{id}/turns`
pub async fn begin(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    payload: Payload,
) -> Result<Response, ApiError> {
    caller.need(Role::Operator)?;
    let session = api.session_of(&caller, &id).await?;
    let body: Parsed<BeginTurnRequest> = payload.json().await?;
    let idempotency = body.idempotency(&format!("turn.begin {}", session.id), &caller)?;
    validate::prompt(&body.value.prompt)?;
    let new = NewTurn {
        session: session.id.clone(),
        workspace: session.workspace.clone(),
        prompt: body.value.prompt,
        idempotency,
    };
    let mut outcome = api.db.begin_turn(&new).await?;
    if let BeginTurn::InFlight { turn } = outcome
        && api.wait_for_settle(&session, turn).await? == Waited::Settled
    {
        outcome = api.db.begin_turn(&new).await?;
    }
    let turn = match outcome {
        BeginTurn::Delivering { turn, .. }
        | BeginTurn::Redispatched { turn }
        | BeginTurn::Replayed { turn } => turn,
        BeginTurn::InFlight { turn } => {
            return Err(ApiError::from(Code::TurnInFlight)
                .with("turn", turn.0)
                .retry_after(RETRY_SECONDS));
        }
        BeginTurn::KeyConflict => return Err(Code::IdempotencyConflict.into()),
        BeginTurn::Full => return Err(Code::SessionFull.into()),
        BeginTurn::Archived => return Err(Code::Archived.into()),
        BeginTurn::PromptQuota => {
            let limit = limits::SESSION_PROMPT_BYTES as u64;
            return Err(ApiError::from(Code::PromptQuota).with("limit", limit));
        }
        BeginTurn::NotSteerable => return Err(Code::NotSteerable.into()),
        BeginTurn::NotFound => return Err(Code::NotFound.into()),
    };
    let ticket = api.turn_ticket(&caller, &session, turn).await?;
    let headers = [
        (
            header::LOCATION,
            format!(
                "/v1/agent-sessions/{}/turns?from={turn}&limit=1",
                session.id
            ),
        ),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    Ok((
        StatusCode::CREATED,
        headers,
        Json(BegunTurn::new(turn, ticket)),
    )
        .into_response())
}

/// `GET /v1/agent-sessions/{id}/turns`
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    mut params: Params,
) -> Result<Json<TurnPage>, ApiError> {
    let session = api.session_of(&caller, &id).await?;
    let from = params.read::<u32>("from", "a turn")?.unwrap_or(1);
    let limit = params.limit(limits::LIST_LIMIT, limits::LIST_LIMIT)?;
    params.done()?;
    let mut rows = api.db.turns(&session.id, TurnNo(from), limit + 1).await?;
    let next_from = rows.get(limit as usize).map(|row| row.turn.0);
    rows.truncate(limit as usize);
    Ok(Json(TurnPage {
        turns: rows.into_iter().map(TurnView::from).collect(),
        next_from,
    }))
}

/// `POST /v1/agent-sessions/{id}/turns/{turn}/stop`
pub async fn stop(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments((id, turn)): Segments<(String, String)>,
) -> Result<Response, ApiError> {
    caller.need(Role::Operator)?;
    let session = api.session_of(&caller, &id).await?;
    let turn = TurnNo(turn.parse().map_err(|_| Code::NotFound)?);
    let row = api
        .db
        .turn(&session.id, turn)
        .await?
        .ok_or(Code::NotFound)?;
    if row.verdict != Verdict::Open || !api.db.request_stop(&session.id, turn).await? {
        return Err(Code::NotLive.into());
    }
    api.audit(&caller, &session, "turn.stop").await;
    let sandbox = api.db.sandbox(&session.id, row.generation).await?;
    // an older driver cannot be asked: the Completer harvests and removes its sandbox
    let target = sandbox
        .filter(|sandbox| !sandbox.legacy)
        .and_then(|sandbox| target_of(&session, &sandbox));
    if let Some(target) = target {
        match api.sandboxes.stop(&target, turn).await {
            Ok(())
            // gone or not speaking it any more: the settle tells the outcome
            | Err(ExecFailure::Terminated | ExecFailure::Busy)
            // not speaking it yet, the delivery is on its way: the Completer asks again
            | Err(ExecFailure::Unsupported) => {}
            Err(failure) => return Err(super::exec::refusal(failure)),
        }
    }
    api.db.notify(Channel::Wake, &session.id).await?;
    let row = api
        .db
        .turn(&session.id, turn)
        .await?
        .ok_or(Code::NotFound)?;
    Ok((StatusCode::ACCEPTED, Json(TurnView::from(row))).into_response())
}

impl Api {
    /// A ticket for the stream of a turn that was begun just now or before.
    async fn turn_ticket(
        &self,
        caller: &Caller,
        session: &SessionRow,
        turn: TurnNo,
    ) -> Result<crate::tickets::AttachTicket, ApiError> {
        let row = self
            .db
            .turn(&session.id, turn)
            .await?
            .ok_or(Code::NotFound)?;
        let target = if row.verdict == Verdict::Open {
            Target::of(self.db.sandbox(&session.id, row.generation).await?)
        } else {
            Target::ReplayOnly
        };
        let grant = Grant {
            subject: &caller.subject,
            session: &session.id,
            workspace: &session.workspace,
            action: AttachAction::Turn,
            turn: Some(turn),
            target,
        };
        Ok(self.tickets.mint(grant, self.db.now().await?))
    }
}
