//! Versions of configuration as they ran: of workflows, execution specs, models (by scope) and agents. A version never changes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::execution::ConfigKind;
use bex_proto::problem::Code;
use bex_proto::transcript::sha256_hex;
use bex_proto::{limits, time};
use bex_store::executions::{ConfigKey, ConfigVersion, VersionCursor, VersionRecorded};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::runs::raw;
use super::{Novelty, only_workspace, recorded};
use crate::auth::{Caller, Role};
use crate::http::extract::{Params, Payload, Segments};
use crate::http::sessions::workspace;
use crate::http::{Api, ApiError, validate};
use crate::openapi::words;

/// Which kind a route is about.
pub trait Kind: Send + Sync + 'static {
    /// Of these.
    const KIND: ConfigKind;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $kind:ident),+) => {
        $($(#[$doc])* pub struct $name; impl Kind for $name { const KIND: ConfigKind = ConfigKind::$kind; })+
    };
}
kinds! {
    /// `/v1/workflows`
    Workflows = Workflow,
    /// `/v1/exec-specs`
    ExecSpecs = ExecSpec,
    /// `/v1/model-configs`
    ModelConfigs = ModelConfig,
    /// `/v1/agent-configs`
    AgentConfigs = AgentConfig
}

/// A configuration: a JSON object of at most 1 MiB, kept as it is.
#[derive(ToSchema)]
#[schema(value_type = Object)]
#[expect(dead_code, reason = "only its schema is used: a body is kept as text")]
pub struct ConfigBody(serde_json::Value);

/// One version.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ConfigVersion)]
pub struct VersionView {
    #[schema(schema_with = words::<ConfigKind>)]
    kind: ConfigKind,
    id: String,
    version: String,
    /// Of the body's bytes.
    sha256: String,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    recorded_at: Timestamp,
    recorded_by: String,
    /// As it was recorded; absent in lists and in the answer to the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    body: Option<Box<RawValue>>,
}

/// One page of versions, those that were recorded last first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionPage {
    items: Vec<VersionView>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl From<ConfigVersion> for VersionView {
    fn from(row: ConfigVersion) -> Self {
        Self {
            kind: row.key.kind,
            id: row.key.id,
            version: row.version,
            sha256: row.sha256,
            recorded_at: row.recorded_at,
            recorded_by: row.recorded_by,
            body: row.body.map(raw),
        }
    }
}

/// `PUT …/{configId}/versions/{version}`: the body is the configuration itself.
pub async fn record<K: Kind>(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments((id, version)): Segments<(String, String)>,
    params: Params,
    payload: Payload,
) -> Result<Response, ApiError> {
    caller.need(Role::Operator)?;
    let workspace = only_workspace(&caller, params)?;
    validate::text("the id", &id, limits::WORD_BYTES)?;
    validate::text("the version", &version, limits::WORD_BYTES)?;
    let bytes = payload.bytes(limits::API_BODY).await?;
    let sent: Box<RawValue> =
        serde_json::from_slice(&bytes).map_err(|e| crate::http::extract::json_fault(&e))?;
    let body = recorded::object("the body", Some(sent), limits::API_BODY)?.unwrap_or_default();
    let key = ConfigKey { kind: K::KIND, id };
    let sha256 = sha256_hex(body.as_bytes());
    let recorded = api
        .db
        .record_version(
            &workspace,
            &key,
            &version,
            (&body, &sha256),
            &caller.subject,
        )
        .await?;
    let (novelty, row) = match recorded {
        VersionRecorded::New(row) => (Novelty::New, row),
        VersionRecorded::Known(row) => (Novelty::Known, row),
        VersionRecorded::Conflict => return Err(Code::VersionConflict.into()),
        VersionRecorded::WorkspaceDeleting => return Err(Code::NotFound.into()),
    };
    Ok((novelty.status(), Json(VersionView::from(*row))).into_response())
}

/// `GET …/{configId}/versions/{version}`
pub async fn get<K: Kind>(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments((id, version)): Segments<(String, String)>,
    params: Params,
) -> Result<Json<VersionView>, ApiError> {
    let workspace = only_workspace(&caller, params)?;
    named(&id)?;
    named(&version)?;
    let key = ConfigKey { kind: K::KIND, id };
    let row = api.db.config_version(&workspace, &key, &version).await?;
    row.map(|row| Json(row.into()))
        .ok_or_else(|| Code::NotFound.into())
}

/// `GET …/{configId}/versions`
pub async fn list<K: Kind>(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    mut params: Params,
) -> Result<Json<VersionPage>, ApiError> {
    let workspace = workspace(&caller, params.read("workspaceId", "a workspace id")?)?;
    let limit = params.limit(limits::LIST_DEFAULT, limits::LIST_LIMIT)?;
    let cursor = params.one("cursor")?;
    params.done()?;
    named(&id)?;
    let place = cursor.as_deref().map(recorded::read_time_cursor);
    let after = place
        .transpose()?
        .map(|(recorded_at, version)| VersionCursor {
            recorded_at,
            version,
        });
    let key = ConfigKey { kind: K::KIND, id };
    let page = api
        .db
        .config_versions(&workspace, &key, after.as_ref(), limit)
        .await?;
    if page.items.is_empty() && after.is_none() {
        return Err(Code::NotFound.into());
    }
    let last = page.items.last().filter(|_| page.more);
    let next_cursor = last.map(|row| recorded::time_cursor(row.recorded_at, &row.version));
    Ok(Json(VersionPage {
        items: page.items.into_iter().map(VersionView::from).collect(),
        next_cursor,
    }))
}

/// What no recorder could have called anything names nothing.
fn named(text: &str) -> Result<(), ApiError> {
    validate::text("the id", text, limits::WORD_BYTES).map_err(|_| Code::NotFound.into())
}
