//! Legal holds: a session under one is not deleted, by nobody.

use bex_proto::SessionId;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{boolean, get, text};

/// Whether a session is kept by law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// It is.
    Held,
    /// It is not.
    Free,
}

/// What placing or lifting a hold did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldSet {
    /// It changed, and the audit log says by whom.
    Changed,
    /// It was so before.
    Same,
    /// No such session.
    NotFound,
}

impl Db {
    /// Places or lifts a hold. A deletion that is under way was first; one that comes later waits for this and then refuses.
    ///
    /// # Errors
    /// Store trouble; nothing changed then.
    pub async fn set_hold(
        &self,
        session: &SessionId,
        hold: Hold,
        subject: &str,
    ) -> Result<HoldSet, StoreError> {
        let held = hold == Hold::Held;
        let action = if held {
            "session.hold"
        } else {
            "session.release"
        };
        let row = self
            .query_opt(
                "set_hold",
                "WITH found AS (SELECT id, workspace_id, legal_hold FROM sessions WHERE id = $1 FOR NO KEY UPDATE),
                      set AS (UPDATE sessions s SET legal_hold = $2 FROM found f
                               WHERE s.id = f.id AND f.legal_hold <> $2 RETURNING f.workspace_id),
                      noted AS (INSERT INTO audit_events (workspace_id, subject, action, session_id, result)
                                SELECT workspace_id, $3, $4, $1, 'ok' FROM set)
                 SELECT EXISTS (SELECT 1 FROM set) AS changed FROM found",
                &[
                    text(&session.as_str()),
                    boolean(&held),
                    text(&subject),
                    text(&action),
                ],
            )
            .await?;
        Ok(match row {
            None => HoldSet::NotFound,
            Some(row) if get(&row, "changed")? => HoldSet::Changed,
            Some(_) => HoldSet::Same,
        })
    }
}
