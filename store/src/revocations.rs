//! Revocations: what voids older tickets and ends running streams.

use bex_proto::WorkspaceId;
use jiff::Timestamp;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, text, texts, times};
use crate::wake::Channel;

/// Whom a revocation hits: everybody of the workspace, or only a subject, or only a session, or both.
#[derive(Debug, Clone)]
pub struct Revocation {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Only this subject's tickets.
    pub subject: Option<String>,
    /// Only tickets for this session.
    pub session: Option<String>,
    /// Who revokes.
    pub created_by: String,
}

/// What a stream's ticket said.
#[derive(Debug, Clone)]
pub struct StreamKey {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Whose ticket.
    pub subject: String,
    /// Which session, an agent's or a remote one.
    pub session: String,
    /// When it was issued.
    pub issued_at: Timestamp,
}

/// Whether a stream may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It may.
    Good,
    /// A matching revocation is not older than its ticket.
    Revoked,
    /// The session does not exist any more.
    SessionGone,
}

impl Db {
    /// Records a revocation and tells every gateway.
    ///
    /// # Errors
    /// Store trouble; nothing was revoked then.
    pub async fn revoke(&self, revocation: &Revocation) -> Result<(), StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        tx.execute(
            "revoke",
            "INSERT INTO revocations (workspace_id, subject, session_id, created_by) VALUES ($1, $2, $3, $4)",
            &[
                text(&revocation.workspace.as_str()),
                text(&revocation.subject),
                text(&revocation.session),
                text(&revocation.created_by),
            ],
        )
        .await?;
        tx.notify(Channel::Revoked, revocation.workspace.as_str())
            .await?;
        tx.commit().await
    }

    /// Whether one ticket's stream may begin.
    ///
    /// # Errors
    /// Store trouble: refuse then.
    pub async fn standing(&self, key: &StreamKey) -> Result<Standing, StoreError> {
        let all = self.standings(std::slice::from_ref(key)).await?;
        all.into_iter()
            .next()
            .ok_or(StoreError::Missing { what: "standing" })
    }

    /// The standing of every stream of a process, in the order given, by one query.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn standings(&self, keys: &[StreamKey]) -> Result<Vec<Standing>, StoreError> {
        let workspaces: Vec<&str> = keys.iter().map(|k| k.workspace.as_str()).collect();
        let subjects: Vec<&str> = keys.iter().map(|k| k.subject.as_str()).collect();
        let sessions: Vec<&str> = keys.iter().map(|k| k.session.as_str()).collect();
        let issued: Vec<Timestamp> = keys.iter().map(|k| k.issued_at).collect();
        let rows = self
            .query(
                "standings",
                "SELECT EXISTS (SELECT 1 FROM sessions s
                                 WHERE s.id = k.session AND s.workspace_id = k.workspace)
                        OR EXISTS (SELECT 1 FROM remote_sessions s
                                    WHERE s.id = k.session AND s.workspace_id = k.workspace) AS here,
                        EXISTS (SELECT 1 FROM revocations r WHERE r.workspace_id = k.workspace
                                   AND r.created_at >= k.issued
                                   AND (r.subject IS NULL OR r.subject = k.subject)
                                   AND (r.session_id IS NULL OR r.session_id = k.session)) AS revoked
                   FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS k (workspace, subject, session, issued, n)
                  ORDER BY k.n",
                &[texts(&workspaces), texts(&subjects), texts(&sessions), times(&issued)],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(match (get(row, "revoked")?, get(row, "here")?) {
                    (true, _) => Standing::Revoked,
                    (false, false) => Standing::SessionGone,
                    (false, true) => Standing::Good,
                })
            })
            .collect()
    }
}
