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
use bex_store::transcript::PageBounds;
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

/// Pages whose bounds are looked up at first, so that the first of them is soon there, and from then on.
const PLANNED_PAGES: (u32, u32) = (2, 16);
/// Pages read while another one is sent, if there is memory: several connections of the database work for one replay then.
const AHEAD: usize = 2;

/// One viewer's reading of one session.
pub struct Pages {
    db: Db,
    session: SessionId,
    budget: ReplayBudget,
    page: Page,
    plan: Plan,
    /// The pages behind the current one, in order.
    ahead: VecDeque<AbortOnDropHandle<Ahead>>,
}

/// A page read ahead, and the plan behind it when that was looked up with it.
type Ahead = Result<(Page, Option<Plan>), StoreError>;

/// Which pages follow.
#[derive(Default)]
struct Plan {
    bounds: VecDeque<PageBounds>,
    /// Where the next look-up begins, when there may be more than `bounds`.
    more: Option<PartId>,
}

impl Plan {
    async fn from(
        db: &Db,
        session: &SessionId,
        at: PartId,
        pages: u32,
    ) -> Result<Self, StoreError> {
        let parts = limits::REPLAY_PAGE_PARTS as u32;
        let bounds = db
            .page_bounds(session, at, parts, READ_BYTES, pages)
            .await?;
        let more = bounds
            .last()
            .filter(|_| bounds.len() == pages as usize)
            .map(|page| PartId {
                turn: page.turn,
                index: page.last.next(),
            });
        Ok(Self {
            bounds: bounds.into(),
            more,
        })
    }
}

/// Parts in part-id order, and the memory they are accounted with.
#[derive(Default)]
struct Page {
    parts: VecDeque<Arc<Part>>,
    /// Given back with the page.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Page {
    /// Reads the plan's next page; empty when there is none.
    async fn next_of(
        plan: &mut Plan,
        db: &Db,
        session: &SessionId,
        mut permit: OwnedSemaphorePermit,
    ) -> Result<Self, StoreError> {
        let Some(bounds) = plan.bounds.pop_front() else {
            return Ok(Self::default());
        };
        let parts = db.read_page(session, bounds).await?;
        let bytes: usize = parts.iter().map(|part| part.bytes.len()).sum();
        let used = bytes.div_ceil(limits::REPLAY_PAGE_BYTES);
        Ok(Self {
            parts: parts.into_iter().map(Arc::new).collect(),
            // parts stored in between may have made the page a little larger than it was planned
            _permit: permit.split(used.min(READING_PERMITS as usize)),
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
            plan: Plan::default(),
            ahead: VecDeque::new(),
        }
    }

    /// What is stored at `at`: a contiguous run of its turn, or where the turn goes on. May wait for memory.
    ///
    /// # Errors
    /// Store trouble; the same call may be made again.
    pub async fn read(&mut self, at: PartId) -> Result<StoreRead, StoreError> {
        self.page.drop_before(at);
        if self.page.parts.is_empty()
            && let Some(ahead) = self.ahead.pop_front()
        {
            self.page = Page::default();
            // when reading ahead failed, reading at the position says why
            if let Ok(Ok((page, plan))) = ahead.await {
                self.page = page;
                self.page.drop_before(at);
                self.plan = plan.unwrap_or_else(|| std::mem::take(&mut self.plan));
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
        self.plan = Plan::default();
        self.ahead.clear();
    }

    async fn fetch(&mut self, from: PartId) -> Result<(), StoreError> {
        self.rest();
        let budget = Arc::clone(&self.budget.0);
        let permit = budget
            .acquire_many_owned(READING_PERMITS)
            .await
            .expect("the replay budget is never closed");
        self.plan = Plan::from(&self.db, &self.session, from, PLANNED_PAGES.0).await?;
        self.page = Page::next_of(&mut self.plan, &self.db, &self.session, permit).await?;
        Ok(())
    }

    /// Begins to read the pages behind the current one, if there is memory for them right now.
    fn look_ahead(&mut self) {
        while self.ahead.len() < AHEAD {
            let (mut plan, kind) = match (self.plan.bounds.pop_front(), self.plan.more) {
                (Some(bounds), _) => (
                    Plan {
                        bounds: [bounds].into(),
                        more: None,
                    },
                    Reading::Planned,
                ),
                (None, Some(from)) => (Plan::default(), Reading::Replan(from)),
                (None, None) => return,
            };
            let budget = Arc::clone(&self.budget.0);
            let Ok(permit) = budget.try_acquire_many_owned(READING_PERMITS) else {
                // what is not read ahead is read at its position
                self.plan.bounds.extend(plan.bounds);
                self.plan.bounds.rotate_right(1);
                return;
            };
            if matches!(kind, Reading::Replan(_)) {
                self.plan.more = None;
            }
            let (db, session) = (self.db.clone(), self.session.clone());
            self.ahead
                .push_back(AbortOnDropHandle::new(tokio::spawn(async move {
                    if let Reading::Replan(from) = kind {
                        plan = Plan::from(&db, &session, from, PLANNED_PAGES.1).await?;
                    }
                    let page = Page::next_of(&mut plan, &db, &session, permit).await?;
                    let rest = matches!(kind, Reading::Replan(_)).then_some(plan);
                    Ok((page, rest))
                })));
        }
    }
}

/// What a reading ahead begins with.
#[derive(Clone, Copy)]
enum Reading {
    /// A page whose bounds are known.
    Planned,
    /// Looking up which pages follow from here; the rest of them comes back with the page.
    Replan(PartId),
}
