//! Running streams and whether they may go on: asked on notice, after every break of the notices, and every
//! [`limits::REAUTHORIZE`], by one query for all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bex_proto::{Chain, limits};
use bex_store::listen::Event;
use bex_store::revocations::{Standing, StreamKey};
use bex_store::wake::Channel;
use bex_store::{Db, StoreError};
use futures::{FutureExt, Stream, StreamExt};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;

use super::rooms::Rooms;

/// How soon a check that failed is made again.
const CHECK_AGAIN: Duration = Duration::from_secs(1);
/// Notices taken together before a check.
const HEARD_AT_ONCE: usize = 1024;

/// What is asked about running streams, small enough to be scripted.
#[async_trait]
pub trait Standings: Send + Sync {
    /// Whether each stream may go on, in the order given.
    async fn standings(&self, keys: &[StreamKey]) -> Result<Vec<Standing>, StoreError>;
}

#[async_trait]
impl Standings for Db {
    async fn standings(&self, keys: &[StreamKey]) -> Result<Vec<Standing>, StoreError> {
        Db::standings(self, keys).await
    }
}

/// Every stream that is open or about to be.
#[derive(Debug, Default)]
pub struct Streams(Mutex<Registered>);

#[derive(Debug, Default)]
struct Registered {
    last: u64,
    streams: HashMap<u64, (StreamKey, CancellationToken)>,
}

/// One stream's entry; gone when dropped.
#[derive(Debug)]
pub struct Registration {
    streams: Arc<Streams>,
    number: u64,
    /// Cancelled when the stream may not go on.
    pub revoked: CancellationToken,
}

impl Streams {
    /// From now on a revocation of `key` reaches the entry. Register before asking for its standing, so that no revocation
    /// falls between the two.
    pub fn register(self: &Arc<Self>, key: StreamKey) -> Registration {
        let revoked = CancellationToken::new();
        let mut registered = self.registered();
        registered.last += 1;
        let number = registered.last;
        registered.streams.insert(number, (key, revoked.clone()));
        drop(registered);
        Registration {
            streams: Arc::clone(self),
            number,
            revoked,
        }
    }

    /// Entries, for metrics.
    pub fn count(&self) -> usize {
        self.registered().streams.len()
    }

    /// Ends every stream that may not go on.
    async fn check(&self, store: &impl Standings) -> Result<(), StoreError> {
        let (keys, tokens): (Vec<_>, Vec<_>) = self.registered().streams.values().cloned().unzip();
        if keys.is_empty() {
            return Ok(());
        }
        for (standing, token) in store.standings(&keys).await?.into_iter().zip(tokens) {
            match standing {
                Standing::Good => {}
                Standing::Revoked | Standing::SessionGone => token.cancel(),
            }
        }
        Ok(())
    }

    fn registered(&self) -> MutexGuard<'_, Registered> {
        // entries are whole at any time
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.streams.registered().streams.remove(&self.number);
    }
}

/// Runs the watch. Without it revocations would reach nobody, so its end, whatever it is, ends the process: `drain` sends viewers
/// to other processes, and `lost` tells that nobody asked for it.
pub fn spawn(
    watching: impl Future<Output = ()> + Send + 'static,
    drain: CancellationToken,
    lost: CancellationToken,
) {
    let end = WatchEnd { drain, lost };
    tokio::spawn(async move {
        let _end = end;
        watching.await;
    });
}

/// Speaks when the watch is over, also by a panic.
struct WatchEnd {
    drain: CancellationToken,
    lost: CancellationToken,
}

impl Drop for WatchEnd {
    fn drop(&mut self) {
        if !self.drain.is_cancelled() {
            tracing::error!("revocations are not heard of any more, this process ends");
            self.lost.cancel();
            self.drain.cancel();
        }
    }
}

/// Hears notices until told to stop: wakes viewers, ends revoked streams.
pub async fn watch(
    store: impl Standings,
    mut notices: impl Stream<Item = Event> + Unpin,
    rooms: Arc<Rooms>,
    streams: Arc<Streams>,
    stop: CancellationToken,
) {
    let mut tick = interval_at(Instant::now() + limits::REAUTHORIZE, limits::REAUTHORIZE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let mut then = tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => Then::Check,
            event = notices.next() => match event {
                Some(event) => heed(&event, &rooms),
                None => return,
            },
        };
        // one check serves all that was heard until now: a burst of revocations must not queue checks
        for _ in 0..HEARD_AT_ONCE {
            match notices.next().now_or_never() {
                Some(Some(event)) => then = then.max(heed(&event, &rooms)),
                // a stream that has ended must not be asked again
                Some(None) => return,
                None => break,
            }
        }
        if then == Then::Nothing {
            continue;
        }
        match timeout(limits::ADMISSION_TIMEOUT, streams.check(&store)).await {
            Ok(Ok(())) => {}
            // nobody is cut off because the store is away: the same streams are asked about again soon
            Ok(Err(error)) => {
                tracing::warn!(error = %Chain(&error), "running streams could not be checked");
                tick.reset_after(CHECK_AGAIN);
            }
            Err(_) => {
                tracing::warn!("checking running streams took too long");
                tick.reset_after(CHECK_AGAIN);
            }
        }
    }
}

/// What a notice asks for beside waking viewers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Then {
    Nothing,
    Check,
}

fn heed(event: &Event, rooms: &Rooms) -> Then {
    match event {
        Event::Notified {
            channel: Channel::Revoked,
            ..
        } => Then::Check,
        Event::Notified {
            channel: Channel::Settled | Channel::Ready | Channel::Remote,
            payload,
        } => {
            rooms.wake(payload);
            Then::Nothing
        }
        Event::Notified {
            channel: Channel::Wake | Channel::Dispatch | Channel::Machine,
            ..
        } => Then::Nothing,
        Event::Resumed => {
            rooms.wake_all();
            Then::Check
        }
    }
}

#[cfg(test)]
mod tests;
