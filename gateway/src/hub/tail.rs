//! The newest parts of a live turn, shared by everybody who reads along.
//!
//! [`Tail`] shares one [`Ring`] between the source that fills it and any number of readers that pull from it. Nothing is queued
//! per reader and none can hold the source: a reader that is too slow is told that it is [`TailRead::Behind`] and reads the
//! store. Only in a burst the source lets the *fastest* viewer come after it, for [`COURTESY`] in all at most: bytes that overtake
//! every viewer would all have to come from a store that does not have them yet. The driver is not held either way: it logs what
//! it says before it sends it.

mod ring;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bex_proto::PartIndex;
use bex_proto::transcript::Part;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

pub use ring::{Pace, Ring, RingLimits, TailRead};

/// How long a source waits for the fastest viewer in one burst; one that keeps lagging is not waited for again until it has caught
/// up. A burst of a whole session at the speed of a busy machine fits.
pub const COURTESY: Duration = Duration::from_secs(2);

/// How a source came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceEnd {
    /// The driver said `[DONE]`.
    Done,
    /// The sandbox is gone for good: what is stored is all there will be.
    Gone,
    /// The driver could not be read for [`bex_proto::limits::SOURCE_RETRY`].
    Lost,
    /// What the driver streams cannot be numbered: the harvest alone stores this turn.
    Unnumbered,
    /// This process is shutting down.
    Drained,
}

impl SourceEnd {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Gone => "gone",
            Self::Lost => "lost",
            Self::Unnumbered => "unnumbered",
            Self::Drained => "drained",
        }
    }

    /// Whether the driver may have more to say to a source that is begun after this one.
    pub fn may_be_begun_again(self) -> bool {
        matches!(self, Self::Lost | Self::Drained)
    }
}

/// A ring between one source and its readers.
#[derive(Debug)]
pub struct Tail {
    ring: Mutex<Ring>,
    changed: watch::Sender<()>,
    /// The fastest viewer moved.
    followed: Notify,
}

impl Default for Tail {
    fn default() -> Self {
        Self::with_limits(RingLimits::default())
    }
}

impl Tail {
    /// A tail with other bounds than the contract's, for tests.
    pub fn with_limits(limits: RingLimits) -> Self {
        Self {
            ring: Mutex::new(Ring::new(limits)),
            changed: watch::Sender::new(()),
            followed: Notify::new(),
        }
    }

    /// See [`Ring::begin`].
    pub fn begin(&self, base: PartIndex) {
        self.ring().begin(base);
        self.changed.send_replace(());
    }

    /// See [`Ring::push`]; readers are woken once for all.
    pub fn push(&self, parts: impl IntoIterator<Item = Arc<Part>>) {
        let mut ring = self.ring();
        let mut taken = false;
        for part in parts {
            taken |= ring.push(part);
        }
        drop(ring);
        if taken {
            self.changed.send_replace(());
        }
    }

    /// Lets the fastest viewer come after the source, while something of the `courtesy` is left.
    pub async fn pace(&self, courtesy: &mut Duration) {
        loop {
            let followed = self.followed.notified();
            let pace = self.ring().pace();
            match pace {
                Pace::CaughtUp => *courtesy = COURTESY,
                Pace::Outrun if !courtesy.is_zero() => {
                    let since = Instant::now();
                    let _ = timeout(*courtesy, followed).await;
                    *courtesy = courtesy.saturating_sub(since.elapsed());
                    continue;
                }
                Pace::Following | Pace::Outrun => {}
            }
            return;
        }
    }

    /// [`Ring::read`] for a viewer, which is then known to stand at `at`.
    pub fn read_along(&self, at: PartIndex, max: usize) -> TailRead {
        let mut ring = self.ring();
        ring.follow(at);
        let read = ring.read(at, max);
        drop(ring);
        self.followed.notify_waiters();
        read
    }

    /// See [`Ring::finish`].
    pub fn finish(&self, end: SourceEnd) {
        self.ring().finish(end);
        self.changed.send_replace(());
    }

    /// See [`Ring::read`].
    pub fn read(&self, at: PartIndex, max: usize) -> TailRead {
        self.ring().read(at, max)
    }

    /// See [`Ring::next`].
    pub fn next(&self) -> Option<PartIndex> {
        self.ring().next()
    }

    /// See [`Ring::base`].
    pub fn base(&self) -> Option<PartIndex> {
        self.ring().base()
    }

    /// How it ended, if it did.
    pub fn end(&self) -> Option<SourceEnd> {
        self.ring().end()
    }

    /// Wakes at every change after this call. Take it before reading, so that nothing is missed in between.
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // every method leaves the ring consistent, so a panic elsewhere does not spoil it
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests;
