//! Notices between processes: a NOTIFY and a row of `changes` for those who poll. Payloads are ids only, and a lost
//! notice costs a tick, never data. `append` sends none.

use bex_proto::SessionId;

use crate::error::StoreError;
use crate::pool::{Db, Tx};
use crate::sql::{int8, number, text, texts};

/// What a notice is about; its payload is a session id, for [`Channel::Revoked`] the workspace id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// A turn settled, healed, or its session ended.
    Settled,
    /// A revocation was made.
    Revoked,
    /// Somebody wants the Completer to look now.
    Wake,
    /// There is a turn to dispatch.
    Dispatch,
    /// A sandbox is ready to be dialled.
    Ready,
    /// A remote session has new events or rows, or moved; its payload is that session's id.
    Remote,
    /// A machine has commands, or was revoked; its payload is the machine's id.
    Machine,
}

impl Channel {
    /// Every channel.
    pub const ALL: &'static [Channel] = &[
        Self::Settled,
        Self::Revoked,
        Self::Wake,
        Self::Dispatch,
        Self::Ready,
        Self::Remote,
        Self::Machine,
    ];

    /// The name in PostgreSQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "bex_settled",
            Self::Revoked => "bex_revoked",
            Self::Wake => "bex_wake",
            Self::Dispatch => "bex_dispatch",
            Self::Ready => "bex_ready",
            Self::Remote => "bex_remote",
            Self::Machine => "bex_machine",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|channel| channel.as_str() == name)
    }
}

const NOTIFY: &str = "WITH noted AS (INSERT INTO changes (channel, payload) VALUES ($1, $2)) SELECT pg_notify($1, $2)";

/// Rows of one trimming statement.
const TRIM_BATCH: u32 = 10_000;

impl Tx<'_> {
    /// A notice that is heard when, and only when, the transaction commits.
    pub(crate) async fn notify(&self, channel: Channel, payload: &str) -> Result<(), StoreError> {
        self.query("notify", NOTIFY, &[text(&channel.as_str()), text(&payload)])
            .await
            .map(drop)
    }
}

impl Db {
    /// Tells every process. The gateway wakes the Completer and the dispatcher with this.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn notify(&self, channel: Channel, session: &SessionId) -> Result<(), StoreError> {
        self.query(
            "notify",
            NOTIFY,
            &[text(&channel.as_str()), text(&session.as_str())],
        )
        .await
        .map(drop)
    }

    /// Tells every process of several remote sessions at once: what was reported is announced a few milliseconds' worth at a time.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn notify_remote(&self, sessions: &[String]) -> Result<(), StoreError> {
        self.query(
            "notify_remote",
            "WITH noted AS (INSERT INTO changes (channel, payload) SELECT $1, s FROM unnest($2) AS s)
             SELECT pg_notify($1, s) FROM unnest($2) AS s",
            &[text(&Channel::Remote.as_str()), texts(&sessions)],
        )
        .await
        .map(drop)
    }

    /// Removes notices older than a minute, one bounded batch; returns how many went. Pollers look back 10 s.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn trim_changes(&self) -> Result<u64, StoreError> {
        self.execute(
            "trim_changes",
            "DELETE FROM changes WHERE id IN
               (SELECT id FROM changes WHERE at < now() - interval '1 minute' ORDER BY at LIMIT $1)",
            &[int8(&i64::from(number(TRIM_BATCH)))],
        )
        .await
    }
}
