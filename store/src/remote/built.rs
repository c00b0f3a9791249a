//! Rows made from the log: turns, messages, counters and the builder's cursor in one transaction.

use bex_proto::message::{MessageRole, MessageSource, TerminalReason};
use bex_proto::{RemoteSessionId, RunId};
use jiff::Timestamp;

use super::log::signed;
use super::sessions::RemoteHead;
use crate::error::StoreError;
use crate::pool::{Db, Tx};
use crate::sql::{get, int4, int8, int8s, text, texts, times};
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

const TURNS: &str = "
    INSERT INTO remote_turns (session_id, turn_id, turn_no, visible_text, content_blocks, tool_call_ids, evidence_ids,
                              terminal_reason, gaps, overflow, source, model, first_index, last_index, started_at,
                              completed_at, text_sha256, run_id)
    SELECT $1, u.* FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) AS u";

/// Positions that are taken: only when rows are made again are there any from the next one on.
const TAKEN: &str = "
    SELECT position FROM messages WHERE session_id = $1 AND position >= $2 ORDER BY position";

const MESSAGES: &str = "
    INSERT INTO messages (session_id, position, message_id, role, content, content_blocks, source, turn_id, model, said_at)
    SELECT $1, u.* FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10) AS u";

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

    /// Keeps a session from being deleted until this ends. Who deletes takes the session before its head, so whoever writes rows of a session
    /// does too.
    pub(super) async fn keep_remote(&self, session: &RemoteSessionId) -> Result<(), StoreError> {
        self.query_opt(
            "keep_remote",
            "SELECT 1 FROM remote_sessions WHERE id = $1 FOR KEY SHARE",
            &[text(&session.as_str())],
        )
        .await
        .map(drop)
    }

    /// The first `count` positions from `from` on that no row has.
    async fn free_positions(
        &self,
        session: &RemoteSessionId,
        from: u64,
        count: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let taken = self
            .query(
                "free_positions",
                TAKEN,
                &[text(&session.as_str()), int8(&signed(from))],
            )
            .await?;
        let mut taken = taken.iter().map(|row| get::<i64>(row, "position"));
        let mut next = taken.next().transpose()?;
        let mut free = Vec::with_capacity(count);
        let mut at = signed(from);
        while free.len() < count {
            if next == Some(at) {
                next = taken.next().transpose()?;
            } else {
                free.push(at);
            }
            at += 1;
        }
        Ok(free)
    }

    /// Inserts messages, each at its position.
    pub(super) async fn insert_messages(
        &self,
        session: &RemoteSessionId,
        positions: &[i64],
        new: &[NewMessage<'_>],
    ) -> Result<(), StoreError> {
        if new.is_empty() {
            return Ok(());
        }
        let roles: Vec<&str> = new.iter().map(|new| new.role.as_str()).collect();
        let sources: Vec<&str> = new.iter().map(|new| new.source.as_str()).collect();
        let ids: Vec<&str> = new.iter().map(|new| new.message.id.as_str()).collect();
        let contents: Vec<&str> = new.iter().map(|new| new.message.content.as_str()).collect();
        let blocks: Vec<Option<&str>> = new
            .iter()
            .map(|new| new.message.content_blocks.as_deref())
            .collect();
        let turns: Vec<Option<&str>> = new.iter().map(|new| new.turn).collect();
        let models: Vec<Option<&str>> = new.iter().map(|new| new.model).collect();
        let at: Vec<Timestamp> = new.iter().map(|new| new.at).collect();
        self.execute(
            "insert_messages",
            MESSAGES,
            &[
                text(&session.as_str()),
                int8s(&positions),
                texts(&ids),
                texts(&roles),
                texts(&contents),
                texts(&blocks),
                texts(&sources),
                texts(&turns),
                texts(&models),
                times(&at),
            ],
        )
        .await
        .map(drop)
    }

    async fn insert_origins(
        &self,
        session: &RemoteSessionId,
        origins: &[&str],
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

    /// Inserts turns, numbered from `first` on.
    async fn insert_remote_turns(
        &self,
        session: &RemoteSessionId,
        first: u64,
        turns: &[&TurnRow],
    ) -> Result<(), StoreError> {
        if turns.is_empty() {
            return Ok(());
        }
        let column = |of: fn(&TurnRow) -> &str| turns.iter().map(|turn| of(turn)).collect();
        let optional =
            |of: fn(&TurnRow) -> Option<&str>| turns.iter().map(|turn| of(turn)).collect();
        let event = |of: fn((u64, u64)) -> u64| {
            let events = turns.iter().map(|turn| turn.events);
            events.map(|events| events.map(of).map(signed)).collect()
        };
        let time_of = |of: fn(&TurnRow) -> Timestamp| turns.iter().map(|turn| of(turn)).collect();
        let runs = turns
            .iter()
            .map(|turn| RunId::of_remote(session, &turn.turn_id));
        let runs: Vec<String> = runs.map(|run| run.to_string()).collect();
        let numbers: Vec<i64> = (signed(first)..).take(turns.len()).collect();
        let overflow: Vec<bool> = turns.iter().map(|turn| turn.overflow).collect();
        let (ids, said, blocks): (Vec<&str>, Vec<&str>, Vec<&str>) = (
            column(|turn| &turn.turn_id),
            column(|turn| &turn.visible_text),
            column(|turn| &turn.content_blocks),
        );
        let (calls, evidence, gaps): (Vec<&str>, Vec<&str>, Vec<&str>) = (
            column(|turn| &turn.tool_call_ids),
            column(|turn| &turn.evidence_ids),
            column(|turn| &turn.gaps),
        );
        let (terminal, source): (Vec<&str>, Vec<&str>) = (
            column(|turn| turn.terminal.as_str()),
            column(|turn| turn.source.as_str()),
        );
        let (models, digests): (Vec<Option<&str>>, Vec<Option<&str>>) = (
            optional(|turn| turn.model.as_deref()),
            optional(|turn| turn.text_sha256.as_deref()),
        );
        let (from, to): (Vec<Option<i64>>, Vec<Option<i64>>) =
            (event(|(from, _)| from), event(|(_, to)| to));
        let (started, completed): (Vec<Timestamp>, Vec<Timestamp>) = (
            time_of(|turn| turn.started_at),
            time_of(|turn| turn.completed_at),
        );
        self.execute(
            "insert_turns",
            TURNS,
            &[
                text(&session.as_str()),
                texts(&ids),
                int8s(&numbers),
                texts(&said),
                texts(&blocks),
                texts(&calls),
                texts(&evidence),
                texts(&terminal),
                texts(&gaps),
                (&overflow, tokio_postgres::types::Type::BOOL_ARRAY),
                texts(&source),
                texts(&models),
                int8s(&from),
                int8s(&to),
                times(&started),
                times(&completed),
                texts(&digests),
                texts(&runs),
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
        } else {
            tx.keep_remote(session).await?;
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
        if !write.rows.is_empty() {
            tx.write_rows(session, write.rows, &mut counters).await?;
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
                    -- of rows made again, imports and what came late are not read once more
                    seen_bytes = CASE WHEN GREATEST(seen_index, $6) >= high_index THEN bytes ELSE seen_bytes + $7 END,
                    next_position = $8, message_count = $9, turn_count = $10,
                    revision = revision + 1, imports_waiting = imports_waiting - $11,
                    again = again AND (GREATEST(seen_index, $6) < next_index OR imports_waiting > $11)
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
                    revision = revision + 1, next_position = 0, turn_count = 0, again = true, seen_at = now(),
                    chat_position = GREATEST(chat_position, next_position),
                    message_count = (SELECT count(*) FROM messages m WHERE m.session_id = $1),
                    imports_waiting = (SELECT count(*) FROM remote_imports i WHERE i.session_id = $1)
              WHERE h.session_id = $1",
        ] {
            tx.execute("reset_built", sql, &[text(&session.as_str())])
                .await?;
        }
        tx.notify(Channel::Remote, session.as_str()).await?;
        tx.commit().await?;
        Ok(true)
    }
}

impl Tx<'_> {
    /// Writes rows in their order, each kind in one statement.
    async fn write_rows(
        &self,
        session: &RemoteSessionId,
        rows: &[BuiltRow],
        counters: &mut Counters,
    ) -> Result<(), StoreError> {
        let mut turns: Vec<&TurnRow> = Vec::new();
        let mut messages = Vec::new();
        let mut all: Vec<&str> = Vec::new();
        for row in rows {
            let (new, origins) = match row {
                BuiltRow::Turn(turn) => {
                    turns.push(turn);
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
            all.extend(origins.iter().map(String::as_str));
            messages.extend(new);
        }
        self.insert_remote_turns(session, counters.turns, &turns)
            .await?;
        self.insert_origins(session, &all).await?;
        // one more: the next row's
        let mut positions = self
            .free_positions(session, counters.position, messages.len() + 1)
            .await?;
        let next = positions.pop().and_then(|next| u64::try_from(next).ok());
        self.insert_messages(session, &positions, &messages).await?;
        counters.position = next.unwrap_or(counters.position);
        counters.turns += turns.len() as u64;
        counters.messages += messages.len() as u64;
        Ok(())
    }
}
