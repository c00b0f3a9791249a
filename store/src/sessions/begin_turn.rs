//! The turns verb: every later turn begins here, under the session row's lock.

use bex_proto::session::Phase;
use bex_proto::{Generation, SessionId, TurnNo, WorkspaceId, limits};

use super::create::bytes_of;
use crate::error::StoreError;
use crate::idempotency::{Idempotency, Known};
use crate::pool::{Db, Tx};
use crate::sql::{generation, get, int4, int8, text, turn, turn_no, word};
use crate::wake::Channel;

/// A turn to begin.
#[derive(Debug, Clone)]
pub struct NewTurn {
    /// The session.
    pub session: SessionId,
    /// The owner the caller acts for; another's session answers as none.
    pub workspace: WorkspaceId,
    /// What to say.
    pub prompt: String,
    /// Makes a repeated request the same request.
    pub idempotency: Option<Idempotency>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BeginTurn {
    /// A live idle driver takes it: its sandbox moved `idle→turn` and the outbox holds the delivery.
    Delivering {
        /// The new turn.
        turn: TurnNo,
        /// The sandbox that speaks it.
        generation: Generation,
    },
    /// A fresh sandbox is dispatched for it.
    Redispatched {
        /// The new turn.
        turn: TurnNo,
    },
    /// The same key with the same body began this turn before.
    Replayed {
        /// That turn.
        turn: TurnNo,
    },
    /// The key was used with another body.
    KeyConflict,
    /// A turn is open.
    InFlight {
        /// That turn.
        turn: TurnNo,
    },
    /// The transcript quota is used up.
    Full,
    /// The session is archived.
    Archived,
    /// The prompts of the session would exceed their limit.
    PromptQuota,
    /// Canceled or being canceled.
    NotSteerable,
    /// No such session in this workspace.
    NotFound,
}

impl Db {
    /// Stores the prompt, opens the turn and leaves its delivery in the outbox.
    ///
    /// # Errors
    /// Store trouble; nothing was begun then.
    pub async fn begin_turn(&self, new: &NewTurn) -> Result<BeginTurn, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let outcome = tx.try_begin(new).await?;
        if matches!(
            outcome,
            BeginTurn::Delivering { .. } | BeginTurn::Redispatched { .. }
        ) {
            tx.notify(Channel::Dispatch, new.session.as_str()).await?;
            tx.commit().await?;
        }
        Ok(outcome)
    }
}

impl Tx<'_> {
    async fn try_begin(&self, new: &NewTurn) -> Result<BeginTurn, StoreError> {
        let Some(row) = self
            .query_opt(
                "begin_turn",
                "SELECT phase, turns, prompt_bytes, archived_at IS NOT NULL AS archived FROM sessions
                  WHERE id = $1 AND workspace_id = $2 FOR NO KEY UPDATE",
                &[text(&new.session.as_str()), text(&new.workspace.as_str())],
            )
            .await?
        else {
            return Ok(BeginTurn::NotFound);
        };
        let last = turn(&row, "turns")?;
        let next = last.next();
        if let Some(idempotency) = &new.idempotency {
            match self
                .claim_key(&new.workspace, idempotency, &new.session, next)
                .await?
            {
                Known::New => {}
                Known::Same { turn, .. } => return Ok(BeginTurn::Replayed { turn }),
                Known::OtherBody => return Ok(BeginTurn::KeyConflict),
            }
        }
        if get(&row, "archived")? {
            return Ok(BeginTurn::Archived);
        }
        match word::<Phase>(&row, "phase")? {
            Phase::Completed | Phase::Failed => {}
            Phase::Creating | Phase::Running | Phase::Redispatching => {
                return Ok(BeginTurn::InFlight { turn: last });
            }
            Phase::Canceling | Phase::Canceled => return Ok(BeginTurn::NotSteerable),
        }
        let prompt = bytes_of(&new.prompt);
        let all_prompts = get::<i64>(&row, "prompt_bytes")?.saturating_add(prompt);
        if all_prompts > i64::try_from(limits::SESSION_PROMPT_BYTES).unwrap_or(i64::MAX) {
            return Ok(BeginTurn::PromptQuota);
        }
        if self.is_full(&new.session).await? {
            return Ok(BeginTurn::Full);
        }
        let live = self.take_idle_sandbox(&new.session, next).await?;
        let phase = match live {
            Some(_) => Phase::Running,
            None => Phase::Redispatching,
        };
        self.execute(
            "begin_turn",
            "UPDATE sessions SET phase = $2, turns = $3, prompt_bytes = $4, failure_reason = NULL, updated_at = now()
              WHERE id = $1",
            &[text(&new.session.as_str()), text(&phase.as_str()), int4(&turn_no(next)), int8(&all_prompts)],
        )
        .await?;
        self.insert_turn(&new.session, &new.workspace, next, &new.prompt, live)
            .await?;
        Ok(match live {
            Some(generation) => BeginTurn::Delivering {
                turn: next,
                generation,
            },
            None => BeginTurn::Redispatched { turn: next },
        })
    }

    async fn is_full(&self, session: &SessionId) -> Result<bool, StoreError> {
        let row = self
            .query_one(
                "is_full",
                "SELECT quota_turn IS NOT NULL OR bytes >= byte_limit OR parts >= part_limit AS is_full
                   FROM transcript_heads WHERE session_id = $1",
                &[text(&session.as_str())],
            )
            .await?;
        get(&row, "is_full")
    }

    /// The compare-and-set that races with `begin_stopping`. A sandbox of the old form speaks one turn only.
    async fn take_idle_sandbox(
        &self,
        session: &SessionId,
        next: TurnNo,
    ) -> Result<Option<Generation>, StoreError> {
        self.query_opt(
            "take_idle_sandbox",
            "UPDATE sandboxes SET state = 'turn', turn = $2, idle_since = NULL
              WHERE session_id = $1 AND state = 'idle' AND NOT legacy
                AND generation = (SELECT max(generation) FROM sandboxes WHERE session_id = $1)
             RETURNING generation",
            &[text(&session.as_str()), int4(&turn_no(next))],
        )
        .await?
        .map(|row| generation(&row, "generation"))
        .transpose()
    }
}
