//! Stop, cancel, archive, delete.

use bex_proto::session::Phase;
use bex_proto::{SessionId, TurnNo};

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{int4, text, turn_no, word};
use crate::wake::Channel;

/// What a cancel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancel {
    /// The session is canceling now; the Completer harvests, settles and ends it.
    Canceling,
    /// Somebody asked before.
    AlreadyCanceling,
    /// Nothing is active.
    Terminal(Phase),
    /// No such session.
    NotFound,
}

/// What archive or unarchive did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Archived {
    /// The list state is as asked.
    Done,
    /// No such session.
    NotFound,
}

/// What a delete did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delete {
    /// Session, turns, parts and work rows are gone; audit stays.
    Deleted,
    /// A phase is active or a sandbox lives.
    Live,
    /// Kept by law.
    LegalHold,
    /// No such session.
    NotFound,
}

impl Db {
    /// Records that somebody wants the open turn to stop; the caller then asks the driver. False when it is not open.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn request_stop(
        &self,
        session: &SessionId,
        turn: TurnNo,
    ) -> Result<bool, StoreError> {
        let rows = self
            .execute(
                "request_stop",
                "UPDATE turns SET stop_requested_at = COALESCE(stop_requested_at, now())
                  WHERE session_id = $1 AND turn = $2 AND verdict = 'open'",
                &[text(&session.as_str()), int4(&turn_no(turn))],
            )
            .await?;
        Ok(rows == 1)
    }

    /// Moves an active session to `canceling` and makes it due for the Completer.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn request_cancel(&self, session: &SessionId) -> Result<Cancel, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let id = session.as_str();
        // the lease row before the session row, as the Completer locks them
        tx.make_due(session).await?;
        let sql = "SELECT phase FROM sessions WHERE id = $1 FOR NO KEY UPDATE";
        let Some(row) = tx.query_opt("request_cancel", sql, &[text(&id)]).await? else {
            return Ok(Cancel::NotFound);
        };
        match word::<Phase>(&row, "phase")? {
            Phase::Canceling => return Ok(Cancel::AlreadyCanceling),
            terminal if terminal.is_terminal() => return Ok(Cancel::Terminal(terminal)),
            _ => {}
        }
        tx.execute(
            "request_cancel",
            "UPDATE sessions SET phase = 'canceling', cancel_requested_at = now(), updated_at = now() WHERE id = $1",
            &[text(&id)],
        )
        .await?;
        tx.notify(Channel::Wake, id).await?;
        tx.commit().await?;
        Ok(Cancel::Canceling)
    }

    /// Takes the session out of the default list and off steering.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn archive(&self, session: &SessionId) -> Result<Archived, StoreError> {
        self.set_archived(
            session,
            "UPDATE sessions SET archived_at = COALESCE(archived_at, now()) WHERE id = $1",
        )
        .await
    }

    /// Puts it back.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn unarchive(&self, session: &SessionId) -> Result<Archived, StoreError> {
        self.set_archived(
            session,
            "UPDATE sessions SET archived_at = NULL WHERE id = $1",
        )
        .await
    }

    async fn set_archived(&self, session: &SessionId, sql: &str) -> Result<Archived, StoreError> {
        let rows = self
            .execute("archive", sql, &[text(&session.as_str())])
            .await?;
        Ok(if rows == 1 {
            Archived::Done
        } else {
            Archived::NotFound
        })
    }
}
