//! Sandbox rows: one per generation. `idle→turn` (the turns verb) and `idle→stopping` (teardown) are compare-and-sets
//! on one row, so exactly one of them wins.
//!
//! ```text
//! creating ─▶ turn ⇄ idle ─▶ stopping ─▶ gone
//!     └─────────┴───────────────┘  (replaced, canceled, lost)
//! ```

use std::time::Duration;

use bex_proto::{Generation, SessionId, TurnNo, limits};
use jiff::Timestamp;
use tokio_postgres::Row;

use crate::error::StoreError;
use crate::leases::Lease;
use crate::pool::{Db, Tx};
use crate::sql::{
    float8, generation, get, int4, int8, number, seconds, text, turn, unsigned, word,
};

/// Where a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxState {
    /// Being made.
    Creating,
    /// Speaking a turn, or about to.
    Turn,
    /// Waiting for a turn.
    Idle,
    /// To be torn down.
    Stopping,
    /// Torn down.
    Gone,
}

impl std::str::FromStr for SandboxState {
    type Err = ();
    fn from_str(word: &str) -> Result<Self, ()> {
        match word {
            "creating" => Ok(Self::Creating),
            "turn" => Ok(Self::Turn),
            "idle" => Ok(Self::Idle),
            "stopping" => Ok(Self::Stopping),
            "gone" => Ok(Self::Gone),
            _ => Err(()),
        }
    }
}

/// One sandbox life.
#[derive(Debug, Clone)]
pub struct SandboxRow {
    /// Its session.
    pub session: SessionId,
    /// Its number within the session.
    pub generation: Generation,
    /// The turn it speaks or spoke last.
    pub turn: TurnNo,
    /// The namespace, or the directory of the local kind.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// Known once it is ready.
    pub pod_uid: Option<String>,
    /// The container's name.
    pub container: String,
    /// An older driver.
    pub legacy: bool,
    /// The ring key its driver key was derived from.
    pub driver_kid: String,
    /// Where it stands.
    pub state: SandboxState,
    /// When it was recorded.
    pub created_at: Timestamp,
    /// When it could first be dialled.
    pub ready_at: Option<Timestamp>,
    /// Since when it waits for a turn.
    pub idle_since: Option<Timestamp>,
    /// Failed teardowns so far.
    pub teardown_attempts: u32,
    /// Not before this.
    pub teardown_after: Option<Timestamp>,
}

impl SandboxRow {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            session: word(row, "session_id")?,
            generation: generation(row, "generation")?,
            turn: turn(row, "turn")?,
            namespace: get(row, "namespace")?,
            pod: get(row, "pod")?,
            pod_uid: get(row, "pod_uid")?,
            container: get(row, "container")?,
            legacy: get(row, "legacy")?,
            driver_kid: get(row, "driver_kid")?,
            state: word(row, "state")?,
            created_at: get(row, "created_at")?,
            ready_at: get(row, "ready_at")?,
            idle_since: get(row, "idle_since")?,
            teardown_attempts: unsigned(row, "teardown_attempts")?,
            teardown_after: get(row, "teardown_after")?,
        })
    }
}

impl Db {
    /// One sandbox life.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn sandbox(
        &self,
        session: &SessionId,
        life: Generation,
    ) -> Result<Option<SandboxRow>, StoreError> {
        self.query_opt(
            "sandbox",
            "SELECT * FROM sandboxes WHERE session_id = $1 AND generation = $2",
            &[text(&session.as_str()), int4(&number(life.0))],
        )
        .await?
        .as_ref()
        .map(SandboxRow::read)
        .transpose()
    }

    /// The session's newest sandbox life.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn latest_sandbox(
        &self,
        session: &SessionId,
    ) -> Result<Option<SandboxRow>, StoreError> {
        self.query_opt(
            "latest_sandbox",
            "SELECT * FROM sandboxes WHERE session_id = $1 ORDER BY generation DESC LIMIT 1",
            &[text(&session.as_str())],
        )
        .await?
        .as_ref()
        .map(SandboxRow::read)
        .transpose()
    }

    /// The session's sandboxes that are not gone, oldest first.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn living_sandboxes_of(
        &self,
        session: &SessionId,
    ) -> Result<Vec<SandboxRow>, StoreError> {
        let rows = self
            .query(
                "living_sandboxes_of",
                "SELECT * FROM sandboxes WHERE session_id = $1 AND state <> 'gone' ORDER BY generation",
                &[text(&session.as_str())],
            )
            .await?;
        rows.iter().map(SandboxRow::read).collect()
    }

    /// All sandboxes that are not gone, for the orphan sweep: one page of at most `limit`, ordered by session, behind
    /// `after`.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn living_sandboxes(
        &self,
        after: Option<(&SessionId, Generation)>,
        limit: u32,
    ) -> Result<Vec<SandboxRow>, StoreError> {
        let (session, life) = after.map_or(("", 0), |(session, life)| {
            (session.as_str(), number(life.0))
        });
        let rows = self
            .query(
                "living_sandboxes",
                "SELECT * FROM sandboxes WHERE state <> 'gone' AND (session_id, generation) > ($1, $2)
                  ORDER BY session_id, generation LIMIT $3",
                &[text(&session), int4(&life), int8(&i64::from(number(limit)))],
            )
            .await?;
        rows.iter().map(SandboxRow::read).collect()
    }

    /// The driver ring keys that living sandboxes still need.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn driver_kids_in_use(&self) -> Result<Vec<String>, StoreError> {
        let rows = self
            .query(
                "driver_kids_in_use",
                "SELECT DISTINCT driver_kid FROM sandboxes WHERE state <> 'gone' ORDER BY driver_kid",
                &[],
            )
            .await?;
        rows.iter().map(|row| get(row, "driver_kid")).collect()
    }

    /// Prolongs the idle grace from now, e.g. for a read ticket, as long as that ends within [`limits::IDLE_MAX`] of the
    /// last settle.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn touch_idle(&self, session: &SessionId) -> Result<(), StoreError> {
        self.execute(
            "touch_idle",
            "UPDATE sandboxes b SET idle_since = now() WHERE session_id = $1 AND state = 'idle'
                AND EXISTS (SELECT 1 FROM turns t WHERE t.session_id = $1 AND t.turn = b.turn
                               AND t.settled_at > now() - $2 * interval '1 second')",
            &[
                text(&session.as_str()),
                float8(&seconds(limits::IDLE_MAX - limits::IDLE_GRACE)),
            ],
        )
        .await
        .map(drop)
    }

    /// `idle→stopping`, the compare-and-set that races with the turns verb. Also takes a sandbox that is `stopping`
    /// already. False: somebody gave it a turn, or the lease was lost.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn begin_stopping(
        &self,
        lease: &Lease,
        life: Generation,
    ) -> Result<bool, StoreError> {
        self.move_sandbox(
            "begin_stopping",
            "UPDATE sandboxes SET state = 'stopping' WHERE session_id = $1 AND generation = $2
                AND state IN ('idle', 'stopping')
                AND EXISTS (SELECT 1 FROM leases l WHERE l.session_id = $1 AND l.fence = $3)",
            lease,
            life,
        )
        .await
    }

    /// `idle→stopping` of a sandbox that was seen to be gone; its session is due at once, and whoever claims it makes sure and
    /// clears up. False: somebody moved it meanwhile. It needs no lease: it moves nothing that a newer claim could have moved.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn lose_idle(
        &self,
        session: &SessionId,
        life: Generation,
    ) -> Result<bool, StoreError> {
        let rows = self
            .execute(
                "lose_idle",
                "WITH lost AS (UPDATE sandboxes SET state = 'stopping'
                                WHERE session_id = $1 AND generation = $2 AND state = 'idle' RETURNING session_id)
                 UPDATE leases l SET next_due_at = now(), woken = l.woken OR l.until IS NOT NULL
                   FROM lost WHERE l.session_id = lost.session_id",
                &[text(&session.as_str()), int4(&number(life.0))],
            )
            .await?;
        Ok(rows == 1)
    }

    /// The sandbox does not exist any more: only after a confirmed teardown, or because it was found gone. False when it
    /// was marked before, or the lease was lost.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn mark_gone(&self, lease: &Lease, life: Generation) -> Result<bool, StoreError> {
        self.move_sandbox(
            "mark_gone",
            "UPDATE sandboxes SET state = 'gone', gone_at = now() WHERE session_id = $1 AND generation = $2
                AND state <> 'gone' AND EXISTS (SELECT 1 FROM leases l WHERE l.session_id = $1 AND l.fence = $3)",
            lease,
            life,
        )
        .await
    }

    /// A teardown failed: the next one not before `delay`. False when the lease was lost: whoever has it now does not wait.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn retry_teardown(
        &self,
        lease: &Lease,
        life: Generation,
        delay: Duration,
    ) -> Result<bool, StoreError> {
        let rows = self
            .execute(
                "retry_teardown",
                "UPDATE sandboxes SET teardown_attempts = teardown_attempts + 1,
                        teardown_after = now() + $4 * interval '1 second'
                  WHERE session_id = $1 AND generation = $2
                    AND EXISTS (SELECT 1 FROM leases l WHERE l.session_id = $1 AND l.fence = $3)",
                &[
                    text(&lease.session.as_str()),
                    int4(&number(life.0)),
                    int8(&lease.fence),
                    float8(&seconds(delay)),
                ],
            )
            .await?;
        Ok(rows == 1)
    }

    async fn move_sandbox(
        &self,
        operation: &'static str,
        sql: &str,
        lease: &Lease,
        life: Generation,
    ) -> Result<bool, StoreError> {
        let (session, life) = (lease.session.as_str(), number(life.0));
        Ok(self
            .execute(
                operation,
                sql,
                &[text(&session), int4(&life), int8(&lease.fence)],
            )
            .await?
            == 1)
    }
}

impl Tx<'_> {
    /// Whatever the session has that is not on its way out is to be torn down.
    pub(crate) async fn stop_sandboxes(&self, session: &SessionId) -> Result<(), StoreError> {
        self.execute(
            "stop_sandboxes",
            "UPDATE sandboxes SET state = 'stopping' WHERE session_id = $1 AND state IN ('creating', 'turn', 'idle')",
            &[text(&session.as_str())],
        )
        .await
        .map(drop)
    }
}
