//! Events that never came: when they are given up, and which they were.

use bex_proto::message::Gap;
use bex_proto::{RemoteSessionId, limits};

use super::log::signed;
use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{float8, get, int8, large, text};
use crate::wake::Channel;

/// What a look at a session's gap came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// Nothing is missing, or it may still come.
    Waiting,
    /// These were given up now.
    GivenUp(Gap),
    /// It has too many: the session ends with an error.
    TooMany,
}

const DUE: &str = "
    SELECT h.next_index, h.high_index, h.gaps, s.state, s.ending_index,
           COALESCE(h.gap_since < clock_timestamp() - (CASE WHEN h.last_seen THEN $2 ELSE $3 END) * interval '1 second', false)
               OR (s.state = 'ending' AND COALESCE(s.ending_since < clock_timestamp() - $3 * interval '1 second', false)) AS due
      FROM remote_sessions s JOIN remote_heads h ON h.session_id = s.id
     WHERE s.id = $1 FOR NO KEY UPDATE OF s FOR UPDATE OF h";

impl Db {
    /// Gives up the first missing events of a session if they were waited for long enough. Past a session's declared end nothing is missing.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn decide_gap(&self, session: &RemoteSessionId) -> Result<Decided, StoreError> {
        let (last, long) = (
            limits::REMOTE_GAP_LAST_WAIT.as_secs_f64(),
            limits::REMOTE_GAP_WAIT.as_secs_f64(),
        );
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let Some(row) = tx
            .query_opt(
                "decide_gap",
                DUE,
                &[text(&session.as_str()), float8(&last), float8(&long)],
            )
            .await?
        else {
            return Ok(Decided::Waiting);
        };
        let (next, high) = (large(&row, "next_index")?, large(&row, "high_index")?);
        let declared = get::<Option<i64>>(&row, "ending_index")?;
        let declared = declared.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        if !get::<bool>(&row, "due")? || next >= high.max(declared) {
            return Ok(Decided::Waiting);
        }
        if get::<i32>(&row, "gaps")? >= i32::try_from(limits::REMOTE_GAPS).unwrap_or(i32::MAX) {
            return Ok(Decided::TooMany);
        }
        let row = tx
            .query_one(
                "decide_gap",
                "SELECT min(event_index) AS found FROM remote_events WHERE session_id = $1 AND event_index >= $2",
                &[text(&session.as_str()), int8(&signed(next))],
            )
            .await?;
        let found = get::<Option<i64>>(&row, "found")?;
        // what was declared and never came is a gap too, at the very end
        let behind = found
            .and_then(|n| u64::try_from(n).ok())
            .unwrap_or_else(|| high.max(declared));
        let gap = Gap {
            from: next,
            to: behind - 1,
        };
        tx.execute(
            "decide_gap",
            "INSERT INTO remote_gaps (session_id, from_index, to_index) VALUES ($1, $2, $3)",
            &[
                text(&session.as_str()),
                int8(&signed(gap.from)),
                int8(&signed(gap.to)),
            ],
        )
        .await?;
        tx.execute(
            "decide_gap",
            "UPDATE remote_heads h
                SET next_index = n.next, high_index = GREATEST(h.high_index, $2), gaps = h.gaps + 1,
                    gap_since = CASE WHEN n.next < h.high_index THEN clock_timestamp() END,
                    last_seen = h.last_seen AND n.next < h.high_index
               FROM (SELECT bex_remote_first_missing($1, $2, GREATEST(x.high_index, $2)) AS next
                       FROM remote_heads x WHERE x.session_id = $1) n
              WHERE h.session_id = $1",
            &[text(&session.as_str()), int8(&signed(behind))],
        )
        .await?;
        tx.notify(Channel::Remote, session.as_str()).await?;
        tx.commit().await?;
        Ok(Decided::GivenUp(gap))
    }

    /// Every gap of a session that lies above `from`, in order; there are at most [`limits::REMOTE_GAPS`].
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn remote_gaps(
        &self,
        session: &RemoteSessionId,
        from: u64,
    ) -> Result<Vec<Gap>, StoreError> {
        let rows = self
            .query(
                "remote_gaps",
                "SELECT from_index, to_index FROM remote_gaps WHERE session_id = $1 AND to_index >= $2 ORDER BY from_index",
                &[text(&session.as_str()), int8(&signed(from))],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Gap {
                    from: large(row, "from_index")?,
                    to: large(row, "to_index")?,
                })
            })
            .collect()
    }
}
