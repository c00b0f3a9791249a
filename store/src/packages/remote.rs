//! Remote sessions: their turns and messages.

use bex_proto::message::{MessageRole, MessageSource, TerminalReason};
use bex_proto::{RemoteSessionId, WorkspaceId};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::Snapshot;
use crate::error::StoreError;
use crate::sql::{get, int8, large, optional_word, text, unsigned, word};

/// A remote session.
#[derive(Debug, Clone)]
pub struct RemoteSource {
    /// Whose.
    pub workspace: WorkspaceId,
    /// Which.
    pub id: RemoteSessionId,
    /// Where it stands.
    pub state: String,
    /// It has ended, and every row that its log gives was made.
    pub settled: bool,
    /// Ranges of events that never arrived.
    pub gaps: u32,
    /// What its machine counted: tokens read, tokens written, requests.
    pub counted: (u64, u64, u64),
}

/// A turn of it.
#[derive(Debug, Clone)]
pub struct RemoteTurnSource {
    /// Counted from 0.
    pub number: u64,
    /// Its id.
    pub turn_id: String,
    /// The run it is.
    pub run_id: Option<String>,
    /// A JSON list.
    pub content_blocks: String,
    /// How it ended.
    pub terminal: TerminalReason,
    /// A JSON list: events of it that never arrived.
    pub gaps: String,
    /// Something of it was too large to be kept.
    pub overflow: bool,
}

/// A message of it.
#[derive(Debug, Clone)]
pub struct RemoteMessageSource {
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
    /// That turn's run.
    pub run_id: Option<String>,
    /// How that turn ended.
    pub terminal: Option<TerminalReason>,
    /// Who spoke.
    pub model: Option<String>,
    /// When.
    pub said_at: Timestamp,
}

/// Rows of one page ...
const ROWS: i64 = 500;
/// ... and the bytes in which they begin.
const BYTES: i64 = 1024 * 1024;

const MESSAGES: &str = "
    SELECT * FROM (
        SELECT m.*, t.terminal_reason, t.run_id, sum(m.size) OVER (ORDER BY m.position) - m.size AS before
          FROM (SELECT *, octet_length(content) + COALESCE(octet_length(content_blocks), 0) AS size FROM messages
                 WHERE session_id = $1 AND position > $2 AND ($5 IS NULL OR turn_id = $5) ORDER BY position LIMIT $3) m
          LEFT JOIN remote_turns t ON t.session_id = $1 AND t.turn_id = m.turn_id) q
     WHERE q.before < $4 ORDER BY q.position";

const TURNS: &str = "
    SELECT * FROM (
        SELECT t.*, sum(octet_length(t.content_blocks)) OVER (ORDER BY t.turn_no) - octet_length(t.content_blocks) AS before
          FROM (SELECT * FROM remote_turns WHERE session_id = $1 AND turn_no > $2 AND ($5 IS NULL OR turn_id = $5)
                 ORDER BY turn_no LIMIT $3) t) q
     WHERE q.before < $4 ORDER BY q.turn_no";

fn behind(after: Option<u64>) -> i64 {
    after.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX))
}

impl Snapshot {
    /// A remote session.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn remote_session(
        &self,
        id: &RemoteSessionId,
    ) -> Result<Option<RemoteSource>, StoreError> {
        let row = self
            .query_opt(
                "package_remote_session",
                "SELECT s.workspace_id, s.id, s.state, h.gaps, s.input_tokens, s.output_tokens, s.request_count,
                        s.state IN ('completed', 'stopped', 'error') AND h.imports_waiting = 0 AND NOT h.again AS settled
                   FROM remote_sessions s JOIN remote_heads h ON h.session_id = s.id WHERE s.id = $1",
                &[text(&id.as_str())],
            )
            .await?;
        row.map(|row| {
            Ok(RemoteSource {
                workspace: word(&row, "workspace_id")?,
                id: word(&row, "id")?,
                state: get(&row, "state")?,
                settled: get(&row, "settled")?,
                gaps: unsigned(&row, "gaps")?,
                counted: (
                    large(&row, "input_tokens")?,
                    large(&row, "output_tokens")?,
                    large(&row, "request_count")?,
                ),
            })
        })
        .transpose()
    }

    /// Its turns behind a number, or one turn, in order; none is the end.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn remote_turns(
        &self,
        session: &RemoteSessionId,
        only: Option<&str>,
        after: Option<u64>,
    ) -> Result<Vec<RemoteTurnSource>, StoreError> {
        let rows = self
            .query(
                "package_remote_turns",
                TURNS,
                &[
                    text(&session.as_str()),
                    int8(&behind(after)),
                    int8(&ROWS),
                    int8(&BYTES),
                    text(&only),
                ],
            )
            .await?;
        rows.iter().map(RemoteTurnSource::read).collect()
    }

    /// Its messages behind a position, or those of one turn, in order; none is the end.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn remote_messages(
        &self,
        session: &RemoteSessionId,
        only: Option<&str>,
        after: Option<u64>,
    ) -> Result<Vec<RemoteMessageSource>, StoreError> {
        let rows = self
            .query(
                "package_remote_messages",
                MESSAGES,
                &[
                    text(&session.as_str()),
                    int8(&behind(after)),
                    int8(&ROWS),
                    int8(&BYTES),
                    text(&only),
                ],
            )
            .await?;
        rows.iter().map(RemoteMessageSource::read).collect()
    }
}

impl RemoteTurnSource {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            number: large(row, "turn_no")?,
            turn_id: get(row, "turn_id")?,
            run_id: get(row, "run_id")?,
            content_blocks: get(row, "content_blocks")?,
            terminal: word(row, "terminal_reason")?,
            gaps: get(row, "gaps")?,
            overflow: get(row, "overflow")?,
        })
    }
}

impl RemoteMessageSource {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            position: large(row, "position")?,
            id: get(row, "message_id")?,
            role: word(row, "role")?,
            content: get(row, "content")?,
            content_blocks: get(row, "content_blocks")?,
            source: word(row, "source")?,
            turn_id: get(row, "turn_id")?,
            run_id: get(row, "run_id")?,
            terminal: optional_word(row, "terminal_reason")?,
            model: get(row, "model")?,
            said_at: get(row, "said_at")?,
        })
    }
}
