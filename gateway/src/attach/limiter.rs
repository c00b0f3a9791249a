//! How many streams there may be: in all, and of one subject. A permit is held for the body's life, not the head's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts open streams.
#[derive(Debug)]
pub struct Limiter {
    total: usize,
    per_subject: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_subject: HashMap<String, usize>,
}

/// One stream's place; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    limiter: Arc<Limiter>,
    subject: String,
}

impl Limiter {
    /// A limiter with these bounds.
    pub fn new(total: usize, per_subject: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            per_subject,
            open: Mutex::default(),
        })
    }

    /// A place for one more stream of `subject`, if there is one.
    pub fn admit(self: &Arc<Self>, subject: &str) -> Option<Permit> {
        let mut open = self.open();
        let own = open.by_subject.get(subject).copied().unwrap_or(0);
        if open.all >= self.total || own >= self.per_subject {
            return None;
        }
        open.all += 1;
        open.by_subject.insert(subject.to_owned(), own + 1);
        Some(Permit {
            limiter: Arc::clone(self),
            subject: subject.to_owned(),
        })
    }

    /// Open streams, for metrics.
    pub fn count(&self) -> usize {
        self.open().all
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // counters are changed in one place each and stay right after any panic
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.limiter.open();
        open.all -= 1;
        if let Some(own) = open.by_subject.get_mut(&self.subject) {
            *own -= 1;
            if *own == 0 {
                open.by_subject.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_per_subject_and_in_all_and_given_back() {
        let limiter = Limiter::new(3, 2);
        let first = limiter.admit("a").expect("a place");
        let _second = limiter.admit("a").expect("a place");
        assert!(limiter.admit("a").is_none(), "two of one subject");
        let _other = limiter.admit("b").expect("a place");
        assert!(limiter.admit("c").is_none(), "three in all");
        drop(first);
        assert!(limiter.admit("a").is_some());
        assert_eq!(
            limiter.count(),
            2,
            "a permit that was dropped at once is back"
        );
        assert_eq!(limiter.open().by_subject.len(), 2);
    }
}
