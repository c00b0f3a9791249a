//! What viewers of a session are shown: events, with where the session stands in the same moment, and the turns that became durable.

use bex_proto::remote::RemoteState;
use bex_proto::{RemoteSessionId, limits};
use tokio_postgres::Row;

use super::log::{LogRow, signed};
use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, int8, large, text, word};

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Its state.
    pub state: RemoteState,
    /// Every event below is there, or never comes.
    pub next_index: u64,
    /// Events below were removed.
    pub first_index: u64,
    /// Every event below was read by the builder.
    pub seen_index: u64,
    /// Turns are numbered below this.
    pub turn_count: u64,
}

impl Standing {
    /// Whether nothing of it changes any more: it ended, and every turn is written.
    pub fn is_final(&self) -> bool {
        self.state.is_terminal() && self.seen_index >= self.next_index
    }
}

/// A session and some of its events in one moment.
#[derive(Debug)]
pub struct Look {
    /// Where it stood.
    pub standing: Standing,
    /// Events in order, all below [`Standing::next_index`].
    pub events: Vec<LogRow>,
    /// From where it was asked for up to this index, what is not among the events is not there.
    pub covered: u64,
}

/// A turn that is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurableTurn {
    /// Its number, in the order in which turns were written.
    pub number: u64,
    /// Its id.
    pub id: String,
    /// Its last event; an import has none.
    pub last: Option<u64>,
}

/// One statement, so that events and what is said about them are of one moment. A page is a range of indexes, so that its plan reads these
/// rows only, however long the log is; `behind` is the event behind that range, so that a gap is one, however long it is.
const LOOK: &str = "
    SELECT s.state, h.next_index, h.first_index, h.seen_index, h.turn_count, b.low + $3 AS high, r.behind, e.*
      FROM remote_sessions s
      JOIN remote_heads h ON h.session_id = s.id
     CROSS JOIN LATERAL (SELECT LEAST(GREATEST($2, h.first_index), h.next_index) AS low OFFSET 0) b
     CROSS JOIN LATERAL (
            SELECT (SELECT x.event_index FROM remote_events x
                     WHERE x.session_id = $1 AND x.event_index >= b.low + $3 AND x.event_index < h.next_index
                     ORDER BY x.event_index LIMIT 1) AS behind OFFSET 0) r
      LEFT JOIN LATERAL (
            SELECT q.event_index, q.stream, q.data, q.complete, q.at FROM (
                SELECT x.event_index, x.stream, x.data, x.complete, COALESCE(x.spoken_at, x.created_at) AS at,
                       sum(octet_length(x.data)) OVER (ORDER BY x.event_index) - octet_length(x.data) AS before
                  FROM remote_events x
                 WHERE x.session_id = $1 AND x.event_index >= b.low AND x.event_index < LEAST(b.low + $3, h.next_index)) q
             WHERE q.before < $4) e ON true
     WHERE s.id = $1";

impl Standing {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            state: word(row, "state")?,
            next_index: large(row, "next_index")?,
            first_index: large(row, "first_index")?,
            seen_index: large(row, "seen_index")?,
            turn_count: large(row, "turn_count")?,
        })
    }
}

impl Look {
    fn read(rows: &[Row], first: &Row) -> Result<Self, StoreError> {
        let standing = Standing::read(first)?;
        let mut events = Vec::with_capacity(rows.len());
        for row in rows {
            if get::<Option<i64>>(row, "event_index")?.is_some() {
                events.push(LogRow::read(row)?);
            }
        }
        // they come in order, but for what SQL promises of a join
        events.sort_unstable_by_key(|event| event.index);
        let bytes: usize = events.iter().map(|event| event.data.len()).sum();
        let covered = match events.last() {
            // it may have been cut here
            Some(last) if bytes >= limits::REMOTE_PAGE_BYTES => last.index + 1,
            _ if large(first, "high")? >= standing.next_index => standing.next_index,
            _ => match get::<Option<i64>>(first, "behind")? {
                Some(_) => large(first, "behind")?,
                None => standing.next_index,
            },
        };
        Ok(Self {
            standing,
            events,
            covered,
        })
    }
}

impl Db {
    /// A session's standing, and its events of at most `range` indexes from `from` on: about [`limits::REMOTE_PAGE_BYTES`], one at least where
    /// there is one. Without `from` no events. `None`: there is no such session.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn look_at_remote(
        &self,
        session: &RemoteSessionId,
        from: Option<u64>,
        range: u32,
    ) -> Result<Option<Look>, StoreError> {
        let bytes = i64::try_from(limits::REMOTE_PAGE_BYTES).unwrap_or(i64::MAX);
        let rows = self
            .query(
                "look_at_remote",
                LOOK,
                &[
                    text(&session.as_str()),
                    int8(&from.map_or(i64::MAX, signed)),
                    int8(&i64::from(range)),
                    int8(&bytes),
                ],
            )
            .await?;
        rows.first()
            .map(|first| Look::read(&rows, first))
            .transpose()
    }

    /// Turns with this number and later ones, in order, at most `limit`.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn durable_turns(
        &self,
        session: &RemoteSessionId,
        from: u64,
        limit: u32,
    ) -> Result<Vec<DurableTurn>, StoreError> {
        let rows = self
            .query(
                "durable_turns",
                "SELECT turn_no, turn_id, last_index FROM remote_turns WHERE session_id = $1 AND turn_no >= $2
                  ORDER BY turn_no LIMIT $3",
                &[
                    text(&session.as_str()),
                    int8(&signed(from)),
                    int8(&i64::from(limit)),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let last = match get::<Option<i64>>(row, "last_index")? {
                    Some(_) => Some(large(row, "last_index")?),
                    None => None,
                };
                Ok(DurableTurn {
                    number: large(row, "turn_no")?,
                    id: get(row, "turn_id")?,
                    last,
                })
            })
            .collect()
    }

    /// The first turn to tell a viewer who has the events up to `after`: the last [`limits::REMOTE_TURNS_AGAIN`] before it are told again.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn turns_to_tell(
        &self,
        session: &RemoteSessionId,
        after: u64,
    ) -> Result<u64, StoreError> {
        let row = self
            .query_opt(
                "turns_to_tell",
                "SELECT turn_no FROM remote_turns WHERE session_id = $1 AND last_index <= $2
                  ORDER BY last_index DESC OFFSET $3 LIMIT 1",
                &[
                    text(&session.as_str()),
                    int8(&signed(after)),
                    int8(&i64::from(limits::REMOTE_TURNS_AGAIN)),
                ],
            )
            .await?;
        match row {
            Some(row) => Ok(large(&row, "turn_no")? + 1),
            None => Ok(0),
        }
    }
}
