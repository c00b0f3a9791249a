//! `POST /v1/agent-sessions`: session, turn 1 and its dispatch intent are one transaction of the store; the sandbox is
//! made in the background.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::problem::Code;
use bex_proto::session::SessionKind;
use bex_proto::{SessionId, WorkspaceId, limits};
use bex_store::sessions::{AgentSpec, Created, NewSession, SecretEnv};
use bex_telemetry::Span;
use http::{StatusCode, header};
use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::ToSchema;

use crate::auth::{Caller, Role};
use crate::http::extract::{Parsed, Payload};
use crate::http::{Api, ApiError, secret_literal, validate};
use crate::openapi::words;
use crate::profiles::ProfileFault;

/// A session to create.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSession {
    workspace_id: String,
    #[schema(schema_with = words::<SessionKind>)]
    kind: SessionKind,
    /// Makes a session autonomous; an autonomous session always has one.
    #[schema(max_length = 255)]
    workflow_id: Option<String>,
    #[schema(max_length = 512)]
    title: Option<String>,
    /// Carried and shown.
    #[schema(max_length = 2048)]
    repo: Option<String>,
    /// Carried and shown.
    #[schema(max_length = 255)]
    branch: Option<String>,
    agent: AgentRequest,
    /// The first turn's prompt, at most 100 000 bytes.
    #[schema(min_length = 1)]
    prompt: String,
}

/// What to run.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentRequest {
    /// A profile that the deployment's configuration names.
    profile: String,
    /// The profile decides what it means.
    model: Option<String>,
    /// Only for profiles that take them.
    #[serde(default)]
    args: Vec<String>,
    /// Environment from secrets.
    #[serde(default)]
    #[schema(max_items = 64)]
    env: Vec<EnvRequest>,
}

/// One environment variable, by reference. A literal value is refused.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvRequest {
    name: String,
    /// Where its value lives: a name, never the secret.
    #[schema(value_type = String, required = true)]
    secret_ref: Option<String>,
    /// Understood only to be refused as what it is.
    #[schema(ignore)]
    value: Option<IgnoredAny>,
}

/// The handler.
pub async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    payload: Payload,
) -> Result<Response, ApiError> {
    caller.need(Role::Operator)?;
    let body: Parsed<CreateSession> = payload.json().await?;
    let idempotency = body.idempotency("session.create", &caller)?;
    let workspace: WorkspaceId = body
        .value
        .workspace_id
        .parse()
        .map_err(|_| ApiError::invalid("workspaceId is not a workspace id"))?;
    if !caller.acts_for(&workspace) {
        return Err(Code::NotFound.into());
    }
    let agent = check(&api, &body.value)?;
    let asked = body.value;
    let new = NewSession {
        id: SessionId::random(),
        workspace,
        kind: asked.kind,
        workflow_id: asked.workflow_id,
        title: asked.title,
        repo: asked.repo,
        branch: asked.branch,
        agent,
        prompt: asked.prompt,
        created_by: caller.subject.clone(),
        live_limit: api.live_limit,
        idempotency,
    };
    let span = Span::first_of(&new.id);
    let (id, is_new) = match api.db.create_session(&new).await? {
        Created::New => (new.id, true),
        Created::Replayed(id) => (id, false),
        Created::KeyConflict => return Err(Code::IdempotencyConflict.into()),
        Created::WorkspaceDeleting => return Err(Code::NotFound.into()),
        Created::LiveLimit { live, limit } => {
            return Err(ApiError::from(Code::LiveLimit)
                .with("live", live)
                .with("limit", limit));
        }
    };
    let row = api.db.session(&id).await?.ok_or(Code::NotFound)?;
    if is_new {
        api.audit(&caller, &row, "session.create").await;
        tracing::info!(session = %id, trace_id = %span.context().trace, "session created");
        span.end(
            "create",
            &[("bex.session", &id), ("bex.workspace", &row.workspace)],
        );
    }
    let location = format!("/v1/agent-sessions/{id}");
    Ok((
        StatusCode::CREATED,
        [(header::LOCATION, location)],
        Json(api.view(row).await?),
    )
        .into_response())
}

fn check(api: &Api, asked: &CreateSession) -> Result<AgentSpec, ApiError> {
    match (asked.kind, &asked.workflow_id) {
        (SessionKind::Autonomous, None) => {
            return Err(ApiError::invalid("an autonomous session needs workflowId"));
        }
        (SessionKind::Interactive, Some(_)) => {
            return Err(ApiError::invalid("a session with workflowId is autonomous"));
        }
        (SessionKind::Autonomous, Some(_)) | (SessionKind::Interactive, None) => {}
    }
    validate::optional(
        "workflowId",
        asked.workflow_id.as_deref(),
        limits::WORD_BYTES,
    )?;
    validate::optional("title", asked.title.as_deref(), limits::TITLE_BYTES)?;
    validate::optional("repo", asked.repo.as_deref(), limits::REPO_BYTES)?;
    validate::optional("branch", asked.branch.as_deref(), limits::BRANCH_BYTES)?;
    validate::prompt(&asked.prompt)?;
    validate::text("agent.profile", &asked.agent.profile, limits::WORD_BYTES)?;
    validate::optional(
        "agent.model",
        asked.agent.model.as_deref(),
        limits::WORD_BYTES,
    )?;
    validate::words("agent.args", &asked.agent.args)?;
    let spec = AgentSpec {
        profile: asked.agent.profile.clone(),
        model: asked.agent.model.clone(),
        args: asked.agent.args.clone(),
        env: environment(&asked.agent.env)?,
    };
    match api.profiles.resolve(&spec) {
        Ok(_) => Ok(spec),
        Err(ProfileFault::Unknown) => Err(Code::ProfileUnknown.into()),
        Err(fault) => Err(ApiError::invalid(format!("agent: {fault}"))),
    }
}

fn environment(asked: &[EnvRequest]) -> Result<Vec<SecretEnv>, ApiError> {
    if asked.len() > limits::AGENT_ENV {
        return Err(ApiError::invalid(format!(
            "agent.env may have at most {} entries",
            limits::AGENT_ENV
        )));
    }
    let mut env: Vec<SecretEnv> = Vec::with_capacity(asked.len());
    for (i, entry) in asked.iter().enumerate() {
        let field = format!("agent.env[{i}]");
        validate::variable(&format!("{field}.name"), &entry.name)?;
        let literal = || {
            ApiError::from(Code::SecretLiteral)
                .detail(format!("{field} must be a name and a secretRef"))
        };
        let secret_ref = match (&entry.secret_ref, &entry.value) {
            (_, Some(_)) => return Err(literal()),
            (None, None) => return Err(ApiError::invalid(format!("{field} needs a secretRef"))),
            (Some(text), None) if secret_literal::looks_like_secret(text) => return Err(literal()),
            (Some(text), None) => text,
        };
        if !secret_literal::is_reference(secret_ref) {
            return Err(ApiError::invalid(format!(
                "{field}.secretRef must be a name of letters, digits and ._-/"
            )));
        }
        if env.iter().any(|known| known.name == entry.name) {
            return Err(ApiError::invalid(format!("{field}.name stands twice")));
        }
        env.push(SecretEnv {
            name: entry.name.clone(),
            secret_ref: secret_ref.clone(),
        });
    }
    Ok(env)
}
