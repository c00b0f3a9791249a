//! Reading what is stored, page by page, under one memory budget of the process.
//!
//! A page holds permits for its bytes until the viewer has taken it, and while a full page is sent the next one is read, if there
//! is memory for both. A viewer that waits holds nothing, and no database connection is held between pages. Part bytes never
//! change, so a part found in a page read earlier is always right; that a part is *not* there is only believed of a page read
//! just now.

use std::collections::VecDeque;
use std::sync::Arc;

use bex_proto::ids::PartId;
use bex_proto::transcript::Part;
use bex_proto::ui_stream::ChunkHead;
use bex_proto::{SessionId, limits};
use bex_store::transcript::StoredPart;
use bex_store::{Db, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

use super::pull::StoreRead;

/// What is handed out at once: small enough that a frame goes out before the page is through.
const RUN_PARTS: usize = 256;
/// See [`RUN_PARTS`].
const RUN_BYTES: usize = 64 * 1024;
/// A page may be one part of the largest size, and is read as large as that: fewer, larger reads are faster.
const READING_PERMITS: u32 = (limits::PART_BYTES / limits::REPLAY_PAGE_BYTES) as u32;
/// Bytes of one read.
const READ_BYTES: usize = READING_PERMITS as usize * limits::REPLAY_PAGE_BYTES;

/// The replay memory of a process.
#[derive(Debug, Clone)]
pub struct ReplayBudget(Arc<Semaphore>);

impl Default for ReplayBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(
            limits::REPLAY_BUDGET_BYTES / limits::REPLAY_PAGE_BYTES,
        )))
    }
}

impl ReplayBudget {
    /// All of it, so that a test can see viewers wait.
    #[cfg(test)]
    pub(super) fn take_all(&self) -> OwnedSemaphorePermit {
        let all = (limits::REPLAY_BUDGET_BYTES / limits::REPLAY_PAGE_BYTES) as u32;
        let budget = Arc::clone(&self.0);
        budget.try_acquire_many_owned(all).expect("nobody reads")
    }

    /// Bytes that nobody uses now.
    pub fn free_bytes(&self) -> usize {
        self.0.available_permits() * limits::REPLAY_PAGE_BYTES
    }
}

/// One viewer's reading of one session.
pub struct Pages {
    db: Db,
    session: SessionId,
    budget: ReplayBudget,
    page: Page,
    /// The page behind a full one, read while that one is being sent.
    ahead: Option<AbortOnDropHandle<Result<Page, StoreError>>>,
}

/// Parts in part-id order, and the memory they are accounted with.
#[derive(Default)]
struct Page {
    parts: VecDeque<Arc<Part>>,
    /// Given back with the page.
    _permit: Option<OwnedSemaphorePermit>,
    /// Where the next page begins, if this one was full.
    next: Option<PartId>,
}

impl Page {
    async fn read(
        db: Db,
        session: SessionId,
        from: PartId,
        mut permit: OwnedSemaphorePermit,
    ) -> Result<Self, StoreError> {
        let max_parts = limits::REPLAY_PAGE_PARTS as u32;
        let rows = db
            .read_conversation(&session, from, max_parts, READ_BYTES)
            .await?;
        let bytes: usize = rows.iter().map(|row| row.bytes.len()).sum();
        let full = rows.len() == limits::REPLAY_PAGE_PARTS || bytes > READ_BYTES / 2;
        Ok(Self {
            next: rows.last().filter(|_| full).map(|last| last.id.next()),
            parts: rows.into_iter().map(|row| Arc::new(part_of(row))).collect(),
            _permit: permit.split(bytes.div_ceil(limits::REPLAY_PAGE_BYTES)),
        })
    }

    fn drop_before(&mut self, at: PartId) {
        while self.parts.front().is_some_and(|part| part.id < at) {
            self.parts.pop_front();
        }
    }

    /// Whether this page, whenever it was read, tells what is stored at `at`. Bytes never change; and a later turn has parts only
    /// once this one is settled, so this one's parts in the page are all there are.
    fn tells(&self, at: PartId) -> bool {
        let front = self.parts.front();
        front.is_some_and(|part| part.id == at || part.id.turn > at.turn)
    }
}

impl Pages {
    /// Nothing is read yet.
    pub fn new(db: Db, session: SessionId, budget: ReplayBudget) -> Self {
        Self {
            db,
            session,
            budget,
            page: Page::default(),
            ahead: None,
        }
    }

    /// What is stored at `at`: a contiguous run of its turn, or where the turn goes on. May wait for memory.
    ///
    /// # Errors
    /// Store trouble; the same call may be made again.
    pub async fn read(&mut self, at: PartId) -> Result<StoreRead, StoreError> {
        self.page.drop_before(at);
        if self.page.parts.is_empty()
            && let Some(ahead) = self.ahead.take()
        {
            self.page = Page::default();
            // when reading ahead failed, reading at the position says why
            if let Ok(Ok(page)) = ahead.await {
                self.page = page;
                self.page.drop_before(at);
            }
        }
        if !self.page.tells(at) {
            self.fetch(at).await?;
        }
        self.look_ahead();
        let mut parts = Vec::new();
        let mut bytes = 0;
        let mut wanted = at;
        while let Some(part) = self.page.parts.front()
            && part.id == wanted
            && parts.len() < RUN_PARTS
            && bytes < RUN_BYTES
        {
            bytes += part.bytes.len();
            wanted = wanted.next();
            parts.extend(self.page.parts.pop_front());
        }
        let next = match self.page.parts.front() {
            Some(part) if parts.is_empty() && part.id.turn == at.turn => Some(part.id.index),
            _ => None,
        };
        Ok(StoreRead { parts, next })
    }

    /// Lets go of everything: the viewer waits for something else than the store.
    pub fn rest(&mut self) {
        self.page = Page::default();
        self.ahead = None;
    }

    async fn fetch(&mut self, from: PartId) -> Result<(), StoreError> {
        self.rest();
        let budget = Arc::clone(&self.budget.0);
        let permit = budget
            .acquire_many_owned(READING_PERMITS)
            .await
            .expect("the replay budget is never closed");
        self.page = Page::read(self.db.clone(), self.session.clone(), from, permit).await?;
        Ok(())
    }

    /// Begins to read the page behind a full one, if there is memory for it right now.
    fn look_ahead(&mut self) {
        if self.ahead.is_some() {
            return;
        }
        let Some(next) = self.page.next.take() else {
            return;
        };
        let budget = Arc::clone(&self.budget.0);
        if let Ok(permit) = budget.try_acquire_many_owned(READING_PERMITS) {
            let reading = Page::read(self.db.clone(), self.session.clone(), next, permit);
            self.ahead = Some(AbortOnDropHandle::new(tokio::spawn(reading)));
        }
    }
}

/// A stored part as it is shown.
pub fn part_of(row: StoredPart) -> Part {
    Part {
        id: row.id,
        head: ChunkHead::from_columns(&row.kind, row.chunk_id.as_deref()),
        bytes: row.bytes,
        spoken_at: row.spoken_at,
    }
}
