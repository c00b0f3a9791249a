//! Pages in both orders. A page is bounded in parts and bytes before its payloads are read, and never empty while there is more.

use bex_proto::ids::PartId;
use bex_proto::transcript::Part;
use bex_proto::ui_stream::ChunkHead;
use bex_proto::{PartIndex, Seq, SessionId, TurnNo, limits};
use bytes::Bytes;
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

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
    /// The stored bytes, verbatim.
    pub bytes: Bytes,
    /// The driver's clock.
    pub spoken_at: Option<Timestamp>,
    /// The store's clock.
    pub created_at: Timestamp,
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

/// A range of indexes, so that any plan reads the page's rows only; and only what a viewer is shown. A large part's place holds
/// its length instead: what a page costs in memory is known before it is read, without a look at every length first.
const PAGE: &str = "SELECT part_index, kind, chunk_id,
                           CASE WHEN octet_length(part) <= $5 THEN part END AS part,
                           CASE WHEN octet_length(part) > $5 THEN octet_length(part) END AS octets
                      FROM transcript_parts
                     WHERE session_id = $1 AND turn = $2 AND part_index BETWEEN $3 AND $4 ORDER BY part_index";
const LARGE: &str = "SELECT part_index, part FROM transcript_parts
                      WHERE session_id = $1 AND turn = $2 AND part_index = ANY ($3) ORDER BY part_index";
const FEED: &str = "SELECT turn, part_index, seq, part, spoken_at, created_at
                      FROM bex_feed_page($1, $2, $3, $4)";

impl StoredPart {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: PartId {
                turn: turn(row, "turn")?,
                index: index(row, "part_index")?,
            },
            seq: Seq(get(row, "seq")?),
            bytes: Bytes::from(get::<String>(row, "part")?),
            spoken_at: get(row, "spoken_at")?,
            created_at: get(row, "created_at")?,
        })
    }
}

impl Db {
    /// Parts of one turn from `from` (inclusive) in order: those of the next `indexes` indexes, and as many as fit `max_bytes`, but
    /// one at least if one is there. Holes are left as they are. Without the driver's times, which no viewer is shown.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn read_page(
        &self,
        session: &SessionId,
        from: PartId,
        indexes: u32,
        max_bytes: usize,
    ) -> Result<Vec<Part>, StoreError> {
        let indexes = indexes.max(1);
        let last = from.index.0.saturating_add(indexes - 1);
        let share = max_bytes / indexes as usize;
        let rows = self
            .query(
                "read_page",
                PAGE,
                &[
                    text(&session.as_str()),
                    int4(&turn_no(from.turn)),
                    int4(&number(from.index.0)),
                    int4(&number(last)),
                    int4(&i32::try_from(share).unwrap_or(i32::MAX)),
                ],
            )
            .await?;
        let mut page = Page::cut(rows, max_bytes)?;
        if !page.large.is_empty() {
            let filled = self
                .query(
                    "read_large_parts",
                    LARGE,
                    &[
                        text(&session.as_str()),
                        int4(&turn_no(from.turn)),
                        int4s(&page.large),
                    ],
                )
                .await?;
            page.fill(filled)?;
        }
        page.parts(from.turn)
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
}

/// A page while it is read.
struct Page {
    /// In order, each with its part or the part's length.
    rows: Vec<Row>,
    /// Indexes of the parts that are not in their rows.
    large: Vec<i32>,
    /// Those parts' rows.
    filled: Vec<Row>,
}

/// Columns of `PAGE` and `LARGE`.
mod column {
    pub const INDEX: usize = 0;
    pub const KIND: usize = 1;
    pub const CHUNK_ID: usize = 2;
    pub const PART: usize = 3;
    pub const OCTETS: usize = 4;
    pub const LARGE_PART: usize = 1;
}

impl Page {
    /// As many rows as fit.
    fn cut(mut rows: Vec<Row>, max_bytes: usize) -> Result<Self, StoreError> {
        let mut large = Vec::new();
        let mut bytes = 0;
        let mut fit = 0;
        for row in &rows {
            let length = match at::<Option<i32>>(row, column::OCTETS)? {
                Some(octets) => octets.unsigned_abs() as usize,
                None => at::<Verbatim<'_>>(row, column::PART)?.0.len(),
            };
            bytes += length;
            if bytes > max_bytes && fit > 0 {
                break;
            }
            if at::<Option<i32>>(row, column::OCTETS)?.is_some() {
                large.push(at(row, column::INDEX)?);
            }
            fit += 1;
        }
        rows.truncate(fit);
        Ok(Self {
            rows,
            large,
            filled: Vec::new(),
        })
    }

    /// Takes the large parts. The page ends at one that is not there any more.
    fn fill(&mut self, filled: Vec<Row>) -> Result<(), StoreError> {
        let found = filled
            .iter()
            .map(|row| at::<i32>(row, column::INDEX))
            .collect::<Result<Vec<_>, _>>()?;
        let lost = self
            .large
            .iter()
            .zip(found.iter().map(Some).chain(std::iter::repeat(None)));
        let lost = lost
            .into_iter()
            .find(|(wanted, found)| Some(*wanted) != *found);
        if let Some((lost, _)) = lost {
            let end = self
                .rows
                .iter()
                .position(|row| at::<i32>(row, column::INDEX).is_ok_and(|index| index == *lost));
            self.rows.truncate(end.unwrap_or(0));
        }
        self.filled = filled;
        Ok(())
    }

    fn parts(self, turn: TurnNo) -> Result<Vec<Part>, StoreError> {
        let mut filled = self.filled.into_iter();
        let part = |row: Row| {
            let index = at::<i32>(&row, column::INDEX)?;
            let head =
                ChunkHead::from_columns(at(&row, column::KIND)?, at(&row, column::CHUNK_ID)?);
            let (row, column) = match at::<Option<i32>>(&row, column::OCTETS)? {
                None => (row, column::PART),
                Some(_) => (
                    filled.next().ok_or(StoreError::Corrupt { what: "part" })?,
                    column::LARGE_PART,
                ),
            };
            at::<Verbatim<'_>>(&row, column)?;
            Ok(Part {
                id: PartId {
                    turn,
                    index: PartIndex(index.unsigned_abs()),
                },
                head,
                bytes: Bytes::from_owner(PartOfRow { row, column }),
                spoken_at: None,
            })
        };
        self.rows.into_iter().map(part).collect()
    }
}

/// A row kept for its part: the bytes stay where they were received.
struct PartOfRow {
    row: Row,
    column: usize,
}

impl AsRef<[u8]> for PartOfRow {
    fn as_ref(&self) -> &[u8] {
        // read once before, so that there is nothing to fail here
        self.row
            .try_get::<_, Verbatim<'_>>(self.column)
            .map_or(&[], |part| part.0)
    }
}

/// A text column's bytes. The server has checked that they are text.
struct Verbatim<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Verbatim<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TEXT
    }
}

/// A column by position: names are looked up from the first column on, for every row.
fn at<'r, T: FromSql<'r>>(row: &'r Row, column: usize) -> Result<T, StoreError> {
    row.try_get(column)
        .map_err(|_| StoreError::Corrupt { what: "page" })
}

fn bytes(max: usize) -> i64 {
    i64::try_from(max).unwrap_or(i64::MAX)
}
