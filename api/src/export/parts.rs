//! A turn's parts, page by page.

use std::collections::VecDeque;

use bex_proto::ids::PartId;
use bex_proto::{PartIndex, Seq, SessionId, TurnNo};
use bex_store::transcript::StoredPart;
use bex_store::{Db, StoreError};

/// Indexes of one page.
const PAGE_INDEXES: u32 = 512;
/// Bytes in which a page's parts begin; one more part may follow.
const PAGE_BYTES: usize = 1024 * 1024;

/// Reads the parts of one turn that were stored before a cut, in order, holes left as they are.
pub(super) struct Parts<'a> {
    db: &'a Db,
    session: &'a SessionId,
    before: Seq,
    /// Where the next page begins; `None` behind the last.
    next: Option<PartId>,
    page: VecDeque<StoredPart>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(db: &'a Db, session: &'a SessionId, turn: TurnNo, before: Seq) -> Self {
        let first = PartId {
            turn,
            index: PartIndex(0),
        };
        Self {
            db,
            session,
            before,
            next: Some(first),
            page: VecDeque::new(),
        }
    }

    /// The next part.
    pub(super) async fn next(&mut self) -> Result<Option<StoredPart>, StoreError> {
        while self.page.is_empty() {
            let Some(from) = self.next else {
                return Ok(None);
            };
            let page = self
                .db
                .export_parts(self.session, from, self.before, PAGE_INDEXES, PAGE_BYTES)
                .await?;
            self.next = match page.last() {
                Some(last) => Some(last.id.next()),
                // nothing in this range: perhaps behind it
                None => {
                    let beyond = from.plus(PAGE_INDEXES);
                    let found = self.db.next_stored(self.session, beyond).await?;
                    found.map(|index| PartId { index, ..from })
                }
            };
            self.page = page.into();
        }
        Ok(self.page.pop_front())
    }
}
