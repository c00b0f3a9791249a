//! Work under a lease that is renewed while it lasts.

use bex_proto::limits;
use futures::future::BoxFuture;
use tokio::time::{MissedTickBehavior, interval};

/// Runs `work`, renewing its lease three times in a lease's life. `None` when the lease was lost: the work was dropped at its
/// next pause, and whoever holds the lease now goes on.
///
/// Work goes on while a renewal waits: it may hold the very row that the renewal wants.
pub(crate) async fn kept<'a, T>(
    renew: impl Fn() -> BoxFuture<'a, bool>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let lost = async {
        let mut every = interval(limits::LEASE / 3);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        every.tick().await;
        loop {
            every.tick().await;
            if !renew().await {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = lost => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn long_work_is_renewed_and_dropped_with_its_lease() {
        let renewed = AtomicU32::new(0);
        let count = || -> BoxFuture<'_, bool> {
            Box::pin(async { renewed.fetch_add(1, Ordering::Relaxed) < 5 })
        };
        let work = limits::LEASE + limits::LEASE / 2;
        assert_eq!(kept(&count, tokio::time::sleep(work)).await, Some(()));
        assert_eq!(renewed.load(Ordering::Relaxed), 4);
        assert_eq!(kept(&count, std::future::pending::<()>()).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_waits_for_the_work_does_not_hold_it_up() {
        let row = tokio::sync::Mutex::new(());
        let renew = || -> BoxFuture<'_, bool> {
            Box::pin(async {
                let _lock = row.lock().await;
                true
            })
        };
        let work = async {
            let _lock = row.lock().await;
            tokio::time::sleep(limits::LEASE).await;
        };
        let done = tokio::time::timeout(limits::LEASE * 2, kept(renew, work));
        assert_eq!(done.await, Ok(Some(())));
    }
}
