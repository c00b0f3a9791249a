//! What machines are told: a durable queue, read at least once, and the user row that a chat writes with its command.

use bex_proto::message::{MessageRole, MessageSource};
use bex_proto::remote::{Answer, CommandKind, Operation, RemoteState};
use bex_proto::{CommandId, MachineId, RemoteSessionId, WorkspaceId, limits};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::built::{MessageText, NewMessage};
use super::log::signed;
use crate::error::StoreError;
use crate::idempotency::{Idempotency, KnownAnswer};
use crate::pool::Db;
use crate::sql::{float8, get, int8, large, text, word};
use crate::wake::Channel;

/// A command to give.
#[derive(Debug, Clone)]
pub struct NewCommand<'a> {
    /// A fresh id.
    pub id: CommandId,
    /// The owner.
    pub workspace: &'a WorkspaceId,
    /// The session.
    pub session: &'a RemoteSessionId,
    /// What to do.
    pub kind: CommandKind,
    /// How, JSON; of a chat `{"content": …}`.
    pub payload: &'a str,
    /// What a chat says: its user row.
    pub says: Option<&'a str>,
    /// Who gives it.
    pub subject: &'a str,
    /// The caller's key.
    pub idempotency: Option<&'a Idempotency>,
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// It waits for its machine.
    Queued(Queued),
    /// There is nothing to do.
    Already(RemoteState),
    /// The state forbids it.
    Refused(bex_proto::problem::Code),
    /// The key was used with another body.
    KeyConflict,
    /// There is no such session.
    NotFound,
}

/// A queued command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// Its id.
    pub command: CommandId,
    /// The state the session is in now.
    pub state: RemoteState,
}

/// What a machine answers to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandState {
    /// It was done.
    Done,
    /// It could not be.
    Failed,
}

impl CommandState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// A command as its machine gets it.
#[derive(Debug, Clone)]
pub struct Command {
    /// Its id: the same however often it comes.
    pub id: CommandId,
    /// The session.
    pub session: RemoteSessionId,
    /// What to do.
    pub kind: CommandKind,
    /// How, JSON.
    pub payload: String,
    /// When it was given.
    pub created_at: Timestamp,
}

impl Command {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: word(row, "id")?,
            session: word(row, "session_id")?,
            kind: word(row, "kind")?,
            payload: get(row, "payload")?,
            created_at: get(row, "created_at")?,
        })
    }
}

fn operation(kind: CommandKind) -> Operation {
    match kind {
        CommandKind::Chat => Operation::Chat,
        CommandKind::Abort => Operation::Abort,
        CommandKind::Stop => Operation::Stop,
        CommandKind::Pause => Operation::Pause,
        CommandKind::Resume => Operation::Resume,
        CommandKind::Permission => Operation::Permission,
    }
}

impl Db {
    /// Queues a command, moves the session's state and writes a chat's user row: one transaction, in the state the session is in.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn tell_machine(&self, new: &NewCommand<'_>) -> Result<Told, StoreError> {
        let session = new.session;
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let Some(state) = tx.remote_state(session).await? else {
            return Ok(Told::NotFound);
        };
        if let Some(idempotency) = new.idempotency {
            match tx
                .claim_answer(new.workspace, idempotency, new.id.as_str())
                .await?
            {
                KnownAnswer::New => {}
                KnownAnswer::Same(id) => {
                    let command = id
                        .parse()
                        .map_err(|_| StoreError::Corrupt { what: "command_id" })?;
                    return Ok(Told::Queued(Queued { command, state }));
                }
                KnownAnswer::OtherBody => return Ok(Told::KeyConflict),
            }
        }
        match operation(new.kind).answer(state) {
            Answer::Does => {}
            Answer::Already => return Ok(Told::Already(state)),
            Answer::Refuses(code) => return Ok(Told::Refused(code)),
        }
        let row = tx
            .query_one(
                "tell_machine",
                "SELECT s.machine_id, m.revoked_at IS NOT NULL AS revoked,
                        (SELECT count(*) FROM remote_commands c WHERE c.session_id = s.id AND c.state = 'waiting') AS waiting
                   FROM remote_sessions s JOIN machines m ON m.id = s.machine_id WHERE s.id = $1",
                &[text(&session.as_str())],
            )
            .await?;
        let machine: MachineId = word(&row, "machine_id")?;
        // a session whose machine is gone for good can be stopped, and nothing else
        if get(&row, "revoked")? && new.kind != CommandKind::Stop {
            return Ok(Told::Refused(bex_proto::problem::Code::MachineRevoked));
        }
        if large(&row, "waiting")? >= u64::from(limits::COMMANDS_WAITING) {
            return Ok(Told::Refused(bex_proto::problem::Code::CommandQueueFull));
        }
        let moved = match new.kind {
            CommandKind::Stop => Some((
                RemoteState::Ending,
                "UPDATE remote_sessions SET state = 'ending', ending_as = 'stopped', ending_since = now(), updated_at = now()
                  WHERE id = $1",
            )),
            CommandKind::Pause => Some((
                RemoteState::Paused,
                "UPDATE remote_sessions SET state = 'paused', paused_at = now(), updated_at = now() WHERE id = $1",
            )),
            CommandKind::Resume => Some((
                RemoteState::Active,
                "UPDATE remote_sessions SET state = 'active', paused_at = NULL, updated_at = now() WHERE id = $1",
            )),
            CommandKind::Chat | CommandKind::Abort | CommandKind::Permission => None,
        };
        if let Some((_, sql)) = moved {
            tx.execute("tell_machine", sql, &[text(&session.as_str())])
                .await?;
        }
        let position = match new.says {
            Some(content) => Some(self.say(&tx, new, content).await?),
            None => None,
        };
        tx.execute(
            "tell_machine",
            "INSERT INTO remote_commands (id, session_id, machine_id, kind, payload, position, created_by)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[
                text(&new.id.as_str()),
                text(&session.as_str()),
                text(&machine.as_str()),
                text(&new.kind.as_str()),
                text(&new.payload),
                int8(&position),
                text(&new.subject),
            ],
        )
        .await?;
        tx.notify(Channel::Machine, machine.as_str()).await?;
        if moved.is_some() || position.is_some() {
            tx.notify(Channel::Remote, session.as_str()).await?;
        }
        tx.commit().await?;
        Ok(Told::Queued(Queued {
            command: new.id.clone(),
            state: moved.map_or(state, |(state, _)| state),
        }))
    }

    /// A chat's user row, behind every row there is.
    async fn say(
        &self,
        tx: &crate::pool::Tx<'_>,
        new: &NewCommand<'_>,
        content: &str,
    ) -> Result<i64, StoreError> {
        let head = tx
            .remote_head(new.session)
            .await?
            .ok_or(StoreError::Missing {
                what: "remote head",
            })?;
        let row = tx
            .query_one(
                "say",
                // also while rows are made again, behind those that were there
                "SELECT GREATEST((SELECT max(position) + 1 FROM messages WHERE session_id = $1), chat_position) AS position,
                        now() AS at
                   FROM remote_heads WHERE session_id = $1",
                &[text(&new.session.as_str())],
            )
            .await?;
        let position = large(&row, "position")?.max(head.next_position);
        // derived from the command's, so that a row made again has the same
        let id = format!("msg-{}", &new.id.as_str()["cmd-".len()..]);
        let message = MessageText {
            id,
            content: content.to_owned(),
            content_blocks: None,
        };
        let said = NewMessage {
            role: MessageRole::User,
            source: MessageSource::Chat,
            message: &message,
            turn: None,
            model: None,
            at: get(&row, "at")?,
        };
        let position = signed(position);
        tx.insert_messages(new.session, &[position], &[said])
            .await?;
        tx.execute(
            "say",
            "UPDATE remote_heads SET message_count = message_count + 1,
                    next_position = CASE WHEN next_position = $2 THEN next_position + 1 ELSE next_position END
              WHERE session_id = $1",
            &[text(&new.session.as_str()), int8(&position)],
        )
        .await?;
        Ok(position)
    }

    /// Commands of a machine, or of one of its sessions, that were not handed out in the last [`limits::COMMAND_REPEAT`], oldest first, and marks them as handed out.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn take_commands(
        &self,
        machine: &MachineId,
        session: Option<&RemoteSessionId>,
        limit: u32,
    ) -> Result<Vec<Command>, StoreError> {
        let rows = self
            .query(
                "take_commands",
                "WITH due AS (SELECT id FROM remote_commands
                               WHERE machine_id = $1 AND state = 'waiting' AND ($4 IS NULL OR session_id = $4)
                                 AND (delivered_at IS NULL OR delivered_at < now() - $2 * interval '1 second')
                               ORDER BY ordinal LIMIT $3 FOR UPDATE SKIP LOCKED),
                      taken AS (UPDATE remote_commands c SET delivered_at = now() FROM due WHERE c.id = due.id RETURNING c.*)
                 SELECT id, session_id, kind, payload, created_at FROM taken ORDER BY ordinal",
                &[
                    text(&machine.as_str()),
                    float8(&limits::COMMAND_REPEAT.as_secs_f64()),
                    int8(&i64::from(limit)),
                    text(&session.map(RemoteSessionId::as_str)),
                ],
            )
            .await?;
        rows.iter().map(Command::read).collect()
    }

    /// A machine's answer to a command, the first one. `false`: it has no such command.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn command_done(
        &self,
        machine: &MachineId,
        command: &CommandId,
        state: CommandState,
        result: Option<&str>,
    ) -> Result<bool, StoreError> {
        let known = self
            .query_opt(
                "command_done",
                "WITH done AS (UPDATE remote_commands SET state = $3, result = $4, done_at = now()
                                WHERE id = $2 AND machine_id = $1 AND state = 'waiting')
                 SELECT 1 AS known FROM remote_commands WHERE id = $2 AND machine_id = $1",
                &[
                    text(&machine.as_str()),
                    text(&command.as_str()),
                    text(&state.as_str()),
                    text(&result),
                ],
            )
            .await?;
        Ok(known.is_some())
    }
}
