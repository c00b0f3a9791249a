//! Reading what is stored, page by page, under one memory budget of the process.
//!
//! A page holds permits for its bytes until the viewer has taken it, and while a page is sent the next ones are read, if there
//! is memory for them. A viewer that waits holds nothing, and no database connection is held between pages. Part bytes never
//! change, so a part found in a page read earlier is always right; that a part is *not* there is only believed of a page read
//! just now.

use std::collections::VecDeque;
use std::sync::Arc;

use bex_proto::ids::PartId;
use bex_proto::transcript::Part;
use bex_proto::{SessionId, limits};
use bex_store::{Db, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

use super::pull::StoreRead;

/// What is handed out at once: small enough that a frame goes out before the page is through.
const RUN_PARTS: usize = 256;
/// See [`RUN_PARTS`].
const RUN_BYTES: usize = 64 * 1024;
/// What one read may bring; far more than it usually does, so that a page is hardly ever cut short of what was asked.
const READ_BYTES: usize = 8 * 1024 * 1024;
const READING_PERMITS: u32 = (READ_BYTES / limits::REPLAY_PERMIT_BYTES) as u32;
/// What a page is meant to have: the number of its parts follows from the size of those before.
const PAGE_BYTES: usize = 512 * 1024;
/// Parts of a viewer's first page, so that it is soon there.
const FIRST_PARTS: u32 = 128;
/// Pages read while another one is sent, if there is memory: several connections of the database work for one replay then.
const AHEAD: usize = 2;

/// The replay memory of a process.
#[derive(Debug, Clone)]
pub struct ReplayBudget(Arc<Semaphore>);

impl Default for ReplayBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(
            limits::REPLAY_BUDGET_BYTES / limits::REPLAY_PERMIT_BYTES,
        )))
    }
}

impl ReplayBudget {
    /// All of it, so that a test can see viewers wait.
    #[cfg(test)]
    pub(super) fn take_all(&self) -> OwnedSemaphorePermit {
        let all = (limits::REPLAY_BUDGET_BYTES / limits::REPLAY_PERMIT_BYTES) as u32;
        let budget = Arc::clone(&self.0);
        budget.try_acquire_many_owned(all).expect("nobody reads")
    }

    /// Waits for this much of it; what is not needed is split off and given back.
    pub(crate) async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let permits = u32::try_from(Self::permits(bytes)).unwrap_or(u32::MAX);
        let budget = Arc::clone(&self.0);
        budget
            .acquire_many_owned(permits)
            .await
            .expect("the replay budget is never closed")
    }

    /// What so many bytes take.
    pub(crate) fn permits(bytes: usize) -> usize {
        bytes.div_ceil(limits::REPLAY_PERMIT_BYTES)
    }

    /// Bytes that nobody uses now.
    pub fn free_bytes(&self) -> usize {
        self.0.available_permits() * limits::REPLAY_PERMIT_BYTES
    }
}

/// One viewer's reading of one session.
pub struct Pages {
    db: Db,
    session: SessionId,
    budget: ReplayBudget,
    page: Page,
    /// Indexes of the next page.
    indexes: u32,
    /// The pages behind the current one, in order.
    ahead: VecDeque<Ahead>,
    /// Where the page behind those begins, unless the turn seems to end before.
    next: Option<PartId>,
}

/// A page being read before it is needed.
struct Ahead {
    from: PartId,
    /// Behind the last index that was asked for.
    end: PartId,
    page: AbortOnDropHandle<Result<Page, StoreError>>,
}

/// Parts in part-id order, and the memory they are accounted with.
#[derive(Default)]
struct Page {
    parts: VecDeque<Arc<Part>>,
    /// Of all its parts.
    bytes: usize,
    /// Given back with the page.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Page {
    async fn read(
        db: &Db,
        session: &SessionId,
        from: PartId,
        indexes: u32,
        mut permit: OwnedSemaphorePermit,
    ) -> Result<Self, StoreError> {
        let parts = db.read_page(session, from, indexes, READ_BYTES).await?;
        let bytes: usize = parts.iter().map(|part| part.bytes.len()).sum();
        let used = ReplayBudget::permits(bytes);
        Ok(Self {
            parts: parts.into_iter().map(Arc::new).collect(),
            bytes,
            _permit: permit.split(used),
        })
    }

    fn drop_before(&mut self, at: PartId) {
        while self.parts.front().is_some_and(|part| part.id < at) {
            self.parts.pop_front();
        }
    }

    /// Whether this page, whenever it was read, tells what is stored at `at`: bytes never change.
    fn tells(&self, at: PartId) -> bool {
        self.parts.front().is_some_and(|part| part.id == at)
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
            indexes: FIRST_PARTS,
            ahead: VecDeque::new(),
            next: None,
        }
    }

    /// What is stored at `at`: a contiguous run of its turn, or where the turn goes on. May wait for memory.
    ///
    /// # Errors
    /// Store trouble; the same call may be made again.
    pub async fn read(&mut self, at: PartId) -> Result<StoreRead, StoreError> {
        self.page.drop_before(at);
        if self.page.parts.is_empty()
            && let Some(ahead) = self.ahead.pop_front_if(|ahead| ahead.from == at)
        {
            self.page = Page::default();
            // when reading ahead failed, reading at the position says why
            if let Ok(Ok(page)) = ahead.page.await {
                self.turn_to(page, ahead.end);
            }
        }
        if !self.page.tells(at) {
            self.fetch(at).await?;
            if self.page.parts.is_empty() {
                let next = self.db.next_stored(&self.session, at).await?;
                return Ok(StoreRead {
                    parts: Vec::new(),
                    next,
                });
            }
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
            Some(part) if parts.is_empty() => Some(part.id.index),
            _ => None,
        };
        Ok(StoreRead { parts, next })
    }

    /// Lets go of everything: the viewer waits for something else than the store, or takes nothing.
    pub fn rest(&mut self) {
        self.page = Page::default();
        self.ahead.clear();
        self.next = None;
    }

    async fn fetch(&mut self, from: PartId) -> Result<(), StoreError> {
        self.rest();
        let permit = self.budget.take(READ_BYTES).await;
        let asked = self.indexes;
        let page = Page::read(&self.db, &self.session, from, asked, permit).await?;
        self.next = Some(from.plus(asked));
        self.turn_to(page, from.plus(asked));
        Ok(())
    }

    /// Makes it the current page, and the next ones as large as its parts suggest. `end` is behind what was asked for.
    fn turn_to(&mut self, page: Page, end: PartId) {
        if page.parts.back().is_none_or(|last| last.id.next() != end) {
            // the turn's last page, or one of very large parts
            self.next = None;
        }
        if let Some(mean) = page.bytes.checked_div(page.parts.len()) {
            let fit = PAGE_BYTES / mean.max(1);
            self.indexes = fit.clamp(1, limits::REPLAY_PAGE_PARTS) as u32;
        }
        self.page = page;
    }

    /// Begins to read the pages behind the current one, if there is memory for them right now.
    fn look_ahead(&mut self) {
        while self.ahead.len() < AHEAD
            && let Some(from) = self.next
        {
            let budget = Arc::clone(&self.budget.0);
            let Ok(permit) = budget.try_acquire_many_owned(READING_PERMITS) else {
                // what is not read ahead is read at its position
                return;
            };
            let (db, session, indexes) = (self.db.clone(), self.session.clone(), self.indexes);
            let end = from.plus(indexes);
            self.next = Some(end);
            let page =
                tokio::spawn(async move { Page::read(&db, &session, from, indexes, permit).await });
            self.ahead.push_back(Ahead {
                from,
                end,
                page: AbortOnDropHandle::new(page),
            });
        }
    }
}
