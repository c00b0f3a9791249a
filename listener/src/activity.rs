//! Whether a connection is of use: an open request, a new one, or an answer that is being taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Taken between two ticks, this is an answer under way. Less is a reader that plays dead, or the pings of HTTP/2.
const TAKEN_BYTES: u64 = 1024;

/// One connection's counts.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    begun: AtomicU64,
    ended: AtomicU64,
    taken: AtomicU64,
    /// `begun` at the last tick.
    begun_before: AtomicU64,
    /// `taken` at the last tick.
    taken_before: AtomicU64,
}

/// What a tick finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A request is open or began since the last tick, or its answer is being taken.
    Busy,
    /// Nothing since the last tick.
    Idle,
    /// Never a request.
    NeverSpoke,
}

/// One open request: until its answer was handed over whole, or given up.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<Activity>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl Activity {
    pub(crate) fn begin(this: &Arc<Self>) -> OpenRequest {
        this.begun.fetch_add(1, Ordering::Relaxed);
        OpenRequest(Arc::clone(this))
    }

    /// The peer's side took this many bytes.
    pub(crate) fn took(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.begun.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn tick(&self) -> Verdict {
        let begun = self.begun.load(Ordering::Relaxed);
        let taken = self.taken.load(Ordering::Relaxed);
        let began = begun != self.begun_before.swap(begun, Ordering::Relaxed);
        let took = taken - self.taken_before.swap(taken, Ordering::Relaxed) >= TAKEN_BYTES;
        let open = begun != self.ended.load(Ordering::Relaxed);
        match (begun, open || began || took) {
            (0, _) => Verdict::NeverSpoke,
            (_, true) => Verdict::Busy,
            (_, false) => Verdict::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_tells_use_from_silence() {
        let activity = Arc::new(Activity::default());
        assert_eq!(activity.tick(), Verdict::NeverSpoke);
        let open = Activity::begin(&activity);
        assert_eq!([activity.tick(), activity.tick()], [Verdict::Busy; 2]);
        drop(open);
        assert_eq!(activity.tick(), Verdict::Idle);
        drop(Activity::begin(&activity));
        assert_eq!(activity.tick(), Verdict::Busy, "one came and went");
        activity.took(4096);
        assert_eq!(activity.tick(), Verdict::Busy, "its answer is being taken");
        activity.took(17);
        assert_eq!(activity.tick(), Verdict::Idle, "a ping");
    }
}
