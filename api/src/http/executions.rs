//! Executions of workflows, as their engine records them: the rows that replay packages are made from. Everything belongs to the workspace
//! that the caller names, or to its only one; ids of another's are ids that do not exist.

pub(crate) mod findings;
pub(crate) mod nodes;
mod recorded;
pub(crate) mod runs;
pub(crate) mod usage;
pub(crate) mod versions;

use axum::Json;
use axum::response::{IntoResponse, Response};
use bex_proto::problem::Code;
use bex_proto::{ExecutionId, WorkspaceId};
use bex_store::executions::{Batch, ExecutionRow};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::extract::Params;
use super::sessions::workspace;
use super::{Api, ApiError};
use crate::auth::Caller;

/// What a batch came to. All of it is recorded, or nothing.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedBatch {
    /// Entries that are new.
    recorded: usize,
    /// Entries that were recorded before, or stand twice in the batch.
    duplicates: usize,
}

/// Whether what was recorded is new.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Novelty {
    New,
    Known,
}

impl Novelty {
    fn status(self) -> StatusCode {
        match self {
            Self::New => StatusCode::CREATED,
            Self::Known => StatusCode::OK,
        }
    }
}

/// The only parameter of a call that takes no other.
fn only_workspace(caller: &Caller, mut params: Params) -> Result<WorkspaceId, ApiError> {
    let asked = params.read("workspaceId", "a workspace id")?;
    params.done()?;
    workspace(caller, asked)
}

fn conflict(field: &'static str) -> ApiError {
    ApiError::from(Code::RecordConflict)
        .detail(format!("{field} was recorded with another value"))
        .with("field", field)
}

/// The answer to a batch whose entries are called `what`.
fn batched(what: &str, batch: Batch) -> Result<Response, ApiError> {
    match batch {
        Batch::Done {
            recorded,
            duplicates,
        } => Ok(Json(RecordedBatch {
            recorded,
            duplicates,
        })
        .into_response()),
        Batch::Conflict(index) => Err(ApiError::from(Code::RecordConflict)
            .detail(format!(
                "the id of {what}[{index}] was used for another one"
            ))
            .with("index", index)),
        Batch::Unknown(index) => Err(ApiError::from(Code::NotFound)
            .detail(format!(
                "{what}[{index}] names an execution or a session that is not there"
            ))
            .with("index", index)),
        Batch::WorkspaceDeleting => Err(Code::NotFound.into()),
    }
}

impl Api {
    /// An execution of this workspace; any other is none.
    async fn execution_of(
        &self,
        workspace: &WorkspaceId,
        id: &ExecutionId,
    ) -> Result<ExecutionRow, ApiError> {
        let row = self.db.execution(workspace, id).await?;
        row.ok_or_else(|| Code::NotFound.into())
    }
}

/// What stands in a path. What is malformed names nothing.
fn execution_id(text: &str) -> Result<ExecutionId, ApiError> {
    text.parse().map_err(|_| Code::NotFound.into())
}
