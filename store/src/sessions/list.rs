//! The list: newest first, keyset pages, every filter optional.

use bex_proto::session::Phase;
use bex_proto::{SessionId, WorkspaceId, limits};
use jiff::Timestamp;

use super::{SESSION_COLUMNS, SessionRow};
use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{Param, get, int8, text, texts, time, word};
use crate::words::{Words, all_stand_in};

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
    /// All of them stand in the title or in a prompt.
    pub words: Words,
    /// Where to go on.
    pub cursor: Option<ListCursor>,
    /// Items; at most [`limits::LIST_LIMIT`].
    pub limit: u32,
}

impl Db {
    /// One page of a workspace's sessions and, when there may be more, where the next begins: words are looked for in so many sessions
    /// at a time, and the page ends there.
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
        let narrowed = format!(
            "s.workspace_id = $1 AND {archived}
                AND (cardinality($2) = 0 OR s.phase = ANY ($2))
                AND ($3 IS NULL OR s.repo = $3)
                AND ($4 IS NULL OR s.created_at < $4)
                AND ($5 IS NULL OR s.created_at > $5)
                AND ($6 IS NULL OR (s.created_at, s.id) < ($6, $7))"
        );
        let cursor_at = filter.cursor.as_ref().map(|cursor| cursor.created_at);
        let cursor_id = filter.cursor.as_ref().map(|cursor| cursor.id.as_str());
        let workspace = workspace.as_str();
        let narrow = [
            text(&workspace),
            texts(&phases),
            text(&filter.repo),
            time(&filter.created_before),
            time(&filter.created_after),
            time(&cursor_at),
            text(&cursor_id),
        ];
        let end = match filter.words.is_empty() {
            true => None,
            false => self.end_of_search(&narrowed, &narrow).await?,
        };
        let (end_at, end_id) = (
            end.as_ref().map(|end| end.created_at),
            end.as_ref().map(|end| end.id.as_str()),
        );
        let has_words = all_stand_in(
            "$9",
            "s.title",
            "turns t WHERE t.session_id = s.id",
            "t.prompt",
        );
        let sql = format!(
            "SELECT {SESSION_COLUMNS} FROM sessions s JOIN transcript_heads h ON h.session_id = s.id
              WHERE {narrowed} AND {has_words}
                AND ($10 IS NULL OR (s.created_at, s.id) >= ($10, $11))
              ORDER BY s.created_at DESC, s.id DESC LIMIT $8"
        );
        let (most, patterns) = (i64::from(limit) + 1, filter.words.patterns());
        let mut params = narrow.to_vec();
        params.extend([int8(&most), texts(&patterns), time(&end_at), text(&end_id)]);
        let rows = self.query("list_sessions", &sql, &params).await?;
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
        Ok((sessions, next.or(end)))
    }

    /// The last session that one page's search looks at; `None` when it comes to the end of the list.
    async fn end_of_search(
        &self,
        narrowed: &str,
        narrow: &[Param<'_>],
    ) -> Result<Option<ListCursor>, StoreError> {
        let sql = format!(
            "SELECT s.created_at, s.id FROM sessions s WHERE {narrowed}
              ORDER BY s.created_at DESC, s.id DESC OFFSET $8 LIMIT 1"
        );
        let before = i64::from(limits::LIST_WORDS_SESSIONS) - 1;
        let mut params = narrow.to_vec();
        params.push(int8(&before));
        let rows = self.query("end_of_search", &sql, &params).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        Ok(Some(ListCursor {
            created_at: get(row, "created_at")?,
            id: word(row, "id")?,
        }))
    }
}
