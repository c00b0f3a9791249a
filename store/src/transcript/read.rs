//! Pages in both orders. A page is bounded in parts and bytes inside the server, and never empty while there is more.

use bex_proto::ids::PartId;
use bex_proto::transcript::Part;
use bex_proto::ui_stream::ChunkHead;
use bex_proto::{PartIndex, Seq, SessionId, TurnNo, limits};
use bytes::Bytes;
use jiff::Timestamp;
use tokio_postgres::Row;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, index, int4, int4s, int8, number, text, turn, turn_no};

/// One stored part.
#[derive(Debug, Clone)]
pub struct StoredPart {
    /// Its identity.
    pub id: PartId,
    /// Its place in the feed.
    pub seq: Seq,
    /// The chunk's type.
    pub kind: String,
    /// The chunk's id or tool call id.
    pub chunk_id: Option<String>,
    /// The stored bytes, verbatim.
    pub bytes: Bytes,
    /// The driver's clock.
    pub spoken_at: Option<Timestamp>,
    /// The store's clock.
    pub created_at: Timestamp,
}

/// One page of a conversation; it lies in one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageBounds {
    /// Its turn.
    pub turn: TurnNo,
    /// Index of its first part.
    pub first: PartIndex,
    /// Index of its last part.
    pub last: PartIndex,
}

/// One page of a feed.
#[derive(Debug, Clone)]
pub struct FeedPage {
    /// In seq order.
    pub parts: Vec<StoredPart>,
    /// Where the next page begins; unchanged when this one is empty.
    pub next_after: Seq,
    /// Nothing was stored behind this page when it was read. A page that is not caught up never changes.
    pub caught_up: bool,
}

const CONVERSATION: &str =
    "SELECT turn, part_index, seq, kind, chunk_id, part, spoken_at, created_at
                              FROM bex_conversation_page($1, $2, $3, $4, $5)";
const BOUNDS: &str =
    "SELECT turn, first_index, last_index FROM bex_page_bounds($1, $2, $3, $4, $5, $6)";
/// By bounds, so that any plan reads the page's rows only; and only what a viewer is shown.
const PAGE: &str = "SELECT part_index, kind, chunk_id, part FROM transcript_parts
                     WHERE session_id = $1 AND turn = $2 AND part_index BETWEEN $3 AND $4 ORDER BY part_index";
const FEED: &str = "SELECT turn, part_index, seq, kind, chunk_id, part, spoken_at, created_at
                      FROM bex_feed_page($1, $2, $3, $4)";

impl StoredPart {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: PartId {
                turn: turn(row, "turn")?,
                index: index(row, "part_index")?,
            },
            seq: Seq(get(row, "seq")?),
            kind: get(row, "kind")?,
            chunk_id: get(row, "chunk_id")?,
            bytes: Bytes::from(get::<String>(row, "part")?),
            spoken_at: get(row, "spoken_at")?,
            created_at: get(row, "created_at")?,
        })
    }
}

impl Db {
    /// Parts from `from` (inclusive) in part-id order: at most `max_parts`, and as many as fit `max_bytes`, but one at
    /// least. Holes are left as they are; of an open turn the caller cuts at the first.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn read_conversation(
        &self,
        session: &SessionId,
        from: PartId,
        max_parts: u32,
        max_bytes: usize,
    ) -> Result<Vec<StoredPart>, StoreError> {
        let rows = self
            .query(
                "read_conversation",
                CONVERSATION,
                &[
                    text(&session.as_str()),
                    int4(&turn_no(from.turn)),
                    int4(&number(from.index.0)),
                    int8(&i64::from(max_parts.max(1))),
                    int8(&bytes(max_bytes)),
                ],
            )
            .await?;
        rows.iter().map(StoredPart::read).collect()
    }

    /// The next `pages` pages from `from` on, bounded as in [`Db::read_conversation`]. Fewer when the session has no more.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn page_bounds(
        &self,
        session: &SessionId,
        from: PartId,
        max_parts: u32,
        max_bytes: usize,
        pages: u32,
    ) -> Result<Vec<PageBounds>, StoreError> {
        let rows = self
            .query(
                "page_bounds",
                BOUNDS,
                &[
                    text(&session.as_str()),
                    int4(&turn_no(from.turn)),
                    int4(&number(from.index.0)),
                    int8(&i64::from(max_parts.max(1))),
                    int8(&bytes(max_bytes)),
                    int4(&number(pages)),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(PageBounds {
                    turn: turn(row, "turn")?,
                    first: index(row, "first_index")?,
                    last: index(row, "last_index")?,
                })
            })
            .collect()
    }

    /// The parts of one page of [`Db::page_bounds`], and what was stored between them since. Without the driver's times, which no
    /// viewer is shown.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn read_page(
        &self,
        session: &SessionId,
        page: PageBounds,
    ) -> Result<Vec<Part>, StoreError> {
        let rows = self
            .query(
                "read_page",
                PAGE,
                &[
                    text(&session.as_str()),
                    int4(&turn_no(page.turn)),
                    int4(&number(page.first.0)),
                    int4(&number(page.last.0)),
                ],
            )
            .await?;
        rows.into_iter()
            .map(|row| {
                get::<&str>(&row, PART)?;
                Ok(Part {
                    id: PartId {
                        turn: page.turn,
                        index: index(&row, "part_index")?,
                    },
                    head: ChunkHead::from_columns(get(&row, "kind")?, get(&row, "chunk_id")?),
                    bytes: Bytes::from_owner(PartOfRow(row)),
                    spoken_at: None,
                })
            })
            .collect()
    }

    /// Parts after `after` in seq order: at most `limit` (and [`limits::FEED_LIMIT`]), and as many as fit
    /// [`limits::FEED_PAGE_BYTES`], but one at least. Seqs become visible in order, because append numbers under a lock.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn read_feed(
        &self,
        session: &SessionId,
        after: Seq,
        limit: u32,
    ) -> Result<FeedPage, StoreError> {
        let head = self.transcript_head(session).await?;
        let rows = self
            .query(
                "read_feed",
                FEED,
                &[
                    text(&session.as_str()),
                    int8(&after.0),
                    int8(&i64::from(limit.clamp(1, limits::FEED_LIMIT))),
                    int8(&bytes(limits::FEED_PAGE_BYTES)),
                ],
            )
            .await?;
        let parts = rows
            .iter()
            .map(StoredPart::read)
            .collect::<Result<Vec<_>, _>>()?;
        let next_after = parts.last().map_or(after, |part| part.seq);
        let caught_up = head.is_none_or(|head| next_after.0 >= head.next_seq.0 - 1);
        Ok(FeedPage {
            parts,
            next_after,
            caught_up,
        })
    }

    /// Some parts of a turn by index, in order; at most [`limits::REPLAY_PAGE_PARTS`] indexes.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn read_parts(
        &self,
        session: &SessionId,
        turn: TurnNo,
        indexes: &[PartIndex],
    ) -> Result<Vec<StoredPart>, StoreError> {
        let wanted: Vec<i32> = indexes
            .iter()
            .take(limits::REPLAY_PAGE_PARTS)
            .map(|i| number(i.0))
            .collect();
        let rows = self
            .query(
                "read_parts",
                "SELECT turn, part_index, seq, kind, chunk_id, part, spoken_at, created_at FROM transcript_parts
                  WHERE session_id = $1 AND turn = $2 AND part_index = ANY ($3) ORDER BY part_index",
                &[text(&session.as_str()), int4(&turn_no(turn)), int4s(&wanted)],
            )
            .await?;
        rows.iter().map(StoredPart::read).collect()
    }
}

const PART: &str = "part";

/// A row kept for its part: the bytes stay where they were received.
struct PartOfRow(Row);

impl AsRef<[u8]> for PartOfRow {
    fn as_ref(&self) -> &[u8] {
        // read once before, so that there is nothing to fail here
        self.0
            .try_get::<_, &str>(PART)
            .unwrap_or_default()
            .as_bytes()
    }
}

fn bytes(max: usize) -> i64 {
    i64::try_from(max).unwrap_or(i64::MAX)
}
