//! `GET /v1/agent-sessions/{id}/priming`: what a fresh agent would be told of the conversation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use bex_proto::priming::{DEFAULT_BUDGET, MAX_BUDGET, Payloads, Priming};
use serde::Serialize;
use utoipa::ToSchema;

use super::extract::{Params, Segments};
use super::{Api, ApiError};
use crate::auth::Caller;
use crate::priming::priming_before;

/// The newest words of a conversation.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Priming)]
pub struct PrimingView {
    /// The oldest first. As JSON never longer than the budget.
    #[schema(value_type = Vec<Object>)]
    turns: Vec<bex_proto::priming::PrimedTurn>,
    /// Turns of which nothing is kept; all of them are older.
    omitted_turns: u32,
    /// Whether anything was left out.
    truncated: bool,
}

/// The handler.
pub async fn read(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    mut params: Params,
) -> Result<Json<PrimingView>, ApiError> {
    let session = api.session_of(&caller, &id).await?;
    let budget = params.read("budgetBytes", "a number of bytes")?;
    let budget: usize = budget.unwrap_or(DEFAULT_BUDGET);
    let payloads = match params.one("toolPayloads")?.as_deref() {
        None | Some("false") => Payloads::Left,
        Some("true") => Payloads::Kept,
        Some(_) => return Err(ApiError::invalid("toolPayloads must be true or false")),
    };
    params.done()?;
    if budget > MAX_BUDGET {
        return Err(ApiError::invalid(format!(
            "budgetBytes must be 0 to {MAX_BUDGET}"
        )));
    }
    let Priming {
        turns,
        omitted_turns,
        truncated,
        ..
    } = priming_before(&api.db, &session.id, session.turns.next(), budget, payloads).await?;
    Ok(Json(PrimingView {
        turns,
        omitted_turns,
        truncated,
    }))
}
