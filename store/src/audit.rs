//! Who looked and who did what. Content-free: no prompt, no part. These rows outlive their sessions.

use std::time::Duration;

use bex_proto::{WorkspaceId, limits};

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{float8, get, int8, text};

/// A stream that begins.
#[derive(Debug, Clone)]
pub struct StreamOpened<'a> {
    /// The owner.
    pub workspace: &'a WorkspaceId,
    /// What is watched: an agent's session or a remote one.
    pub session: &'a str,
    /// Who watches.
    pub subject: &'a str,
    /// The ticket's action.
    pub action: &'a str,
    /// Which gateway process.
    pub instance: &'a str,
    /// From where.
    pub remote_address: &'a str,
}

/// The row of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamAuditId(i64);

/// Something somebody did.
#[derive(Debug, Clone)]
pub struct AuditEvent<'a> {
    /// Where.
    pub workspace: &'a WorkspaceId,
    /// Who.
    pub subject: &'a str,
    /// What, e.g. `session.create`.
    pub action: &'a str,
    /// To which session.
    pub session: Option<&'a str>,
    /// How it went: `ok` or a problem code.
    pub result: &'a str,
    /// Numbers and words, never content.
    pub detail: Option<&'a str>,
}

/// The word for a stream whose gateway did not live to say how it ended, or never heard that it began.
const LOST: &str = "lost";
/// Beyond [`limits::STREAM_CEILING`]: what a stream's last words and its row may take.
const LOST_MARGIN: Duration = Duration::from_secs(600);
/// Rows of one sweep.
const SWEEP_BATCH: i64 = 10_000;

impl Db {
    /// Records that a stream begins, before its first byte.
    ///
    /// # Errors
    /// Store trouble: the stream must then be refused.
    pub async fn open_stream_audit(
        &self,
        stream: &StreamOpened<'_>,
    ) -> Result<StreamAuditId, StoreError> {
        let row = self
            .query_one(
                "open_stream_audit",
                "INSERT INTO stream_audit (workspace_id, session_id, subject, action, instance, remote_address)
                 VALUES ($1, $2, $3, $4, $5, $6) RETURNING id",
                &[
                    text(&stream.workspace.as_str()),
                    text(&stream.session),
                    text(&stream.subject),
                    text(&stream.action),
                    text(&stream.instance),
                    text(&stream.remote_address),
                ],
            )
            .await?;
        Ok(StreamAuditId(get(&row, "id")?))
    }

    /// Records how a stream ended, once.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn close_stream_audit(
        &self,
        stream: StreamAuditId,
        result: &str,
        parts: u64,
        bytes: u64,
    ) -> Result<(), StoreError> {
        self.execute(
            "close_stream_audit",
            "UPDATE stream_audit SET closed_at = now(), result = $2, parts = $3, bytes = $4
              WHERE id = $1 AND closed_at IS NULL",
            &[
                int8(&stream.0),
                text(&result),
                int8(&i64::try_from(parts).unwrap_or(i64::MAX)),
                int8(&i64::try_from(bytes).unwrap_or(i64::MAX)),
            ],
        )
        .await
        .map(drop)
    }

    /// Closes, as `lost`, a batch of streams that nobody closed and that are older than any can be; returns how many.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn close_lost_streams(&self) -> Result<u64, StoreError> {
        let oldest = limits::STREAM_CEILING + LOST_MARGIN;
        self.execute(
            "close_lost_streams",
            "UPDATE stream_audit SET closed_at = now(), result = $1
              WHERE id IN (SELECT id FROM stream_audit WHERE closed_at IS NULL
                              AND opened_at < now() - $2 * interval '1 second'
                            ORDER BY opened_at LIMIT $3) AND closed_at IS NULL",
            &[
                text(&LOST),
                float8(&oldest.as_secs_f64()),
                int8(&SWEEP_BATCH),
            ],
        )
        .await
    }

    /// Records an event.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn audit_event(&self, event: &AuditEvent<'_>) -> Result<(), StoreError> {
        self.execute(
            "audit_event",
            "INSERT INTO audit_events (workspace_id, subject, action, session_id, result, detail)
             VALUES ($1, $2, $3, $4, $5, $6)",
            &[
                text(&event.workspace.as_str()),
                text(&event.subject),
                text(&event.action),
                text(&event.session),
                text(&event.result),
                text(&event.detail),
            ],
        )
        .await
        .map(drop)
    }

    /// Forgets a workspace's audit rows older than `days`, one bounded batch of each kind; returns how many. Those of a session under
    /// legal hold stay. The caller
    /// does not call it for 0 (keep).
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn sweep_audit(&self, workspace: &WorkspaceId, days: u32) -> Result<u64, StoreError> {
        let mut swept = 0;
        for sql in [
            "DELETE FROM stream_audit WHERE id IN (SELECT id FROM stream_audit WHERE workspace_id = $1
                AND opened_at < now() - $2 * interval '1 day' AND closed_at IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = stream_audit.session_id AND s.legal_hold)
                AND NOT EXISTS (SELECT 1 FROM remote_sessions s WHERE s.id = stream_audit.session_id AND s.legal_hold) LIMIT $3)",
            "DELETE FROM audit_events WHERE id IN (SELECT id FROM audit_events WHERE workspace_id = $1
                AND at < now() - $2 * interval '1 day'
                AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = audit_events.session_id AND s.legal_hold)
                AND NOT EXISTS (SELECT 1 FROM remote_sessions s WHERE s.id = audit_events.session_id AND s.legal_hold) LIMIT $3)",
        ] {
            let (workspace, days) = (workspace.as_str(), f64::from(days));
            swept += self.execute("sweep_audit", sql, &[text(&workspace), float8(&days), int8(&SWEEP_BATCH)]).await?;
        }
        Ok(swept)
    }
}
