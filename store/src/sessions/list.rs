//! The list: newest first, keyset pages, every filter optional.

use bex_proto::session::Phase;
use bex_proto::{SessionId, WorkspaceId, limits};
use jiff::Timestamp;

use super::{SESSION_COLUMNS, SessionRow};
use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{int8, text, texts, time};

/// Which list states are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArchivedFilter {
    /// Not archived: the default.
    #[default]
    Without,
    /// Archived only.
    Only,
    /// Both.
    All,
}

/// Where a page ended: the next begins behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListCursor {
    /// Of the last item.
    pub created_at: Timestamp,
    /// Of the last item.
    pub id: SessionId,
}

/// What to list.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// Any of these; empty means every phase.
    pub phases: Vec<Phase>,
    /// List state.
    pub archived: ArchivedFilter,
    /// Exactly this repository.
    pub repo: Option<String>,
    /// Exclusive.
    pub created_before: Option<Timestamp>,
    /// Exclusive.
    pub created_after: Option<Timestamp>,
    /// Where to go on.
    pub cursor: Option<ListCursor>,
    /// Items; at most [`limits::LIST_LIMIT`].
    pub limit: u32,
}

impl Db {
    /// One page of a workspace's sessions and, when there are more, where the next begins.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn list_sessions(
        &self,
        workspace: &WorkspaceId,
        filter: &ListFilter,
    ) -> Result<(Vec<SessionRow>, Option<ListCursor>), StoreError> {
        let limit = filter.limit.clamp(1, limits::LIST_LIMIT);
        let phases: Vec<&str> = filter.phases.iter().map(|phase| phase.as_str()).collect();
        let archived = match filter.archived {
            ArchivedFilter::Without => "s.archived_at IS NULL",
            ArchivedFilter::Only => "s.archived_at IS NOT NULL",
            ArchivedFilter::All => "true",
        };
        let sql = format!(
            "SELECT {SESSION_COLUMNS} FROM sessions s JOIN transcript_heads h ON h.session_id = s.id
              WHERE s.workspace_id = $1 AND {archived}
                AND (cardinality($2) = 0 OR s.phase = ANY ($2))
                AND ($3 IS NULL OR s.repo = $3)
                AND ($4 IS NULL OR s.created_at < $4)
                AND ($5 IS NULL OR s.created_at > $5)
                AND ($6 IS NULL OR (s.created_at, s.id) < ($6, $7))
              ORDER BY s.created_at DESC, s.id DESC LIMIT $8"
        );
        let cursor_at = filter.cursor.as_ref().map(|cursor| cursor.created_at);
        let cursor_id = filter.cursor.as_ref().map(|cursor| cursor.id.as_str());
        let rows = self
            .query(
                "list_sessions",
                &sql,
                &[
                    text(&workspace.as_str()),
                    texts(&phases),
                    text(&filter.repo),
                    time(&filter.created_before),
                    time(&filter.created_after),
                    time(&cursor_at),
                    text(&cursor_id),
                    int8(&(i64::from(limit) + 1)),
                ],
            )
            .await?;
        let mut sessions = rows
            .iter()
            .map(SessionRow::read)
            .collect::<Result<Vec<_>, _>>()?;
        let more = sessions.len() > limit as usize;
        sessions.truncate(limit as usize);
        let next = sessions.last().filter(|_| more);
        let next = next.map(|last| ListCursor {
            created_at: last.created_at,
            id: last.id.clone(),
        });
        Ok((sessions, next))
    }
}
