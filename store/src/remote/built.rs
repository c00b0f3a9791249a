//! Rows made from the log: turns, messages, counters and the builder's cursor in one transaction.

use bex_proto::RemoteSessionId;
use bex_proto::message::{MessageRole, MessageSource, TerminalReason};
use jiff::Timestamp;

use super::log::signed;
use super::sessions::RemoteHead;
use crate::error::StoreError;
use crate::pool::{Db, Tx};
use crate::sql::{boolean, get, int4, int8, large, text, texts, time};
use crate::wake::Channel;

/// A turn to write.
#[derive(Debug, Clone)]
pub struct TurnRow {
    /// Its id, derived from where it began.
    pub turn_id: String,
    /// Joined text.
    pub visible_text: String,
    /// Blocks, a JSON list.
    pub content_blocks: String,
    /// A JSON list.
    pub tool_call_ids: String,
    /// A JSON list.
    pub evidence_ids: String,
    /// How it ended.
    pub terminal: TerminalReason,
    /// A JSON list of ranges.
    pub gaps: String,
    /// Something of it was too large.
    pub overflow: bool,
    /// Where it is from.
    pub source: MessageSource,
    /// Who spoke.
    pub model: Option<String>,
    /// First and last event, where it is from the log.
    pub events: Option<(u64, u64)>,
    /// Its first event's time.
    pub started_at: Timestamp,
    /// Its last event's time.
    pub completed_at: Timestamp,
    /// Of the visible text, where it is not blank.
    pub text_sha256: Option<String>,
    /// What providers call its pieces.
    pub origins: Vec<String>,
    /// The message, where the policy wants one.
    pub message: Option<MessageText>,
}

/// What a message row says.
#[derive(Debug, Clone)]
pub struct MessageText {
    /// Its id.
    pub id: String,
    /// Text, as it was said.
    pub content: String,
    /// A JSON list.
    pub content_blocks: Option<String>,
}

/// One row to write, in log order.
#[derive(Debug, Clone)]
pub enum BuiltRow {
    /// A turn that ended.
    Turn(Box<TurnRow>),
    /// A system or user row.
    Message {
        /// Who speaks.
        role: MessageRole,
        /// Where it is from.
        source: MessageSource,
        /// What.
        message: MessageText,
        /// When.
        at: Timestamp,
        /// What providers call it.
        origins: Vec<String>,
    },
}

/// What one pass of a builder came to.
#[derive(Debug, Clone)]
pub struct WriteBuilt<'a> {
    /// The session.
    pub session: &'a RemoteSessionId,
    /// The head that the pass began with: if it moved, nothing is written.
    pub revision: u64,
    /// Rows in order.
    pub rows: &'a [BuiltRow],
    /// Rows of the log that are done now, these and those that came to nothing included.
    pub built: u64,
    /// Where a builder may start.
    pub cursor: (u64, u32, u64),
    /// How far the log was read, and the charged bytes of what was read for the first time.
    pub seen: (u64, u64),
    /// The program's own session id, if it was told.
    pub cli_session: Option<&'a str>,
    /// The import these rows are from, which is done then.
    pub import: Option<&'a str>,
    /// Everything is read: the session may end as it was told to.
    pub finish: bool,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// All of it.
    Done,
    /// Somebody else was first, or there is more to read: look again.
    Stale,
}

const TURN: &str = "
    INSERT INTO remote_turns (session_id, turn_id, turn_no, visible_text, content_blocks, tool_call_ids, evidence_ids,
                              terminal_reason, gaps, overflow, source, model, first_index, last_index, started_at,
                              completed_at, text_sha256)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)";

/// The first position from `$2` on that no row has: only when rows are made again are there later ones.
const FREE: &str = "
    SELECT p AS position FROM generate_series($2, $2 + (SELECT count(*) FROM messages m
             WHERE m.session_id = $1 AND m.position >= $2)) AS p
     WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = $1 AND m.position = p) ORDER BY p LIMIT 1";

const MESSAGE: &str = "
    INSERT INTO messages (session_id, position, message_id, role, content, content_blocks, source, turn_id, model, said_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

pub(super) struct NewMessage<'a> {
    pub(super) role: MessageRole,
    pub(super) source: MessageSource,
    pub(super) message: &'a MessageText,
    pub(super) turn: Option<&'a str>,
    pub(super) model: Option<&'a str>,
    pub(super) at: Timestamp,
}

impl Tx<'_> {
    pub(super) async fn remote_head(
        &self,
        session: &RemoteSessionId,
    ) -> Result<Option<RemoteHead>, StoreError> {
        let row = self
            .query_opt(
                "remote_head",
                "SELECT h.* FROM remote_heads h WHERE h.session_id = $1 FOR UPDATE",
                &[text(&session.as_str())],
            )
            .await?;
        row.as_ref().map(RemoteHead::read).transpose()
    }

    /// Inserts a message at the first free position from `from` on, and returns it.
    pub(super) async fn insert_message(
        &self,
        session: &RemoteSessionId,
        from: u64,
        new: &NewMessage<'_>,
    ) -> Result<u64, StoreError> {
        let row = self
            .query_one(
                "insert_message",
                FREE,
                &[text(&session.as_str()), int8(&signed(from))],
            )
            .await?;
        let position = large(&row, "position")?;
        self.execute(
            "insert_message",
            MESSAGE,
            &[
                text(&session.as_str()),
                int8(&signed(position)),
                text(&new.message.id),
                text(&new.role.as_str()),
                text(&new.message.content),
                text(&new.message.content_blocks),
                text(&new.source.as_str()),
                text(&new.turn),
                text(&new.model),
                time(&new.at),
            ],
        )
        .await?;
        Ok(position)
    }

    async fn insert_origins(
        &self,
        session: &RemoteSessionId,
        origins: &[String],
    ) -> Result<(), StoreError> {
        if origins.is_empty() {
            return Ok(());
        }
        self.execute(
            "insert_origins",
            "INSERT INTO message_origins (session_id, origin) SELECT $1, o FROM unnest($2) AS o ON CONFLICT DO NOTHING",
            &[text(&session.as_str()), texts(&origins)],
        )
        .await
        .map(drop)
    }

    async fn insert_remote_turn(
        &self,
        session: &RemoteSessionId,
        number: u64,
        turn: &TurnRow,
    ) -> Result<(), StoreError> {
        let first = turn.events.map(|(first, _)| signed(first));
        let last = turn.events.map(|(_, last)| signed(last));
        self.execute(
            "insert_turn",
            TURN,
            &[
                text(&session.as_str()),
                text(&turn.turn_id),
                int8(&signed(number)),
                text(&turn.visible_text),
                text(&turn.content_blocks),
                text(&turn.tool_call_ids),
                text(&turn.evidence_ids),
                text(&turn.terminal.as_str()),
                text(&turn.gaps),
                boolean(&turn.overflow),
                text(&turn.source.as_str()),
                text(&turn.model),
                int8(&first),
                int8(&last),
                time(&turn.started_at),
                time(&turn.completed_at),
                text(&turn.text_sha256),
            ],
        )
        .await
        .map(drop)
    }
}

/// How far rows and counters have come within one transaction.
struct Counters {
    position: u64,
    turns: u64,
    messages: u64,
}

impl Db {
    /// Of these origins, those that were told in this session.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn known_origins(
        &self,
        session: &RemoteSessionId,
        origins: &[String],
    ) -> Result<Vec<String>, StoreError> {
        let rows = self
            .query(
                "known_origins",
                "SELECT origin FROM message_origins WHERE session_id = $1 AND origin = ANY ($2)",
                &[text(&session.as_str()), texts(&origins)],
            )
            .await?;
        rows.iter().map(|row| get(row, "origin")).collect()
    }

    /// How many turns of this session said exactly this.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn turns_saying(
        &self,
        session: &RemoteSessionId,
        text_sha256: &str,
    ) -> Result<u64, StoreError> {
        let row = self
            .query_one(
                "turns_saying",
                "SELECT count(*) AS turns FROM remote_turns WHERE session_id = $1 AND text_sha256 = $2",
                &[text(&session.as_str()), text(&text_sha256)],
            )
            .await?;
        large(&row, "turns")
    }

    /// Writes what a pass came to, if nobody was first.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn write_built(&self, write: &WriteBuilt<'_>) -> Result<Written, StoreError> {
        let session = write.session;
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        if write.finish || write.cli_session.is_some() {
            tx.remote_state(session).await?;
        }
        let head = match tx.remote_head(session).await? {
            Some(head) if head.revision == write.revision => head,
            _ => return Ok(Written::Stale),
        };
        if write.finish && head.next_index > write.seen.0 {
            return Ok(Written::Stale);
        }
        let mut counters = Counters {
            position: head.next_position,
            turns: head.turn_count,
            messages: head.message_count,
        };
        for row in write.rows {
            tx.write_row(session, row, &mut counters).await?;
        }
        if let Some(sha256) = write.import {
            tx.execute(
                "write_built",
                "UPDATE remote_imports SET applied = true WHERE session_id = $1 AND sha256 = $2",
                &[text(&session.as_str()), text(&sha256)],
            )
            .await?;
        }
        tx.execute(
            "write_built",
            "UPDATE remote_heads
                SET built = $2, cursor_index = $3, cursor_offset = $4, cursor_ordinal = $5, seen_index = GREATEST(seen_index, $6), seen_at = now(),
                    seen_bytes = seen_bytes + $7, next_position = $8, message_count = $9, turn_count = $10,
                    revision = revision + 1, imports_waiting = imports_waiting - $11
              WHERE session_id = $1",
            &[
                text(&session.as_str()),
                int8(&signed(write.built)),
                int8(&signed(write.cursor.0)),
                int4(&i32::try_from(write.cursor.1).unwrap_or(i32::MAX)),
                int8(&signed(write.cursor.2)),
                int8(&signed(write.seen.0)),
                int8(&signed(write.seen.1)),
                int8(&signed(counters.position)),
                int8(&signed(counters.messages)),
                int8(&signed(counters.turns)),
                int4(&i32::from(write.import.is_some())),
            ],
        )
        .await?;
        if let Some(cli) = write.cli_session {
            tx.execute(
                "write_built",
                "UPDATE remote_sessions SET cli_session_id = $2 WHERE id = $1 AND cli_session_id IS NULL",
                &[text(&session.as_str()), text(&cli)],
            )
            .await?;
        }
        if write.finish {
            tx.execute(
                "write_built",
                "UPDATE remote_sessions SET state = ending_as, ended_at = now(), updated_at = now()
                  WHERE id = $1 AND state = 'ending'",
                &[text(&session.as_str())],
            )
            .await?;
            tx.execute(
                "write_built",
                "UPDATE remote_commands SET state = 'void', done_at = now() WHERE session_id = $1 AND state = 'waiting'",
                &[text(&session.as_str())],
            )
            .await?;
        }
        if write.finish || !write.rows.is_empty() {
            tx.notify(Channel::Remote, session.as_str()).await?;
        }
        tx.commit().await?;
        Ok(Written::Done)
    }

    /// Drops every turn and message that can be made again, so that a builder makes them anew: chats' rows come back from their commands.
    /// `false`: there is no such session, or a part of its log was removed.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn reset_built(&self, session: &RemoteSessionId) -> Result<bool, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        tx.remote_state(session).await?;
        let head = tx.remote_head(session).await?;
        if head.is_none_or(|head| head.first_index > 0) {
            return Ok(false);
        }
        for sql in [
            "DELETE FROM messages WHERE session_id = $1",
            "DELETE FROM remote_turns WHERE session_id = $1",
            "DELETE FROM message_origins WHERE session_id = $1",
            "UPDATE remote_imports SET applied = false WHERE session_id = $1",
            "INSERT INTO messages (session_id, position, message_id, role, content, source, said_at)
             SELECT c.session_id, c.position, 'msg-' || substr(c.id, 5), 'user', c.payload::json ->> 'content', 'chat', c.created_at
               FROM remote_commands c WHERE c.session_id = $1 AND c.position IS NOT NULL",
            "UPDATE remote_heads h
                SET built = 0, cursor_index = 0, cursor_offset = 0, cursor_ordinal = 0, seen_index = 0, seen_bytes = 0,
                    revision = revision + 1, next_position = 0, turn_count = 0,
                    message_count = (SELECT count(*) FROM messages m WHERE m.session_id = $1),
                    imports_waiting = (SELECT count(*) FROM remote_imports i WHERE i.session_id = $1)
              WHERE h.session_id = $1",
        ] {
            tx.execute("reset_built", sql, &[text(&session.as_str())])
                .await?;
        }
        tx.commit().await?;
        Ok(true)
    }
}

impl Tx<'_> {
    async fn write_row(
        &self,
        session: &RemoteSessionId,
        row: &BuiltRow,
        counters: &mut Counters,
    ) -> Result<(), StoreError> {
        let (new, origins) = match row {
            BuiltRow::Turn(turn) => {
                self.insert_remote_turn(session, counters.turns, turn)
                    .await?;
                counters.turns += 1;
                let new = turn.message.as_ref().map(|message| NewMessage {
                    role: MessageRole::Assistant,
                    source: turn.source,
                    message,
                    turn: Some(&turn.turn_id),
                    model: turn.model.as_deref(),
                    at: turn.completed_at,
                });
                (new, &turn.origins)
            }
            BuiltRow::Message {
                role,
                source,
                message,
                at,
                origins,
            } => {
                let new = NewMessage {
                    role: *role,
                    source: *source,
                    message,
                    turn: None,
                    model: None,
                    at: *at,
                };
                (Some(new), origins)
            }
        };
        self.insert_origins(session, origins).await?;
        if let Some(new) = new {
            counters.position = self
                .insert_message(session, counters.position, &new)
                .await?
                + 1;
            counters.messages += 1;
        }
        Ok(())
    }
}
