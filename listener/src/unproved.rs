//! Peers that are proving themselves: so many at once, and when one more comes the one that has been at it longest goes. Strangers
//! who say nothing thus keep no place from a client that needs a moment.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// The places, oldest first.
pub(crate) struct Unproved {
    most: usize,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    entered: u64,
    oldest_first: VecDeque<(u64, CancellationToken)>,
}

/// Given back when dropped.
pub(crate) struct Place<'a> {
    of: &'a Unproved,
    number: u64,
    sent_away: CancellationToken,
}

impl Unproved {
    pub(crate) fn new(most: usize) -> Self {
        let places = Mutex::default();
        Self { most, places }
    }

    pub(crate) fn enter(&self) -> Place<'_> {
        let sent_away = CancellationToken::new();
        let mut places = self.places();
        if places.oldest_first.len() >= self.most
            && let Some((_, oldest)) = places.oldest_first.pop_front()
        {
            oldest.cancel();
        }
        places.entered += 1;
        let number = places.entered;
        places.oldest_first.push_back((number, sent_away.clone()));
        Place {
            of: self,
            number,
            sent_away,
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Ends when another took the place.
    pub(crate) fn sent_away(&self) -> WaitForCancellationFuture<'_> {
        self.sent_away.cancelled()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut places = self.of.places();
        // the numbers ascend
        let found = places
            .oldest_first
            .binary_search_by_key(&self.number, |(number, _)| *number);
        if let Ok(at) = found {
            places.oldest_first.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_sent_away(place: &Place<'_>) -> bool {
        place.sent_away.is_cancelled()
    }

    #[test]
    fn the_oldest_goes_when_one_more_comes() {
        let unproved = Unproved::new(2);
        let (first, second) = (unproved.enter(), unproved.enter());
        assert!(!is_sent_away(&first));
        let third = unproved.enter();
        assert!(is_sent_away(&first));
        assert!(!is_sent_away(&second) && !is_sent_away(&third));
        drop(first);
        assert_eq!(
            unproved.places().oldest_first.len(),
            2,
            "its place was given on"
        );
    }

    #[test]
    fn a_place_that_was_left_is_free() {
        let unproved = Unproved::new(2);
        let (first, second) = (unproved.enter(), unproved.enter());
        drop(first);
        let third = unproved.enter();
        assert!(!is_sent_away(&second) && !is_sent_away(&third));
    }
}
