//! What can be known of a transcript without reading payloads.

use bex_proto::ids::PartId;
use bex_proto::{PartIndex, SessionId, TurnNo, limits};

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, index, int4, int8, number, optional_unsigned, text, turn_no, unsigned};

/// Kind and chunk id of one stored part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartHead {
    /// Its position in the turn.
    pub index: PartIndex,
    /// The chunk's type.
    pub kind: String,
    /// The chunk's id or tool call id.
    pub chunk_id: Option<String>,
}

/// Heads of one page.
const HEADS_PAGE: i64 = 10_000;

/// A call's input and its answer, of turns that came before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierCall {
    /// The turn it was made in.
    pub turn: TurnNo,
    /// The chunk's type.
    pub kind: String,
    /// The tool call id.
    pub chunk_id: Option<String>,
}

impl Db {
    /// The first index of a turn that is not stored: where its contiguous prefix ends. 0 when nothing is stored.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn contiguous_end(
        &self,
        session: &SessionId,
        turn: TurnNo,
    ) -> Result<PartIndex, StoreError> {
        let row = self
            .query_opt(
                "contiguous_end",
                // the counters answer at once for a turn without holes; only one with holes is walked (by index)
                "SELECT CASE WHEN m.last IS NULL THEN 0
                             WHEN m.last + 1 = t.stored_parts THEN t.stored_parts
                             ELSE (SELECT min(n)::integer FROM (
                                     SELECT part_index, row_number() OVER (ORDER BY part_index) - 1 AS n
                                       FROM transcript_parts WHERE session_id = $1 AND turn = $2) w
                                    WHERE part_index <> n) END AS contiguous
                   FROM turns t, LATERAL (SELECT max(part_index) AS last FROM transcript_parts
                                           WHERE session_id = $1 AND turn = $2) m
                  WHERE t.session_id = $1 AND t.turn = $2",
                &[text(&session.as_str()), int4(&turn_no(turn))],
            )
            .await?;
        row.map_or(Ok(PartIndex(0)), |row| {
            unsigned(&row, "contiguous").map(PartIndex)
        })
    }

    /// The lowest stored index of the turn that is at or above `from`: the far side of a hole.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn next_stored(
        &self,
        session: &SessionId,
        from: PartId,
    ) -> Result<Option<PartIndex>, StoreError> {
        let row = self
            .query_one(
                "next_stored",
                "SELECT min(part_index) AS found FROM transcript_parts
                  WHERE session_id = $1 AND turn = $2 AND part_index >= $3",
                &[
                    text(&session.as_str()),
                    int4(&turn_no(from.turn)),
                    int4(&number(from.index.0)),
                ],
            )
            .await?;
        Ok(optional_unsigned(&row, "found")?.map(PartIndex))
    }

    /// Kinds and chunk ids of the turn's stored parts in `[from, before)`, text and reasoning deltas left out: enough to
    /// know what is open at `before`. At most 10 000 a page; an empty page is the end, the next begins behind the last.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn kinds_before(
        &self,
        session: &SessionId,
        before: PartId,
        from: PartIndex,
    ) -> Result<Vec<PartHead>, StoreError> {
        let rows = self
            .query(
                "kinds_before",
                "SELECT part_index, kind, chunk_id FROM transcript_parts
                  WHERE session_id = $1 AND turn = $2 AND part_index >= $3 AND part_index < $4
                    AND kind <> 'text-delta' AND kind <> 'reasoning-delta'
                  ORDER BY part_index LIMIT $5",
                &[
                    text(&session.as_str()),
                    int4(&turn_no(before.turn)),
                    int4(&number(from.0)),
                    int4(&number(before.index.0)),
                    int8(&HEADS_PAGE),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(PartHead {
                    index: index(row, "part_index")?,
                    kind: get(row, "kind")?,
                    chunk_id: get(row, "chunk_id")?,
                })
            })
            .collect()
    }

    /// The tool calls of turns before `before`'s that no step divides from it, oldest first: a call in its turn may use their ids
    /// again. Of more than four chunks for each of [`limits::KNOWN_CALLS`] the newest.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn calls_before(
        &self,
        session: &SessionId,
        before: PartId,
    ) -> Result<Vec<EarlierCall>, StoreError> {
        let rows = self
            .query(
                "calls_before",
                "WITH step AS (
                     SELECT turn, part_index FROM transcript_parts
                      WHERE session_id = $1 AND (turn, part_index) < ($2, $3) AND kind LIKE 'start-step%'
                      ORDER BY turn DESC, part_index DESC LIMIT 1)
                 SELECT turn, kind, chunk_id FROM transcript_parts
                  WHERE session_id = $1 AND turn < $2 AND kind LIKE 'tool-%' AND kind NOT LIKE 'tool-input-delta%'
                    AND (turn, part_index) > (coalesce((SELECT turn FROM step), 0),
                                              coalesce((SELECT part_index FROM step), 0))
                  ORDER BY turn DESC, part_index DESC LIMIT $4",
                &[
                    text(&session.as_str()),
                    int4(&turn_no(before.turn)),
                    int4(&number(before.index.0)),
                    int8(&(4 * limits::KNOWN_CALLS as i64)),
                ],
            )
            .await?;
        rows.iter()
            .rev()
            .map(|row| {
                Ok(EarlierCall {
                    turn: TurnNo(unsigned(row, "turn")?),
                    kind: get(row, "kind")?,
                    chunk_id: get(row, "chunk_id")?,
                })
            })
            .collect()
    }
}
