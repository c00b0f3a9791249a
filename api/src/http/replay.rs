//! `/replay`: packages of executions, conversations and runs.

mod objects;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::package::{PackageId, PackageKind, SCHEMA_VERSION};
use bex_proto::problem::Code;
use bex_proto::{Chain, WorkspaceId, time};
use bex_store::StoreError;
use bex_store::audit::AuditEvent;
use http::header;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::extract::{Params, Segments};
use super::{Api, ApiError};
use crate::auth::Caller;
use crate::package::{PackageFault, Packager, Published, Subject};

pub(crate) use objects::fetch;

/// When a place for another package may be free.
const BUSY_SECONDS: u32 = 5;

/// Where a package is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Package)]
pub struct PackageView {
    query: PackageQuery,
    /// Good for one GET of this object, and again, until it expires.
    url: String,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    /// 300 at most; less where what it is signed with ends before.
    expires_in_seconds: u64,
    /// Semantic version of the envelope.
    schema_version: &'static str,
    /// Named by its content: the same again is the same package.
    #[schema(value_type = String)]
    package_id: PackageId,
    /// Of the object's bytes.
    sha256: String,
}

/// What was asked for.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageQuery {
    #[schema(value_type = String)]
    kind: PackageKind,
    id: String,
    correlation_id: String,
}

impl From<Published> for PackageView {
    fn from(published: Published) -> Self {
        let left = published.url.expires_at.duration_since(Timestamp::now());
        let id = published.subject.id().to_owned();
        Self {
            query: PackageQuery {
                kind: published.subject.kind(),
                correlation_id: id.clone(),
                id,
            },
            url: published.url.url,
            expires_at: published.url.expires_at,
            expires_in_seconds: u64::try_from(left.as_secs().max(0)).unwrap_or(0),
            schema_version: SCHEMA_VERSION,
            package_id: published.package,
            sha256: published.sha256,
        }
    }
}

/// `GET /replay/by-execution/{id}`
pub async fn by_execution(
    state: State<Arc<Api>>,
    caller: Caller,
    segments: Segments<String>,
    params: Params,
) -> Result<Response, ApiError> {
    package(state, caller, segments, params, PackageKind::Execution).await
}

/// `GET /replay/by-conversation/{id}`
pub async fn by_conversation(
    state: State<Arc<Api>>,
    caller: Caller,
    segments: Segments<String>,
    params: Params,
) -> Result<Response, ApiError> {
    package(state, caller, segments, params, PackageKind::Conversation).await
}

/// `GET /replay/by-run/{id}`
pub async fn by_run(
    state: State<Arc<Api>>,
    caller: Caller,
    segments: Segments<String>,
    params: Params,
) -> Result<Response, ApiError> {
    package(state, caller, segments, params, PackageKind::Run).await
}

async fn package(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    mut params: Params,
    kind: PackageKind,
) -> Result<Response, ApiError> {
    let workspace = params.read::<WorkspaceId>("workspaceId", "a workspace's id")?;
    params.done()?;
    let packager = api.packages.clone().ok_or(Code::NotConfigured)?;
    let subject = Subject::parse(kind, &id).ok_or(Code::NotFound)?;
    // by itself: a caller that leaves must not cut an upload in two
    let asking = Arc::clone(&packager);
    let work =
        asking.by_itself(async move { ask(&api, &packager, &caller, &subject, workspace).await });
    let published = work.await.map_err(|error| {
        tracing::error!(error = %Chain(&error), "a package was not made to its end");
        ApiError::from(Code::Internal)
    })??;
    let view = PackageView::from(published);
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(view)).into_response())
}

async fn ask(
    api: &Api,
    packager: &Packager,
    caller: &Caller,
    subject: &Subject,
    workspace: Option<WorkspaceId>,
) -> Result<Published, ApiError> {
    let acts_for = |of: &WorkspaceId| {
        caller.acts_for(of) && workspace.as_ref().is_none_or(|asked| asked == of)
    };
    let workspace = packager.owner(subject, acts_for).await?;
    let asked = Asked {
        api,
        caller,
        subject,
        workspace: &workspace,
    };
    match packager.publish(subject, &workspace).await {
        Ok(published) => {
            // nobody gets a URL that nobody wrote down
            asked.audit("ok", Some(&published.package)).await?;
            Ok(published)
        }
        // nothing was read for it, and who asks too often shall not fill the log with it: they are counted
        Err(fault @ (PackageFault::Busy | PackageFault::TooOften { .. })) => Err(fault.into()),
        Err(fault) => {
            let refusal = ApiError::from(fault);
            if let Err(error) = asked.audit(refusal.code().as_str(), None).await {
                tracing::error!(error = %Chain(&error), "an audit event was not recorded");
            }
            Err(refusal)
        }
    }
}

/// An ask for something that exists.
struct Asked<'a> {
    api: &'a Api,
    caller: &'a Caller,
    subject: &'a Subject,
    workspace: &'a WorkspaceId,
}

impl Asked<'_> {
    async fn audit(&self, result: &str, package: Option<&PackageId>) -> Result<(), StoreError> {
        let (kind, id) = (self.subject.kind(), self.subject.id());
        let detail = match package {
            Some(package) => format!("{kind} {id} {package}"),
            None => format!("{kind} {id}"),
        };
        let event = AuditEvent {
            workspace: self.workspace,
            subject: &self.caller.subject,
            action: "package.ask",
            session: self.subject.session(),
            result,
            detail: Some(&detail),
        };
        self.api.db.audit_event(&event).await
    }
}

impl From<PackageFault> for ApiError {
    fn from(fault: PackageFault) -> Self {
        match fault {
            // another's row is an alarm inside and nothing outside
            PackageFault::NotFound | PackageFault::Foreign { .. } => Code::NotFound.into(),
            PackageFault::Ambiguous => {
                Self::invalid("several of your workspaces have it; workspaceId must say which")
            }
            PackageFault::Busy => Self::from(Code::Overloaded).retry_after(BUSY_SECONDS),
            PackageFault::TooOften { seconds } => {
                Self::from(Code::TooManyPackages).retry_after(seconds)
            }
            PackageFault::TooLarge => Code::PackageTooLarge.into(),
            PackageFault::TooSlow => Self::from(Code::Unavailable).retry_after(BUSY_SECONDS),
            PackageFault::Gate(ids) => {
                let ids: Vec<String> = ids.into_iter().collect();
                Self::from(Code::GateRefused).with("patternIds", ids)
            }
            PackageFault::Store(error) => error.into(),
            PackageFault::Spool(_) | PackageFault::Object(_) | PackageFault::Lost(_) => {
                Code::Internal.into()
            }
        }
    }
}
