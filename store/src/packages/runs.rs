//! Where a run was spoken.

use bex_proto::{RemoteSessionId, RunId, SessionId, TurnNo, WorkspaceId};

use super::Snapshot;
use crate::error::StoreError;
use crate::sql::{get, text, turn, word};

/// A run.
#[derive(Debug, Clone)]
pub struct RunSource {
    /// Whose.
    pub workspace: WorkspaceId,
    /// Where it was spoken.
    pub place: RunPlace,
}

/// A turn of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunPlace {
    /// Of an agent session.
    Agent(SessionId, TurnNo),
    /// Of a remote session.
    Remote(RemoteSessionId, String),
}

impl Snapshot {
    /// The turn that is this run; ids of runs are given by the server, so there is one at most.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn run(&self, id: &RunId) -> Result<Option<RunSource>, StoreError> {
        let id = id.as_str();
        let agent = self
            .query_opt(
                "package_run",
                "SELECT s.workspace_id, s.id, t.turn FROM turns t JOIN sessions s ON s.id = t.session_id WHERE t.run_id = $1",
                &[text(&id)],
            )
            .await?;
        if let Some(row) = agent {
            return Ok(Some(RunSource {
                workspace: word(&row, "workspace_id")?,
                place: RunPlace::Agent(word(&row, "id")?, turn(&row, "turn")?),
            }));
        }
        let remote = self
            .query_opt(
                "package_remote_run",
                "SELECT s.workspace_id, s.id, t.turn_id FROM remote_turns t JOIN remote_sessions s ON s.id = t.session_id
                  WHERE t.run_id = $1",
                &[text(&id)],
            )
            .await?;
        remote
            .map(|row| {
                Ok(RunSource {
                    workspace: word(&row, "workspace_id")?,
                    place: RunPlace::Remote(word(&row, "id")?, get(&row, "turn_id")?),
                })
            })
            .transpose()
    }
}
