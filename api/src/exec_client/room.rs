//! Memory for what is read of logs: little by everybody, whole windows by few at once.
//!
//! A read begins with little room. Where the answer's header promises more, nothing of it is taken: the reader waits for one of the
//! process's windows, as long as it takes, and asks again. So who waits holds nothing, and a sandbox that does not answer holds no window.

use std::sync::Arc;

use bex_proto::limits;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much of an answer its reader has room for. More is [`super::ExecFailure::OutputLimit`], behind the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// [`limits::HARVEST_SMALL_BYTES`] of a log.
    Small,
    /// A whole window: only for who holds one.
    Window,
}

impl Room {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Small => limits::HARVEST_SMALL_BYTES,
            Self::Window => limits::HARVEST_ANSWER_BYTES,
        }
    }
}

/// The windows of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Windows {
    free: Arc<Semaphore>,
    held: Gauge,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct HeldWindow {
    _permit: OwnedSemaphorePermit,
    held: Gauge,
}

impl Windows {
    /// [`limits::HARVEST_WINDOWS`] windows; `held` shows how many are.
    pub fn new(held: Gauge) -> Self {
        let free = Arc::new(Semaphore::new(limits::HARVEST_WINDOWS));
        Self { free, held }
    }

    /// A window, when it is this caller's turn.
    pub async fn take(&self) -> HeldWindow {
        let permit = Arc::clone(&self.free).acquire_owned().await;
        self.held.inc();
        HeldWindow {
            _permit: permit.expect("the windows are never closed"),
            held: self.held.clone(),
        }
    }
}

impl Drop for HeldWindow {
    fn drop(&mut self) {
        self.held.dec();
    }
}
