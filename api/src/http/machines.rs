//! Machines: registering, listing, tokens. A token is shown once and kept as its SHA-256.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bex_proto::problem::Code;
use bex_proto::transcript::sha256_hex;
use bex_proto::{Chain, MachineId, WorkspaceId, limits, time};
use bex_store::audit::AuditEvent;
use bex_store::remote::{MachineRow, NewMachine};
use http::{StatusCode, header};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::extract::{Params, Parsed, Payload, Segments};
use super::remote::machine::Machine;
use super::sessions::cursor;
use super::{Api, ApiError, validate};
use crate::auth::{Caller, Role};

/// Begins every machine token, so that scanners know one.
const TOKEN_PREFIX: &str = "bexm_";

/// A machine to register.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RegisterMachine {
    workspace_id: String,
    /// For people.
    name: String,
}

/// One machine.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Machine)]
pub struct MachineView {
    id: String,
    workspace_id: String,
    name: String,
    created_by: String,
    /// It was heard in the last 90 seconds.
    online: bool,
    /// What it says of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    detail: Option<Box<RawValue>>,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_seen_at: Option<Timestamp>,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    revoked_at: Option<Timestamp>,
}

/// A machine and its token, which is shown this once.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineToken {
    machine: MachineView,
    token: String,
}

/// One page of machines, newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachinePage {
    items: Vec<MachineView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl MachineView {
    fn new(row: MachineRow, now: Timestamp) -> Self {
        let online = row.revoked_at.is_none()
            && row
                .last_seen_at
                .is_some_and(|at| now.duration_since(at).unsigned_abs() <= limits::MACHINE_ONLINE);
        Self {
            id: row.id.to_string(),
            workspace_id: row.workspace.to_string(),
            name: row.name,
            created_by: row.created_by,
            online,
            detail: row.detail.and_then(|text| RawValue::from_string(text).ok()),
            created_at: row.created_at,
            last_seen_at: row.last_seen_at,
            revoked_at: row.revoked_at,
        }
    }
}

/// A fresh token: 256 random bits.
fn fresh_token() -> String {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).expect("the operating system always has randomness after boot");
    format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// `POST /v1/machines`
pub async fn register(
    State(api): State<Arc<Api>>,
    caller: Caller,
    payload: Payload,
) -> Result<Response, ApiError> {
    caller.need(Role::Admin)?;
    let body: Parsed<RegisterMachine> = payload.json().await?;
    let asked = body.value;
    let workspace: WorkspaceId = asked
        .workspace_id
        .parse()
        .map_err(|_| ApiError::invalid("workspaceId is not a workspace id"))?;
    if !caller.acts_for(&workspace) {
        return Err(Code::NotFound.into());
    }
    validate::text("name", &asked.name, limits::WORD_BYTES)?;
    let (id, token) = (MachineId::random(), fresh_token());
    let new = NewMachine {
        id: &id,
        workspace: &workspace,
        name: &asked.name,
        created_by: &caller.subject,
        token_sha256: &sha256_hex(token.as_bytes()),
    };
    let row = api.db.create_machine(&new).await?;
    api.audit_machine(&caller.subject, &row, "machine.register")
        .await;
    let machine = MachineView::new(row, api.db.now().await?);
    let headers = [
        (header::LOCATION, format!("/v1/machines/{id}")),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    Ok((
        StatusCode::CREATED,
        headers,
        Json(MachineToken { machine, token }),
    )
        .into_response())
}

/// `GET /v1/machines`
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    mut params: Params,
) -> Result<Json<MachinePage>, ApiError> {
    let asked = params.read("workspaceId", "a workspace id")?;
    let workspace = super::sessions::workspace(&caller, asked)?;
    let after = params.one("cursor")?;
    let after = after
        .as_deref()
        .map(cursor::parse_any::<MachineId>)
        .transpose()?;
    let limit = params.limit(limits::LIST_DEFAULT, limits::LIST_LIMIT)?;
    params.done()?;
    let after = after.as_ref().map(|(at, id)| (*at, id));
    let mut rows = api.db.machines(&workspace, after, limit + 1).await?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next_cursor = rows
        .last()
        .filter(|_| more)
        .map(|row| cursor::format_any(row.created_at, &row.id));
    let now = api.db.now().await?;
    let items = rows.into_iter().map(|row| MachineView::new(row, now));
    Ok(Json(MachinePage {
        items: items.collect(),
        next_cursor,
    }))
}

/// `GET /v1/machines/{id}`
pub async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<MachineView>, ApiError> {
    let row = api.machine_of(&caller, &id).await?;
    Ok(Json(MachineView::new(row, api.db.now().await?)))
}

/// `POST /v1/machines/{id}/rotate`
pub async fn rotate(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Response, ApiError> {
    caller.need(Role::Admin)?;
    let row = api.machine_of(&caller, &id).await?;
    api.rotated(&caller.subject, row).await
}

/// `POST /v1/machine/rotate`: a machine replaces its own token.
pub async fn rotate_own(
    State(api): State<Arc<Api>>,
    machine: Machine,
) -> Result<Response, ApiError> {
    let subject = machine.subject();
    api.rotated(&subject, machine.row).await
}

/// `POST /v1/machines/{id}/revoke`
pub async fn revoke(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<MachineView>, ApiError> {
    caller.need(Role::Admin)?;
    let row = api.machine_of(&caller, &id).await?;
    if api.db.revoke_machine(&row.id).await? {
        api.audit_machine(&caller.subject, &row, "machine.revoke")
            .await;
    }
    let row = api.db.machine(&row.id).await?.ok_or(Code::NotFound)?;
    Ok(Json(MachineView::new(row, api.db.now().await?)))
}

impl Api {
    async fn machine_of(&self, caller: &Caller, id: &str) -> Result<MachineRow, ApiError> {
        let id: MachineId = id.parse().map_err(|_| Code::NotFound)?;
        let row = self.db.machine(&id).await?.ok_or(Code::NotFound)?;
        if caller.acts_for(&row.workspace) {
            Ok(row)
        } else {
            Err(Code::NotFound.into())
        }
    }

    async fn rotated(&self, subject: &str, row: MachineRow) -> Result<Response, ApiError> {
        let token = fresh_token();
        let sha256 = sha256_hex(token.as_bytes());
        if !self.db.rotate_machine_token(&row.id, &sha256).await? {
            return Err(Code::MachineRevoked.into());
        }
        self.audit_machine(subject, &row, "machine.rotate").await;
        let machine = MachineView::new(row, self.db.now().await?);
        let headers = [(header::CACHE_CONTROL, "no-store")];
        Ok((headers, Json(MachineToken { machine, token })).into_response())
    }

    /// Records what was done with a machine; the deed is done by then.
    async fn audit_machine(&self, subject: &str, row: &MachineRow, action: &str) {
        let event = AuditEvent {
            workspace: &row.workspace,
            subject,
            action,
            session: None,
            result: "ok",
            detail: Some(row.id.as_str()),
        };
        if let Err(error) = self.db.audit_event(&event).await {
            tracing::error!(error = %Chain(&error), action, machine = %row.id, "an audit event was not recorded");
        }
    }
}
