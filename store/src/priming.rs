//! Reading what was said, from the newest turn back, without the payloads that nobody wants.

use bex_proto::ids::PartId;
use bex_proto::transcript::Part;
use bex_proto::ui_stream::ChunkHead;
use bex_proto::{SessionId, TurnNo};
use bytes::Bytes;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, index, int4, int8, number, text, texts, turn, turn_no};

/// As [`Db::export_parts`](crate::Db), but of some kinds. The kind column's marks stand behind a semicolon.
const WORDS: &str = "
    SELECT q.part_index, q.kind, q.chunk_id, q.part
      FROM (SELECT p.*, sum(octet_length(p.part)) OVER (ORDER BY p.part_index) - octet_length(p.part) AS before
              FROM transcript_parts p
             WHERE p.session_id = $1 AND p.turn = $2 AND p.part_index BETWEEN $3 AND $4
               AND split_part(p.kind, ';', 1) = ANY ($5)) q
     WHERE q.before < $6 ORDER BY q.part_index";

impl Db {
    /// The newest turn below `before` with its prompt.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn turn_before(
        &self,
        session: &SessionId,
        before: TurnNo,
    ) -> Result<Option<(TurnNo, String)>, StoreError> {
        self.query_opt(
            "turn_before",
            "SELECT turn, prompt FROM turns WHERE session_id = $1 AND turn < $2 ORDER BY turn DESC LIMIT 1",
            &[text(&session.as_str()), int4(&turn_no(before))],
        )
        .await?
        .map(|row| Ok((turn(&row, "turn")?, get(&row, "prompt")?)))
        .transpose()
    }

    /// Parts of some kinds of one turn from `from` on in order: those of the next `indexes` indexes, and as many as begin within
    /// `max_bytes`, so one at least if one is there.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn read_kinds(
        &self,
        session: &SessionId,
        from: PartId,
        indexes: u32,
        kinds: &[&str],
        max_bytes: usize,
    ) -> Result<Vec<Part>, StoreError> {
        let last = from.index.0.saturating_add(indexes.max(1) - 1);
        let rows = self
            .query(
                "read_kinds",
                WORDS,
                &[
                    text(&session.as_str()),
                    int4(&turn_no(from.turn)),
                    int4(&number(from.index.0)),
                    int4(&number(last)),
                    texts(&kinds),
                    int8(&i64::try_from(max_bytes).unwrap_or(i64::MAX)),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Part {
                    id: PartId {
                        turn: from.turn,
                        index: index(row, "part_index")?,
                    },
                    head: ChunkHead::from_columns(get(row, "kind")?, get(row, "chunk_id")?),
                    bytes: Bytes::from(get::<String>(row, "part")?),
                    spoken_at: None,
                })
            })
            .collect()
    }
}
