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

    /// The runs of an agent session's turns, at most the session's turns; and whether some turn has none.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn runs_of_agent(
        &self,
        session: &SessionId,
    ) -> Result<(Vec<String>, bool), StoreError> {
        self.runs(
            "SELECT run_id FROM turns WHERE session_id = $1 ORDER BY turn",
            session.as_str(),
        )
        .await
    }

    /// The same of a remote session.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn runs_of_remote(
        &self,
        session: &RemoteSessionId,
    ) -> Result<(Vec<String>, bool), StoreError> {
        self.runs(
            "SELECT run_id FROM remote_turns WHERE session_id = $1 ORDER BY turn_no",
            session.as_str(),
        )
        .await
    }

    async fn runs(&self, sql: &str, session: &str) -> Result<(Vec<String>, bool), StoreError> {
        let rows = self.query("package_runs", sql, &[text(&session)]).await?;
        let (mut runs, mut without) = (Vec::new(), false);
        for row in &rows {
            match get(row, "run_id")? {
                Some(run) => runs.push(run),
                None => without = true,
            }
        }
        Ok((runs, without))
    }
}
