//! Reading what is stored, page by page, under one memory budget of the process.
//!
//! A page holds permits for its bytes until the viewer has taken it; between pages nothing is held, neither memory nor a
//! database connection. Part bytes never change, so a part found in a page read earlier is always right; that a part is *not*
//! there is only believed of a page read just now.

use std::collections::VecDeque;
use std::sync::Arc;

use bex_proto::ids::PartId;
use bex_proto::transcript::Part;
use bex_proto::ui_stream::ChunkHead;
use bex_proto::{SessionId, limits};
use bex_store::transcript::StoredPart;
use bex_store::{Db, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::pull::StoreRead;

/// What is handed out at once: small enough that a frame goes out before the page is through.
const RUN_PARTS: usize = 256;
/// See [`RUN_PARTS`].
const RUN_BYTES: usize = 64 * 1024;
/// A page may be one part of the largest size.
const READING_PERMITS: u32 = (limits::PART_BYTES / limits::REPLAY_PAGE_BYTES) as u32;

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
    page: VecDeque<Arc<Part>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Pages {
    /// Nothing is read yet.
    pub fn new(db: Db, session: SessionId, budget: ReplayBudget) -> Self {
        Self {
            db,
            session,
            budget,
            page: VecDeque::new(),
            permit: None,
        }
    }

    /// What is stored at `at`: a contiguous run of its turn, or where the turn goes on. May wait for memory.
    ///
    /// # Errors
    /// Store trouble; the same call may be made again.
    pub async fn read(&mut self, at: PartId) -> Result<StoreRead, StoreError> {
        while self.page.front().is_some_and(|part| part.id < at) {
            self.page.pop_front();
        }
        // a later turn has parts only once this one is settled, so this one's parts in the page are all there are
        let known = self
            .page
            .front()
            .is_some_and(|part| part.id == at || part.id.turn > at.turn);
        if !known {
            self.fetch(at).await?;
        }
        let mut parts = Vec::new();
        let mut bytes = 0;
        let mut wanted = at;
        while let Some(part) = self.page.front()
            && part.id == wanted
            && parts.len() < RUN_PARTS
            && bytes < RUN_BYTES
        {
            bytes += part.bytes.len();
            wanted = wanted.next();
            parts.extend(self.page.pop_front());
        }
        let next = match self.page.front() {
            Some(part) if parts.is_empty() && part.id.turn == at.turn => Some(part.id.index),
            _ => None,
        };
        Ok(StoreRead { parts, next })
    }

    /// Lets go of everything: the viewer waits for something else than the store.
    pub fn rest(&mut self) {
        self.page = VecDeque::new();
        self.permit = None;
    }

    async fn fetch(&mut self, from: PartId) -> Result<(), StoreError> {
        self.rest();
        let budget = Arc::clone(&self.budget.0);
        let mut permit = budget
            .acquire_many_owned(READING_PERMITS)
            .await
            .expect("the replay budget is never closed");
        let max_parts = limits::REPLAY_PAGE_PARTS as u32;
        let rows = self
            .db
            .read_conversation(&self.session, from, max_parts, limits::REPLAY_PAGE_BYTES)
            .await?;
        let bytes: usize = rows.iter().map(|row| row.bytes.len()).sum();
        let needed = bytes.div_ceil(limits::REPLAY_PAGE_BYTES);
        self.permit = permit.split(needed);
        self.page = rows.into_iter().map(|row| Arc::new(part_of(row))).collect();
        Ok(())
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
