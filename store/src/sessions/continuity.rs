//! The agent's own session: what a fresh agent may load instead of being told.

use bex_proto::{Generation, SessionId};

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, int4, number, text};

impl Db {
    /// Keeps the name under which the agent of that generation knows its session. An older generation's changes nothing.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn keep_agent_session(
        &self,
        session: &SessionId,
        generation: Generation,
        name: &str,
    ) -> Result<(), StoreError> {
        self.execute(
            "keep_agent_session",
            "UPDATE sessions SET agent_session_id = $3
              WHERE id = $1 AND generation = $2 AND agent_session_id IS DISTINCT FROM $3",
            &[
                text(&session.as_str()),
                int4(&number(generation.0)),
                text(&name),
            ],
        )
        .await
        .map(drop)
    }

    /// The name that was kept last.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn agent_session(&self, session: &SessionId) -> Result<Option<String>, StoreError> {
        let row = self
            .query_opt(
                "agent_session",
                "SELECT agent_session_id FROM sessions WHERE id = $1",
                &[text(&session.as_str())],
            )
            .await?;
        Ok(row
            .map(|row| get(&row, "agent_session_id"))
            .transpose()?
            .flatten())
    }
}
