//! Who waits for whom: nobody for a session that keeps its round waiting.
//!
//! A round begins on one of few *quick* seats and leaves it when it ends, or after [`QUICK`]. A round that takes longer (a
//! sandbox that does not answer, one that takes its time to die, a log of many megabytes) goes on among the *slow*; when
//! these are full too it is ended, which it survives like any crash, and is tried again a tick later. A session of which
//! nothing clear was seen the last time does not begin on a quick seat at all, but among the *suspects*.
//!
//! So a quick seat is free again after [`QUICK`] whatever is behind a session, and between two clear looks a session has one
//! once: with `n` sessions due, each begins within `n / COMPLETER_PARALLEL` times [`QUICK`].

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bex_proto::limits;
use bex_store::leases::Lease;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a round may keep a quick seat: many times what it takes where everybody answers.
pub(super) const QUICK: Duration = Duration::from_secs(1);
/// Rounds that outlasted [`QUICK`].
const SLOW: usize = 32;
/// Rounds of suspects.
const SUSPECTS: usize = 16;

/// The seats of one Completer.
#[derive(Debug)]
pub(super) struct Lanes {
    quick: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    suspects: Arc<Semaphore>,
    freed: Notify,
}

/// Where a round begins.
#[derive(Debug)]
pub(super) enum Seat {
    Quick(OwnedSemaphorePermit),
    Suspect(OwnedSemaphorePermit),
}

impl Default for Lanes {
    fn default() -> Self {
        let seats = |count| Arc::new(Semaphore::new(count));
        Self {
            quick: seats(limits::COMPLETER_PARALLEL),
            slow: seats(SLOW),
            suspects: seats(SUSPECTS),
            freed: Notify::new(),
        }
    }
}

impl Lanes {
    /// Quick seats that are free.
    pub(super) fn free(&self) -> usize {
        self.quick.available_permits()
    }

    /// A seat for the round of a claimed session; `None` when its lane is full.
    pub(super) fn seat(&self, lease: &Lease) -> Option<Seat> {
        let seat = |lane: &Arc<Semaphore>| Arc::clone(lane).try_acquire_owned().ok();
        if lease.unseen || lease.unclear_since.is_some() {
            seat(&self.suspects).map(Seat::Suspect)
        } else {
            seat(&self.quick).map(Seat::Quick)
        }
    }

    /// A round left its quick seat before its end.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Runs a round on its seat. `None`: it was ended, there was no room for one that takes so long.
    pub(super) async fn run<T>(&self, seat: Seat, round: impl Future<Output = T>) -> Option<T> {
        let mut round = pin!(round);
        let quick = match seat {
            Seat::Quick(permit) => permit,
            Seat::Suspect(_held) => return Some(round.await),
        };
        if let Ok(done) = timeout(QUICK, &mut round).await {
            return Some(done);
        }
        let _held = Arc::clone(&self.slow).try_acquire_owned().ok()?;
        drop(quick);
        self.freed.notify_one();
        Some(round.await)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use bex_proto::SessionId;
    use jiff::Timestamp;
    use tokio::time::Instant;

    use super::*;

    fn lease(unclear_since: Option<Timestamp>) -> Lease {
        Lease {
            session: SessionId::random(),
            fence: 1,
            failures: 0,
            unclear_since,
            unseen: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_seat_is_free_again_after_a_second_whatever_sits_on_it() {
        let lanes = Arc::new(Lanes::default());
        let began = Instant::now();
        let mut rounds = tokio::task::JoinSet::new();
        for done in 0..SLOW + 3 * limits::COMPLETER_PARALLEL {
            let seat = loop {
                match lanes.seat(&lease(None)) {
                    Some(seat) => break seat,
                    None => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            };
            let waited = QUICK * u32::try_from(done / limits::COMPLETER_PARALLEL).expect("few");
            assert!(
                began.elapsed() <= waited + Duration::from_millis(20),
                "{done}"
            );
            let lanes = Arc::clone(&lanes);
            rounds.spawn(async move { lanes.run(seat, pending::<()>()).await });
        }
        tokio::time::sleep(QUICK * 2).await;
        // those that found no room among the slow were ended
        let mut ended = 0;
        while let Some(round) = rounds.try_join_next() {
            assert_eq!(round.expect("no panic"), None);
            ended += 1;
        }
        assert_eq!(ended, 3 * limits::COMPLETER_PARALLEL);
        assert_eq!(lanes.free(), limits::COMPLETER_PARALLEL);
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspect_has_no_quick_seat_and_keeps_its_own() {
        let lanes = Lanes::default();
        let suspect = lease(Some(Timestamp::UNIX_EPOCH));
        let unseen = Lease {
            unseen: true,
            ..lease(None)
        };
        let seats: Vec<_> = (0..SUSPECTS)
            .map(|n| lanes.seat([&suspect, &unseen][n % 2]).expect("room"))
            .collect();
        assert!(lanes.seat(&suspect).is_none());
        assert_eq!(lanes.free(), limits::COMPLETER_PARALLEL);
        let long = tokio::time::sleep(QUICK * 40);
        let seat = seats.into_iter().next().expect("one");
        assert_eq!(lanes.run(seat, long).await, Some(()));
        let seat = lanes.seat(&suspect).expect("room again");
        assert_eq!(lanes.run(seat, ready(3)).await, Some(3));
    }
}
