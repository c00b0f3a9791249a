//! Telling now and then that a turn goes on.

use std::convert::Infallible;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::bounds::STATUS_EVERY;
use crate::sink::Progress;

/// Calls `tell` with the time when parts were spoken since it did last, [`STATUS_EVERY`] apart. Ends only by being dropped.
pub(super) async fn told(
    mut progress: watch::Receiver<Progress>,
    tell: impl Fn(Timestamp),
) -> Infallible {
    loop {
        sleep(STATUS_EVERY).await;
        if progress.changed().await.is_err() {
            // nobody speaks any more, and whoever waits for this is told elsewhere
            return std::future::pending().await;
        }
        tell(Timestamp::now());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_goes_on_is_told_and_one_that_is_silent_is_not() {
        let progress = watch::Sender::new(Progress {
            next: 0,
            ended: false,
        });
        let (told_times, begun) = (Cell::new(0), Instant::now());
        let telling = told(progress.subscribe(), |_| {
            told_times.set(told_times.get() + 1)
        });
        tokio::pin!(telling);
        for minute in 1..=5 {
            for _ in 0..100 {
                progress.send_modify(|progress| progress.next += 1);
            }
            let until = STATUS_EVERY + STATUS_EVERY / 10;
            assert!(timeout(until, &mut telling).await.is_err());
            assert_eq!(told_times.get(), minute, "{:?}", begun.elapsed());
        }
        assert!(timeout(STATUS_EVERY * 20, &mut telling).await.is_err());
        assert_eq!(told_times.get(), 5, "it says nothing");
        progress.send_modify(|progress| progress.next += 1);
        assert!(timeout(STATUS_EVERY / 10, &mut telling).await.is_err());
        assert_eq!(
            told_times.get(),
            6,
            "and is heard at once when it does again"
        );
    }
}
