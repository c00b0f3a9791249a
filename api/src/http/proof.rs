//! The signed statements about a session's turns, and the keys that check them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::problem::Code;
use bex_proto::{limits, time};
use bex_store::proof::StatementRow;
use http::header;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::extract::{Params, Segments};
use super::{Api, ApiError};
use crate::auth::Caller;
use crate::proof::Jwks;

/// A key is published before it signs and stays published, so that a copy may be some minutes old.
const KEYS_CACHE: &str = "public, max-age=300";

/// One page of a session's chain.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProofPage {
    session_id: String,
    statements: Vec<StatementView>,
    /// The `from` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_from: Option<u32>,
    /// Settled turns whose statement is still to come.
    pending: u64,
    keys: Jwks,
}

/// One statement.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Statement)]
pub struct StatementView {
    /// Its place in the chain, from 0.
    number: u32,
    turn: u32,
    /// Compact JWS (EdDSA). Its payload names turn, parts, digest, verdict and the SHA-256 of the statement before.
    statement: String,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// `GET /v1/agent-sessions/{id}/proof`
pub async fn read(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    mut params: Params,
) -> Result<Json<ProofPage>, ApiError> {
    let session = api.session_of(&caller, &id).await?;
    let from = params.read("from", "a statement's number")?.unwrap_or(0);
    let limit = params.limit(limits::LIST_DEFAULT, limits::LIST_LIMIT)?;
    params.done()?;
    let ring = api.proof.as_ref().ok_or(Code::NotConfigured)?;
    let rows = api.db.statements(&session.id, from, limit + 1).await?;
    let next_from = rows.get(limit as usize).map(|row| row.number);
    let statements = rows.into_iter().take(limit as usize);
    Ok(Json(ProofPage {
        session_id: session.id.to_string(),
        statements: statements.map(StatementView::from).collect(),
        next_from,
        pending: api.db.statements_pending(&session.id).await?,
        keys: ring.public().to_jwks(),
    }))
}

/// `GET /.well-known/bex-proof-keys.json`: for everybody.
pub async fn keys(State(api): State<Arc<Api>>) -> Result<Response, ApiError> {
    let ring = api.proof.as_ref().ok_or(Code::NotConfigured)?;
    let keys = Json(ring.public().to_jwks());
    Ok(([(header::CACHE_CONTROL, KEYS_CACHE)], keys).into_response())
}

impl From<StatementRow> for StatementView {
    fn from(row: StatementRow) -> Self {
        Self {
            number: row.number,
            turn: row.turn.0,
            statement: row.statement,
            created_at: row.created_at,
        }
    }
}
