//! Which parts go to the store together, and when: the tee's rules without its tasks.
//!
//! Every event gives the moment it happens at, so that a test can say what time it is. The shell feeds events and does
//! what [`Batcher`] hands out; at most one batch is being appended at any time, so batches arrive in order.

use std::collections::VecDeque;
use std::sync::Arc;

use bex_proto::limits;
use bex_proto::transcript::Part;
use tokio::time::Instant;

/// Parts that are appended together, in index order.
pub type Batch = Vec<Arc<Part>>;

/// The tee's rules.
#[derive(Debug, Default)]
pub struct Batcher {
    open: Batch,
    open_bytes: usize,
    opened_at: Option<Instant>,
    queue: VecDeque<Batch>,
    /// Bytes that were taken and are not in the store yet.
    outstanding: usize,
    appending: Option<usize>,
}

impl Batcher {
    /// Whether `part` may be taken now. If not, it stays in the tail until an append has finished.
    pub fn has_room(&self, part: &Part) -> bool {
        self.queue.len() < limits::TEE_QUEUE_SLOTS
            && self.outstanding + part.bytes.len() <= limits::TEE_OUTSTANDING_BYTES
    }

    /// Takes the next part. Call only when there is room.
    pub fn take(&mut self, part: Arc<Part>, now: Instant) {
        let len = part.bytes.len();
        if self.open_bytes + len > limits::TEE_BATCH_BYTES {
            self.flush();
        }
        self.opened_at.get_or_insert(now);
        self.open.push(part);
        self.open_bytes += len;
        self.outstanding += len;
        if self.open.len() == limits::TEE_BATCH_PARTS || self.open_bytes == limits::TEE_BATCH_BYTES
        {
            self.flush();
        }
    }

    /// When the parts that wait for company have waited long enough.
    pub fn due(&self) -> Option<Instant> {
        self.opened_at.map(|at| at + limits::TEE_BATCH_AGE)
    }

    /// Closes the open batch: its time has come, the turn ended, or the tee is told to stop.
    pub fn flush(&mut self) {
        self.opened_at = None;
        self.open_bytes = 0;
        if !self.open.is_empty() {
            self.queue.push_back(std::mem::take(&mut self.open));
        }
    }

    /// The next batch to append, when none is being appended.
    pub fn next_batch(&mut self) -> Option<Batch> {
        if self.appending.is_some() {
            return None;
        }
        let batch = self.queue.pop_front()?;
        self.appending = Some(batch.iter().map(|part| part.bytes.len()).sum());
        Some(batch)
    }

    /// The batch handed out last is in the store.
    pub fn appended(&mut self) {
        self.outstanding -= self.appending.take().unwrap_or(0);
    }

    /// Nothing is open, queued or being appended.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.queue.is_empty() && self.appending.is_none()
    }

    /// Batches that wait, and bytes not in the store yet.
    #[cfg(test)]
    pub fn load(&self) -> (usize, usize) {
        (self.queue.len(), self.outstanding)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tail::tests::{part, sized};
    use super::*;

    fn sizes(batcher: &mut Batcher) -> Vec<usize> {
        let mut sizes = Vec::new();
        while let Some(batch) = batcher.next_batch() {
            sizes.push(batch.len());
            batcher.appended();
        }
        sizes
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_quick_parts_make_four_batches() {
        let mut batcher = Batcher::default();
        let now = Instant::now();
        for index in 0..100 {
            batcher.take(part(1, index), now);
        }
        assert_eq!(batcher.due(), Some(now + limits::TEE_BATCH_AGE));
        batcher.flush();
        assert_eq!(sizes(&mut batcher), [32, 32, 32, 4]);
        assert!(batcher.is_idle());
        assert_eq!(batcher.load(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_mebibyte_goes_at_once_and_a_part_over_it_begins_the_next() {
        let mut batcher = Batcher::default();
        let now = Instant::now();
        batcher.take(sized(1, 0, limits::TEE_BATCH_BYTES), now);
        assert_eq!(batcher.next_batch().map(|b| b.len()), Some(1));
        batcher.appended();
        batcher.take(sized(1, 1, limits::TEE_BATCH_BYTES - 10), now);
        assert!(batcher.next_batch().is_none());
        batcher.take(sized(1, 2, 100), now);
        assert_eq!(batcher.next_batch().map(|b| b.len()), Some(1));
        assert!(
            batcher.next_batch().is_none(),
            "the second waits for company"
        );
        assert!(!batcher.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn one_append_at_a_time_and_never_more_than_the_bounds() {
        let mut batcher = Batcher::default();
        let now = Instant::now();
        let mut taken = 0;
        while batcher.has_room(&part(1, taken)) {
            batcher.take(part(1, taken), now);
            taken += 1;
        }
        assert_eq!(
            taken as usize,
            limits::TEE_QUEUE_SLOTS * limits::TEE_BATCH_PARTS
        );
        assert!(batcher.next_batch().is_some());
        assert!(batcher.next_batch().is_none(), "one at a time");
        batcher.appended();

        let mut batcher = Batcher::default();
        let mut bytes = 0;
        while batcher.has_room(&sized(1, bytes as u32, 300_000)) {
            let next = sized(1, bytes as u32, 300_000);
            bytes += next.bytes.len();
            batcher.take(next, now);
        }
        assert!(
            bytes <= limits::TEE_OUTSTANDING_BYTES
                && bytes + 300_000 > limits::TEE_OUTSTANDING_BYTES
        );
        let first = batcher.next_batch().expect("a full batch");
        assert_eq!(
            batcher.load().1,
            bytes,
            "what is being appended still counts"
        );
        batcher.appended();
        assert_eq!(
            batcher.load().1,
            bytes - first.iter().map(|p| p.bytes.len()).sum::<usize>()
        );
    }
}
