//! Reading rows: messages by position, turns by number, both in keyset pages.

use bex_proto::message::{MessageRole, MessageSource, TerminalReason};
use bex_proto::{RemoteSessionId, RunId, limits};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::log::signed;
use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, int8, large, optional_word, text, word};

/// One message.
#[derive(Debug, Clone)]
pub struct MessageRow {
    /// Its place.
    pub position: u64,
    /// Its id.
    pub id: String,
    /// Who speaks.
    pub role: MessageRole,
    /// Text.
    pub content: String,
    /// A JSON list.
    pub content_blocks: Option<String>,
    /// Where it is from.
    pub source: MessageSource,
    /// The turn it tells.
    pub turn_id: Option<String>,
    /// How that turn ended.
    pub terminal: Option<TerminalReason>,
    /// The run that turn is; turns from before runs were given have none.
    pub run: Option<RunId>,
    /// Who spoke.
    pub model: Option<String>,
    /// When.
    pub said_at: Timestamp,
}

/// One turn.
#[derive(Debug, Clone)]
pub struct NumberedTurn {
    /// Counted from 0.
    pub number: u64,
    /// Its row.
    pub turn: super::RemoteTurnRow,
    /// The run it is; turns from before runs were given have none.
    pub run: Option<RunId>,
}

const MESSAGES: &str = "
    SELECT * FROM (
        SELECT m.*, t.terminal_reason, t.run_id,
               sum(octet_length(m.content) + COALESCE(octet_length(m.content_blocks), 0)) OVER (ORDER BY m.position)
                   - octet_length(m.content) - COALESCE(octet_length(m.content_blocks), 0) AS before
          FROM (SELECT * FROM messages WHERE session_id = $1 AND position > $2 ORDER BY position LIMIT $3) m
          LEFT JOIN remote_turns t ON t.session_id = $1 AND t.turn_id = m.turn_id) q
     WHERE q.before < $4 ORDER BY q.position";

const TURNS: &str = "
    SELECT * FROM (
        SELECT t.*, sum(octet_length(t.content_blocks)) OVER (ORDER BY t.turn_no) - octet_length(t.content_blocks) AS before
          FROM (SELECT * FROM remote_turns WHERE session_id = $1 AND turn_no > $2 ORDER BY turn_no LIMIT $3) t) q
     WHERE q.before < $4 ORDER BY q.turn_no";

impl MessageRow {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            position: large(row, "position")?,
            id: get(row, "message_id")?,
            role: word(row, "role")?,
            content: get(row, "content")?,
            content_blocks: get(row, "content_blocks")?,
            source: word(row, "source")?,
            turn_id: get(row, "turn_id")?,
            terminal: optional_word(row, "terminal_reason")?,
            run: optional_word(row, "run_id")?,
            model: get(row, "model")?,
            said_at: get(row, "said_at")?,
        })
    }
}

impl NumberedTurn {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let first: Option<i64> = get(row, "first_index")?;
        let last: Option<i64> = get(row, "last_index")?;
        let index = |n: i64| {
            u64::try_from(n).map_err(|_| StoreError::Corrupt {
                what: "first_index",
            })
        };
        Ok(Self {
            number: large(row, "turn_no")?,
            run: optional_word(row, "run_id")?,
            turn: super::RemoteTurnRow {
                turn_id: get(row, "turn_id")?,
                visible_text: get(row, "visible_text")?,
                content_blocks: get(row, "content_blocks")?,
                tool_call_ids: get(row, "tool_call_ids")?,
                evidence_ids: get(row, "evidence_ids")?,
                terminal: word(row, "terminal_reason")?,
                gaps: get(row, "gaps")?,
                overflow: get(row, "overflow")?,
                source: word(row, "source")?,
                model: get(row, "model")?,
                events: match (first, last) {
                    (Some(first), Some(last)) => Some((index(first)?, index(last)?)),
                    _ => None,
                },
                started_at: get(row, "started_at")?,
                completed_at: get(row, "completed_at")?,
                text_sha256: get(row, "text_sha256")?,
                origins: Vec::new(),
                message: None,
            },
        })
    }
}

/// Keyset: a row behind `after`; −1 stands before the first.
fn behind(after: Option<u64>) -> i64 {
    after.map_or(-1, signed)
}

impl Db {
    /// Messages behind `after`, in order: at most `limit` and about [`limits::MESSAGES_PAGE_BYTES`], one at least where there is one.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn messages(
        &self,
        session: &RemoteSessionId,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Vec<MessageRow>, StoreError> {
        let bytes = i64::try_from(limits::MESSAGES_PAGE_BYTES).unwrap_or(i64::MAX);
        let rows = self
            .query(
                "messages",
                MESSAGES,
                &[
                    text(&session.as_str()),
                    int8(&behind(after)),
                    int8(&i64::from(limit)),
                    int8(&bytes),
                ],
            )
            .await?;
        rows.iter().map(MessageRow::read).collect()
    }

    /// The position of the last message; `None` where there is none.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn newest_message(
        &self,
        session: &RemoteSessionId,
    ) -> Result<Option<u64>, StoreError> {
        let row = self
            .query_opt(
                "newest_message",
                "SELECT position FROM messages WHERE session_id = $1 ORDER BY position DESC LIMIT 1",
                &[text(&session.as_str())],
            )
            .await?;
        row.map(|row| large(&row, "position")).transpose()
    }

    /// Turns behind `after`, likewise.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn remote_turns(
        &self,
        session: &RemoteSessionId,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Vec<NumberedTurn>, StoreError> {
        let bytes = i64::try_from(limits::MESSAGES_PAGE_BYTES).unwrap_or(i64::MAX);
        let rows = self
            .query(
                "remote_turns",
                TURNS,
                &[
                    text(&session.as_str()),
                    int8(&behind(after)),
                    int8(&i64::from(limit)),
                    int8(&bytes),
                ],
            )
            .await?;
        rows.iter().map(NumberedTurn::read).collect()
    }
}
