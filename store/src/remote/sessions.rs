//! Remote sessions' rows: creating, reading, listing, and the moves of their state.

use bex_proto::remote::{Activity, Answer, Operation, RemoteState};
use bex_proto::session::SessionKind;
use bex_proto::{MachineId, RemoteSessionId, WorkspaceId, limits};
use jiff::Timestamp;
use tokio_postgres::Row;

use crate::error::StoreError;
use crate::idempotency::{Idempotency, KnownAnswer};
use crate::pool::{Db, Tx};
use crate::sql::{Param, get, int8, large, optional_word, text, time, unsigned, word};
use crate::wake::Channel;
use crate::words::{Words, all_stand_in};

/// One remote session with its counters.
#[derive(Debug, Clone)]
pub struct RemoteSessionRow {
    /// Its id.
    pub id: RemoteSessionId,
    /// The owner.
    pub workspace: WorkspaceId,
    /// Whose reports it takes.
    pub machine: MachineId,
    /// The policy of its messages.
    pub kind: SessionKind,
    /// What it is.
    pub activity: Activity,
    /// Of a workflow's step.
    pub workflow_id: Option<String>,
    /// For people.
    pub title: Option<String>,
    /// Where it works on the machine.
    pub project_path: Option<String>,
    /// What runs there.
    pub cli_tool: Option<String>,
    /// The model that was asked for.
    pub model: Option<String>,
    /// Who created it.
    pub created_by: String,
    /// Where it stands.
    pub state: RemoteState,
    /// How it ends or ended.
    pub ending_as: Option<RemoteState>,
    /// How many events its machine says there are.
    pub ending_index: Option<u64>,
    /// Why it failed, in the machine's words.
    pub error: Option<String>,
    /// The program's own session id.
    pub cli_session_id: Option<String>,
    /// Tokens and requests, from usage reports.
    pub usage: [u64; 5],
    /// Refuses deletion.
    pub legal_hold: bool,
    /// When.
    pub created_at: Timestamp,
    /// Last move.
    pub updated_at: Timestamp,
    /// When it was paused.
    pub paused_at: Option<Timestamp>,
    /// When its end was known.
    pub ending_since: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// List state.
    pub archived_at: Option<Timestamp>,
    /// Its log and rows.
    pub head: RemoteHead,
    /// When this was read, by the store's clock.
    pub now: Timestamp,
}

/// The counters of a session's log and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteHead {
    /// The first event that is missing.
    pub next_index: u64,
    /// One above the highest that is there.
    pub high_index: u64,
    /// Events below were removed by the retention.
    pub first_index: u64,
    /// Log bytes, charges included.
    pub bytes: u64,
    /// Where a builder may start: event, byte of its data, rows before it.
    pub cursor: (u64, u32, u64),
    /// Rows that were written from the log.
    pub built: u64,
    /// How far the builder has read.
    pub seen_index: u64,
    /// Raised by whoever writes rows.
    pub revision: u64,
    /// The next row's position.
    pub next_position: u64,
    /// Rows of messages.
    pub message_count: u64,
    /// Rows of turns.
    pub turn_count: u64,
    /// Imports whose rows are not written.
    pub imports_waiting: u32,
    /// Gaps that were decided.
    pub gaps: u32,
}

/// A session to create. The caller has checked lengths and words.
#[derive(Debug, Clone)]
pub struct NewRemoteSession {
    /// A fresh id.
    pub id: RemoteSessionId,
    /// The owner.
    pub workspace: WorkspaceId,
    /// One of the workspace's.
    pub machine: MachineId,
    /// Autonomous exactly when there is a workflow id.
    pub kind: SessionKind,
    /// Workflow exactly when there is a workflow id.
    pub activity: Activity,
    /// See `kind`.
    pub workflow_id: Option<String>,
    /// For people.
    pub title: Option<String>,
    /// Where it works.
    pub project_path: Option<String>,
    /// What runs there.
    pub cli_tool: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// Who creates it.
    pub created_by: String,
    /// The caller's key.
    pub idempotency: Option<Idempotency>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteCreated {
    /// It is there.
    New,
    /// The key made this one before.
    Replayed(RemoteSessionId),
    /// The key was used with another body.
    KeyConflict,
    /// The workspace is being deleted: it takes nothing new.
    WorkspaceDeleting,
}

/// What to list.
#[derive(Debug, Clone, Default)]
pub struct RemoteListFilter {
    /// Any of these; empty means every state.
    pub states: Vec<RemoteState>,
    /// Archived ones too, or only: as with agent sessions.
    pub archived: crate::sessions::ArchivedFilter,
    /// Of this machine.
    pub machine: Option<MachineId>,
    /// All of them stand in the title or in what a person said.
    pub words: Words,
    /// Where the last page ended.
    pub cursor: Option<(Timestamp, RemoteSessionId)>,
    /// Items.
    pub limit: u32,
}

/// What became of a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// Done, or so already.
    Done(Answer),
    /// There is no such session.
    NotFound,
}

/// How a session ends.
#[derive(Debug, Clone, Copy)]
pub struct Ending<'a> {
    /// Completed, stopped or error.
    pub as_: RemoteState,
    /// How many events there are, where that is known.
    pub events: Option<u64>,
    /// Why it failed.
    pub error: Option<&'a str>,
}

pub(super) const COLUMNS: &str = "s.id, s.workspace_id, s.machine_id, s.kind, s.activity, s.workflow_id, s.title, \
    s.project_path, s.cli_tool, s.model, s.created_by, s.state, s.ending_as, s.ending_index, s.ending_since, s.error, \
    s.cli_session_id, s.input_tokens, s.output_tokens, s.cache_read_tokens, s.cache_write_tokens, s.request_count, \
    s.legal_hold, s.created_at, s.updated_at, s.paused_at, s.ended_at, s.archived_at, h.next_index, h.high_index, \
    h.first_index, h.bytes, h.cursor_index, h.cursor_offset, h.cursor_ordinal, h.built, h.seen_index, h.revision, \
    h.next_position, h.message_count, h.turn_count, h.imports_waiting, h.gaps, clock_timestamp() AS now";

impl RemoteHead {
    pub(super) fn read(row: &Row) -> Result<Self, StoreError> {
        let offset =
            u32::try_from(get::<i32>(row, "cursor_offset")?).map_err(|_| StoreError::Corrupt {
                what: "cursor_offset",
            })?;
        Ok(Self {
            next_index: large(row, "next_index")?,
            high_index: large(row, "high_index")?,
            first_index: large(row, "first_index")?,
            bytes: large(row, "bytes")?,
            cursor: (
                large(row, "cursor_index")?,
                offset,
                large(row, "cursor_ordinal")?,
            ),
            built: large(row, "built")?,
            seen_index: large(row, "seen_index")?,
            revision: large(row, "revision")?,
            next_position: large(row, "next_position")?,
            message_count: large(row, "message_count")?,
            turn_count: large(row, "turn_count")?,
            imports_waiting: unsigned(row, "imports_waiting")?,
            gaps: unsigned(row, "gaps")?,
        })
    }
}

impl RemoteSessionRow {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: word(row, "id")?,
            workspace: word(row, "workspace_id")?,
            machine: word(row, "machine_id")?,
            kind: word(row, "kind")?,
            activity: word(row, "activity")?,
            workflow_id: get(row, "workflow_id")?,
            title: get(row, "title")?,
            project_path: get(row, "project_path")?,
            cli_tool: get(row, "cli_tool")?,
            model: get(row, "model")?,
            created_by: get(row, "created_by")?,
            state: word(row, "state")?,
            ending_as: optional_word(row, "ending_as")?,
            ending_index: get::<Option<i64>>(row, "ending_index")?
                .map(u64::try_from)
                .transpose()
                .map_err(|_| StoreError::Corrupt {
                    what: "ending_index",
                })?,
            error: get(row, "error")?,
            cli_session_id: get(row, "cli_session_id")?,
            usage: [
                large(row, "input_tokens")?,
                large(row, "output_tokens")?,
                large(row, "cache_read_tokens")?,
                large(row, "cache_write_tokens")?,
                large(row, "request_count")?,
            ],
            legal_hold: get(row, "legal_hold")?,
            created_at: get(row, "created_at")?,
            updated_at: get(row, "updated_at")?,
            paused_at: get(row, "paused_at")?,
            ending_since: get(row, "ending_since")?,
            ended_at: get(row, "ended_at")?,
            archived_at: get(row, "archived_at")?,
            head: RemoteHead::read(row)?,
            now: get(row, "now")?,
        })
    }
}

impl Tx<'_> {
    /// Locks a session's row and says where it stands.
    pub(super) async fn remote_state(
        &self,
        session: &RemoteSessionId,
    ) -> Result<Option<RemoteState>, StoreError> {
        let row = self
            .query_opt(
                "remote_state",
                "SELECT state FROM remote_sessions WHERE id = $1 FOR NO KEY UPDATE",
                &[text(&session.as_str())],
            )
            .await?;
        row.map(|row| word(&row, "state")).transpose()
    }
}

impl Db {
    /// Creates a session and its empty log; with a known key, finds what the first request made.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn create_remote_session(
        &self,
        new: &NewRemoteSession,
    ) -> Result<RemoteCreated, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        tx.lock_creation(&new.workspace).await?;
        if tx.is_being_deleted(&new.workspace).await? {
            return Ok(RemoteCreated::WorkspaceDeleting);
        }
        if let Some(idempotency) = &new.idempotency {
            match tx
                .claim_answer(&new.workspace, idempotency, new.id.as_str())
                .await?
            {
                KnownAnswer::New => {}
                KnownAnswer::Same(id) => {
                    return id
                        .parse()
                        .map(RemoteCreated::Replayed)
                        .map_err(|_| StoreError::Corrupt { what: "session_id" });
                }
                KnownAnswer::OtherBody => return Ok(RemoteCreated::KeyConflict),
            }
        }
        tx.execute(
            "create_remote_session",
            "INSERT INTO remote_sessions (id, workspace_id, machine_id, kind, activity, workflow_id, title, project_path,
                                          cli_tool, model, created_by)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            &[
                text(&new.id.as_str()),
                text(&new.workspace.as_str()),
                text(&new.machine.as_str()),
                text(&new.kind.as_str()),
                text(&new.activity.as_str()),
                text(&new.workflow_id),
                text(&new.title),
                text(&new.project_path),
                text(&new.cli_tool),
                text(&new.model),
                text(&new.created_by),
            ],
        )
        .await?;
        let limit = i64::try_from(limits::REMOTE_LOG_BYTES).unwrap_or(i64::MAX);
        tx.execute(
            "create_remote_session",
            "INSERT INTO remote_heads (session_id, byte_limit) VALUES ($1, $2)",
            &[text(&new.id.as_str()), int8(&limit)],
        )
        .await?;
        tx.commit().await?;
        Ok(RemoteCreated::New)
    }

    /// One session.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn remote_session(
        &self,
        id: &RemoteSessionId,
    ) -> Result<Option<RemoteSessionRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM remote_sessions s JOIN remote_heads h ON h.session_id = s.id WHERE s.id = $1"
        );
        let row = self
            .query_opt("remote_session", &sql, &[text(&id.as_str())])
            .await?;
        row.as_ref().map(RemoteSessionRow::read).transpose()
    }

    /// A page of a workspace's sessions, newest first, and, where there may be more, where the next begins; words are looked for as in
    /// [`Db::list_sessions`].
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn remote_sessions(
        &self,
        workspace: &WorkspaceId,
        filter: &RemoteListFilter,
    ) -> Result<(Vec<RemoteSessionRow>, Option<(Timestamp, RemoteSessionId)>), StoreError> {
        use crate::sessions::ArchivedFilter;
        let archived = match filter.archived {
            ArchivedFilter::Without => "s.archived_at IS NULL",
            ArchivedFilter::Only => "s.archived_at IS NOT NULL",
            ArchivedFilter::All => "true",
        };
        let narrowed = format!(
            "s.workspace_id = $1 AND {archived}
                AND (cardinality($2) = 0 OR s.state = ANY ($2))
                AND ($3 IS NULL OR s.machine_id = $3)
                AND ($4 IS NULL OR (s.created_at, s.id) < ($4, $5))"
        );
        let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        let machine = filter.machine.as_ref().map(MachineId::as_str);
        let at = filter.cursor.as_ref().map(|(at, _)| *at);
        let id = filter.cursor.as_ref().map(|(_, id)| id.as_str());
        let workspace = workspace.as_str();
        let narrow = [
            text(&workspace),
            crate::sql::texts(&states),
            text(&machine),
            time(&at),
            text(&id),
        ];
        let end = match filter.words.is_empty() {
            true => None,
            false => self.end_of_remote_search(&narrowed, &narrow).await?,
        };
        let (end_at, end_id) = (
            end.as_ref().map(|(at, _)| *at),
            end.as_ref().map(|(_, id)| id.as_str()),
        );
        let has_words = all_stand_in(
            "$7",
            "s.title",
            "messages m WHERE m.session_id = s.id AND m.role = 'user'",
            "m.content",
        );
        let sql = format!(
            "SELECT {COLUMNS} FROM remote_sessions s JOIN remote_heads h ON h.session_id = s.id
              WHERE {narrowed} AND {has_words}
                AND ($8 IS NULL OR (s.created_at, s.id) >= ($8, $9))
              ORDER BY s.created_at DESC, s.id DESC LIMIT $6"
        );
        let (most, patterns) = (i64::from(filter.limit) + 1, filter.words.patterns());
        let mut params = narrow.to_vec();
        params.extend([
            int8(&most),
            crate::sql::texts(&patterns),
            time(&end_at),
            text(&end_id),
        ]);
        let rows = self.query("remote_sessions", &sql, &params).await?;
        let mut found = rows
            .iter()
            .map(RemoteSessionRow::read)
            .collect::<Result<Vec<_>, _>>()?;
        let more = found.len() > filter.limit as usize;
        found.truncate(filter.limit as usize);
        let last = found.last().filter(|_| more);
        let next = last.map(|row| (row.created_at, row.id.clone()));
        Ok((found, next.or(end)))
    }

    /// The last session that one page's search looks at; `None` when it comes to the end of the list.
    async fn end_of_remote_search(
        &self,
        narrowed: &str,
        narrow: &[Param<'_>],
    ) -> Result<Option<(Timestamp, RemoteSessionId)>, StoreError> {
        let sql = format!(
            "SELECT s.created_at, s.id FROM remote_sessions s WHERE {narrowed}
              ORDER BY s.created_at DESC, s.id DESC OFFSET $6 LIMIT 1"
        );
        let before = i64::from(limits::LIST_WORDS_SESSIONS) - 1;
        let mut params = narrow.to_vec();
        params.push(int8(&before));
        let rows = self.query("end_of_remote_search", &sql, &params).await?;
        let row = rows.first();
        row.map(|row| Ok((get(row, "created_at")?, word(row, "id")?)))
            .transpose()
    }

    /// Live sessions behind `after` by id, for the loop that looks after them: those with a gap, with an end to come, or with
    /// events that nobody has read for `unread`.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn live_remote_sessions(
        &self,
        after: Option<&RemoteSessionId>,
        limit: u32,
        unread: std::time::Duration,
    ) -> Result<Vec<RemoteSessionRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM remote_sessions s JOIN remote_heads h ON h.session_id = s.id
              WHERE s.state IN ('active', 'paused', 'ending') AND ($1 IS NULL OR s.id > $1)
                AND (h.next_index < h.high_index OR s.state = 'ending'
                     OR ((h.seen_index < h.next_index OR h.imports_waiting > 0)
                         AND h.seen_at < now() - $3 * interval '1 second'))
              ORDER BY s.id LIMIT $2"
        );
        let after = after.map(RemoteSessionId::as_str);
        let rows = self
            .query(
                "live_remote_sessions",
                &sql,
                &[
                    text(&after),
                    int8(&i64::from(limit)),
                    crate::sql::float8(&unread.as_secs_f64()),
                ],
            )
            .await?;
        rows.iter().map(RemoteSessionRow::read).collect()
    }

    /// Ended sessions whose rows were to be made again, or that were given an import, and that nobody has read for `unread`: whoever was at
    /// it is gone. Of any that live, [`Db::live_remote_sessions`] knows.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn left_remote_sessions(
        &self,
        limit: u32,
        unread: std::time::Duration,
    ) -> Result<Vec<RemoteSessionId>, StoreError> {
        let rows = self
            .query(
                "left_remote_sessions",
                "SELECT session_id FROM remote_heads
                  WHERE again AND (seen_index < next_index OR imports_waiting > 0)
                    AND seen_at < now() - $2 * interval '1 second'
                  ORDER BY seen_at LIMIT $1",
                &[
                    int8(&i64::from(limit)),
                    crate::sql::float8(&unread.as_secs_f64()),
                ],
            )
            .await?;
        rows.iter().map(|row| word(row, "session_id")).collect()
    }

    /// Ends a session as its machine says: from then on the last events are waited for.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn end_remote_session(
        &self,
        session: &RemoteSessionId,
        ending: Ending<'_>,
    ) -> Result<Moved, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let Some(state) = tx.remote_state(session).await? else {
            return Ok(Moved::NotFound);
        };
        // a stop that was asked for before stays a stop; what the machine adds is how many events there are
        let answer = Operation::Status.answer(state);
        if answer == Answer::Does || state == RemoteState::Ending {
            let events = ending.events.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
            tx.execute(
                "end_remote_session",
                "UPDATE remote_sessions
                    SET state = 'ending', ending_as = COALESCE(ending_as, $2), ending_index = COALESCE($3, ending_index),
                        ending_since = COALESCE(ending_since, now()), error = COALESCE(error, $4), updated_at = now()
                  WHERE id = $1",
                &[
                    text(&session.as_str()),
                    text(&ending.as_.as_str()),
                    int8(&events),
                    text(&ending.error),
                ],
            )
            .await?;
            tx.notify(Channel::Remote, session.as_str()).await?;
            tx.commit().await?;
        }
        Ok(Moved::Done(answer))
    }

    /// Sets the list state. `false`: there is no such session.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn archive_remote_session(
        &self,
        session: &RemoteSessionId,
        archived: bool,
    ) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "archive_remote_session",
                "UPDATE remote_sessions
                    SET archived_at = CASE WHEN $2 THEN COALESCE(archived_at, now()) END, updated_at = now()
                  WHERE id = $1",
                &[text(&session.as_str()), crate::sql::boolean(&archived)],
            )
            .await?;
        Ok(changed == 1)
    }
}
