//! Chance, all of it from one seed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// SplitMix64.
#[derive(Debug)]
pub struct Rng(Mutex<u64>);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    pub fn next(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to, not including, `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub fn index(&self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    pub fn pick<T: Clone>(&self, of: &[T]) -> T {
        of[self.index(of.len())].clone()
    }

    /// True in `permille` of a thousand cases.
    pub fn chance(&self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// Whole milliseconds from `from` up to `to`.
    pub fn between(&self, from: Duration, to: Duration) -> Duration {
        let span = to.saturating_sub(from).as_millis() as u64;
        from + Duration::from_millis(self.below(span + 1))
    }

    pub fn millis(&self, from: u64, to: u64) -> Duration {
        self.between(Duration::from_millis(from), Duration::from_millis(to))
    }

    pub fn seconds(&self, from: u64, to: u64) -> Duration {
        self.between(Duration::from_secs(from), Duration::from_secs(to))
    }

    /// An id of the given kind, of the shape that the wire has.
    pub fn id(&self, kind: &str) -> String {
        const CHARS: &[u8] = b"abcdefghijklmnopqrstuvwxyz234567";
        let random = (0..20).map(|_| char::from(CHARS[self.index(CHARS.len())]));
        format!("{kind}-{}", random.collect::<String>())
    }
}
