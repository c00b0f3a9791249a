//! Ages by the database's clock, and delays that grow.

use std::time::Duration;

use jiff::Timestamp;

/// More doublings than any delay needs to reach its bound.
const DOUBLINGS: u32 = 10;

/// How long ago `since` was when the database said `now`; zero when that is not known.
pub(crate) fn age(now: Timestamp, since: Option<Timestamp>) -> Duration {
    since.map_or(Duration::ZERO, |since| {
        Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
    })
}

/// The delay after this many failures in a row: the first one, doubled each time, the last one at most.
pub(crate) fn backoff((first, last): (Duration, Duration), failures: u32) -> Duration {
    first.saturating_mul(1 << failures.min(DOUBLINGS)).min(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_their_bound() {
        let bounds = (Duration::from_secs(1), Duration::from_secs(6));
        let delays = [0, 1, 2, 3, u32::MAX].map(|failures| backoff(bounds, failures).as_secs());
        assert_eq!(delays, [1, 2, 4, 6, 6]);
    }

    #[test]
    fn a_teardown_that_fails_is_tried_at_least_once_an_hour() {
        let bounds = bex_proto::limits::TEARDOWN_BACKOFF;
        let delays = [0, 1, 5, 6, u32::MAX].map(|failures| backoff(bounds, failures).as_secs());
        assert_eq!(delays, [60, 120, 1920, 3600, 3600]);
    }
}
