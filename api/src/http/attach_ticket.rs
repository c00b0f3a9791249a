//! `POST /v1/agent-sessions/{id}/attach-ticket`

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::TurnNo;
use bex_proto::problem::Code;
use bex_proto::ticket::AttachAction;
use http::header;
use serde::Deserialize;
use utoipa::ToSchema;

use super::extract::{Parsed, Payload, Segments};
use super::views::TicketView;
use super::{Api, ApiError};
use crate::auth::{Caller, Role};
use crate::tickets::{Grant, Target};

/// What the ticket is for.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = AttachTicketRequest)]
pub struct TicketRequest {
    /// `read` (the default) for GET, `turn` for POST.
    #[serde(default = "read")]
    #[schema(value_type = String, example = "read")]
    action: AttachAction,
    /// The turn to watch, for `turn`; the newest when absent.
    turn: Option<u32>,
}

fn read() -> AttachAction {
    AttachAction::Read
}

/// The handler. A finished session always gets a replay-only read ticket: there is nothing to dial, whatever still runs
/// of its sandbox.
pub async fn mint(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    payload: Payload,
) -> Result<Response, ApiError> {
    let session = api.session_of(&caller, &id).await?;
    let body: Parsed<TicketRequest> = payload.json().await?;
    let TicketRequest { action, turn } = body.value;
    if action == AttachAction::Turn {
        caller.need(Role::Operator)?;
    }
    let turn = turn.map_or(session.turns, TurnNo);
    if turn < TurnNo::FIRST || turn > session.turns {
        return Err(Code::NotFound.into());
    }
    let grant = |action, turn, target| Grant {
        subject: &caller.subject,
        session: &session.id,
        workspace: &session.workspace,
        action,
        turn,
        target,
    };
    let grant = if session.phase.is_terminal() {
        api.db.touch_idle(&session.id).await?;
        grant(AttachAction::Read, None, Target::ReplayOnly)
    } else {
        let target = Target::of(api.db.latest_sandbox(&session.id).await?);
        match action {
            AttachAction::Read => grant(action, None, target),
            AttachAction::Turn => grant(action, Some(turn), target),
        }
    };
    let ticket = TicketView::from(api.tickets.mint(grant, api.db.now().await?));
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(ticket)).into_response())
}
