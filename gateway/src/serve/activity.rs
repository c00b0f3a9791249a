//! Whether a connection has requests: open ones, or any at all lately.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    begun: AtomicU64,
    ended: AtomicU64,
    /// `begun` at the last tick.
    seen: AtomicU64,
}

/// What a tick finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdleVerdict {
    /// A request is open, or one began since the last tick.
    Busy,
    /// Nothing since the last tick.
    Idle,
    /// Never a request.
    NeverSpoke,
}

/// One open request; it ends when its answer's body is dropped.
#[derive(Debug)]
pub(super) struct OpenRequest(Arc<Activity>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl Activity {
    pub(super) fn begin(this: &Arc<Self>) -> OpenRequest {
        this.begun.fetch_add(1, Ordering::Relaxed);
        OpenRequest(Arc::clone(this))
    }

    pub(super) fn is_unused(&self) -> bool {
        self.begun.load(Ordering::Relaxed) == 0
    }

    pub(super) fn tick(&self) -> IdleVerdict {
        let begun = self.begun.load(Ordering::Relaxed);
        let before = self.seen.swap(begun, Ordering::Relaxed);
        let open = begun != self.ended.load(Ordering::Relaxed);
        match (begun, open || begun != before) {
            (0, _) => IdleVerdict::NeverSpoke,
            (_, true) => IdleVerdict::Busy,
            (_, false) => IdleVerdict::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_tells_open_from_quiet_and_from_silent() {
        let activity = Arc::new(Activity::default());
        assert_eq!(activity.tick(), IdleVerdict::NeverSpoke);
        let open = Activity::begin(&activity);
        assert_eq!(activity.tick(), IdleVerdict::Busy);
        assert_eq!(
            activity.tick(),
            IdleVerdict::Busy,
            "a long stream is not idle"
        );
        drop(open);
        assert_eq!(activity.tick(), IdleVerdict::Idle);
        drop(Activity::begin(&activity));
        assert_eq!(
            activity.tick(),
            IdleVerdict::Busy,
            "one came and went since the last tick"
        );
        assert_eq!(activity.tick(), IdleVerdict::Idle);
    }
}
