//! Reading a session as a whole, while it may still live, without a transaction that lasts: each turn is cut off by the seq that
//! was next when its row was read, so that row and parts agree however long the reader takes.

use bex_proto::ids::PartId;
use bex_proto::{Generation, Seq, SessionId, TurnNo};
use bytes::Bytes;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{
    generation, get, index, int4, int8, number, optional_unsigned, text, turn, turn_no,
};
use crate::transcript::StoredPart;
use crate::turns::TurnRow;

/// A turn as it stood at one moment.
#[derive(Debug, Clone)]
pub struct TurnSnapshot {
    /// Its row, with the prompt.
    pub turn: TurnRow,
    /// Parts with a lower seq are those the row counts.
    pub before: Seq,
    /// The statement that says exactly this of it, where one does.
    pub statement: Option<u32>,
}

const SNAPSHOT: &str = "
    SELECT t.*, h.next_seq, CASE WHEN NOT t.statement_due THEN (
               SELECT max(n.number) FROM turn_statements n WHERE n.session_id = t.session_id AND n.turn = t.turn)
           END AS statement
      FROM turns t JOIN transcript_heads h ON h.session_id = t.session_id
     WHERE t.session_id = $1 AND t.turn >= $2 ORDER BY t.turn LIMIT 1";

/// A range of indexes, so that any plan reads the page's rows only; a row's length is known without its payload.
const PARTS: &str = "
    SELECT q.turn, q.part_index, q.seq, q.part, q.spoken_at, q.created_at
      FROM (SELECT p.*, sum(octet_length(p.part)) OVER (ORDER BY p.part_index) - octet_length(p.part) AS before
              FROM transcript_parts p
             WHERE p.session_id = $1 AND p.turn = $2 AND p.part_index BETWEEN $3 AND $4 AND p.seq < $5) q
     WHERE q.before < $6 ORDER BY q.part_index";

impl Db {
    /// The first turn at or above `from`, with the cut that belongs to it.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn turn_snapshot(
        &self,
        session: &SessionId,
        from: TurnNo,
    ) -> Result<Option<TurnSnapshot>, StoreError> {
        let (session, from) = (session.as_str(), turn_no(from));
        let params = [text(&session), int4(&from)];
        let Some(row) = self.query_opt("turn_snapshot", SNAPSHOT, &params).await? else {
            return Ok(None);
        };
        Ok(Some(TurnSnapshot {
            turn: TurnRow::read(&row)?,
            before: Seq(get(&row, "next_seq")?),
            statement: optional_unsigned(&row, "statement")?,
        }))
    }

    /// Parts of one turn from `from` on in order, with all that is known of them: those of the next `indexes` indexes with a seq below
    /// `before`, and as many as begin within `max_bytes`, so one at least if one is there.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn export_parts(
        &self,
        session: &SessionId,
        from: PartId,
        before: Seq,
        indexes: u32,
        max_bytes: usize,
    ) -> Result<Vec<StoredPart>, StoreError> {
        let last = from.index.0.saturating_add(indexes.max(1) - 1);
        let rows = self
            .query(
                "export_parts",
                PARTS,
                &[
                    text(&session.as_str()),
                    int4(&turn_no(from.turn)),
                    int4(&number(from.index.0)),
                    int4(&number(last)),
                    int8(&before.0),
                    int8(&i64::try_from(max_bytes).unwrap_or(i64::MAX)),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(StoredPart {
                    id: PartId {
                        turn: turn(row, "turn")?,
                        index: index(row, "part_index")?,
                    },
                    seq: Seq(get(row, "seq")?),
                    bytes: Bytes::from(get::<String>(row, "part")?),
                    spoken_at: get(row, "spoken_at")?,
                    created_at: get(row, "created_at")?,
                })
            })
            .collect()
    }

    /// The highest generation a session ever gave out.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn session_generation(
        &self,
        session: &SessionId,
    ) -> Result<Option<Generation>, StoreError> {
        self.query_opt(
            "session_generation",
            "SELECT generation FROM sessions WHERE id = $1",
            &[text(&session.as_str())],
        )
        .await?
        .map(|row| generation(&row, "generation"))
        .transpose()
    }
}
