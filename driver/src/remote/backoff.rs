//! How long to wait before the next try.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(30);
/// A server that asks for more is asked again after this.
const MOST_ASKED: Duration = Duration::from_secs(120);

/// Waits that double up to 30 s. Each is shortened by up to a half, so that machines that lost the same server do not come back together.
#[derive(Debug, Default)]
pub struct Backoff {
    tries: u32,
}

impl Backoff {
    /// The next wait; at least what the server asked for.
    pub fn next(&mut self, asked: Option<Duration>) -> Duration {
        let full = FIRST
            .saturating_mul(1 << self.tries.min(16))
            .min(MOST)
            .max(asked.unwrap_or_default().min(MOST_ASKED));
        self.tries = self.tries.saturating_add(1);
        match asked {
            Some(_) => full,
            None => full.mul_f64(0.5 + random() / 2.0),
        }
    }

    /// Whether nothing failed since the last success.
    pub fn is_fresh(&self) -> bool {
        self.tries == 0
    }

    /// Something worked.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

/// From 0 to 1.
fn random() -> f64 {
    // each state is seeded by the system; no crate is needed for a jitter
    let word = RandomState::new().hash_one(0u8);
    f64::from(u32::try_from(word >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_half_a_minute_and_begin_again() {
        let mut backoff = Backoff::default();
        let waits: Vec<Duration> = (0..40).map(|_| backoff.next(None)).collect();
        assert!(waits[0] >= FIRST / 2 && waits[0] <= FIRST, "{waits:?}");
        assert!(waits[4] >= FIRST * 8 && waits[4] <= FIRST * 16, "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= MOST), "{waits:?}");
        assert!(waits[39] >= MOST / 2, "{waits:?}");
        backoff.reset();
        assert!(backoff.is_fresh() && backoff.next(None) <= FIRST);
    }

    #[test]
    fn a_server_is_not_asked_before_it_wants_to_be() {
        let mut backoff = Backoff::default();
        let asked = Duration::from_secs(7);
        assert_eq!(backoff.next(Some(asked)), asked);
        let day = Duration::from_secs(86_400);
        assert_eq!(backoff.next(Some(day)), MOST_ASKED);
    }
}
