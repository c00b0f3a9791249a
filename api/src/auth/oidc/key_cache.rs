//! The issuer's keys, kept in memory and read again by one task.
//!
//! Only that task reads: on its own every few minutes, so that a withdrawn key stops counting, and soon when a token names a
//! key that is not there, so that a new key counts without a restart. Whoever asks for such a key waits for the read that is under way
//! or next, or is answered from the last one when that is only seconds old: however many unknown keys are named, the
//! issuer is asked once in [`MIN_PAUSE`]. While it does not answer, known keys go on for [`STALE`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bex_proto::Chain;
use futures::FutureExt;
use jsonwebtoken::Algorithm;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::endpoint::{Endpoint, FETCH_TIMEOUT, FetchFault};
use super::key_set::{Key, KeySet};
use crate::metrics::OidcMetrics;

/// Between two reads, whoever asks.
pub(crate) const MIN_PAUSE: Duration = Duration::from_secs(10);
/// Between two reads when nobody asks: how long a withdrawn key still counts.
const REFRESH: Duration = Duration::from_secs(5 * 60);
/// The same while reads fail.
const RETRY: Duration = Duration::from_secs(30);
/// How long keys count that can no longer be read: an outage over a night, not for ever.
const STALE: Duration = Duration::from_secs(24 * 3600);
/// Requests that wait for a read at once; more hear at once that the keys are not available.
const WAITERS: usize = 32;
/// The longest such a wait: a read under way, and one more.
const WAIT: Duration = FETCH_TIMEOUT.saturating_mul(2);

/// Where keys are read from. A trait, so that tests can script every failure.
#[async_trait]
pub trait JwksSource: Send + Sync {
    /// The set as it is published now, within [`FETCH_TIMEOUT`].
    async fn fetch(&self) -> Result<KeySet, FetchFault>;
}

#[async_trait]
impl JwksSource for Endpoint {
    async fn fetch(&self) -> Result<KeySet, FetchFault> {
        Endpoint::fetch(self).await
    }
}

/// What a look for a key found.
#[derive(Debug, Clone)]
pub(super) enum Lookup {
    /// It.
    Key(Key),
    /// The key of this id is not for this algorithm.
    OtherAlgorithm,
    /// The issuer does not publish it.
    Unknown,
    /// Nobody knows: the issuer cannot be asked.
    Unavailable,
}

#[derive(Debug, Clone, Default)]
struct Known {
    keys: Option<(Arc<KeySet>, Instant)>,
    /// When the last read ended, and whether it failed.
    last: Option<(Instant, Read)>,
    reads: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    Ok,
    Failed,
}

impl Known {
    fn find(&self, kid: &str, algorithm: Algorithm) -> Option<Lookup> {
        let (set, at) = self.keys.as_ref()?;
        if at.elapsed() > STALE {
            return None;
        }
        let mut named = set.keys.iter().filter(|key| key.kid == kid).peekable();
        named.peek()?;
        let fits = named.find(|key| key.algorithms.contains(&algorithm));
        Some(fits.map_or(Lookup::OtherAlgorithm, |key| Lookup::Key(key.clone())))
    }

    /// What is to be said of a key that is not there, after the last read.
    fn missing(&self) -> Lookup {
        match self.last {
            Some((_, Read::Ok)) => Lookup::Unknown,
            Some((_, Read::Failed)) | None => Lookup::Unavailable,
        }
    }

    fn is_recent(&self) -> bool {
        self.last.is_some_and(|(at, _)| at.elapsed() < MIN_PAUSE)
    }
}

/// The keys as requests see them.
#[derive(Debug)]
pub struct KeyCache {
    known: watch::Receiver<Known>,
    wanted: Arc<Notify>,
    waiters: Semaphore,
}

/// The task that reads them.
pub struct Refresher {
    source: Box<dyn JwksSource>,
    known: watch::Sender<Known>,
    wanted: Arc<Notify>,
    metrics: OidcMetrics,
}

/// A cache without keys, and the task that fills it.
pub fn key_cache(source: Box<dyn JwksSource>, metrics: OidcMetrics) -> (KeyCache, Refresher) {
    let (sender, receiver) = watch::channel(Known::default());
    let wanted = Arc::new(Notify::new());
    let cache = KeyCache {
        known: receiver,
        wanted: Arc::clone(&wanted),
        waiters: Semaphore::new(WAITERS),
    };
    let refresher = Refresher {
        source,
        known: sender,
        wanted,
        metrics,
    };
    (cache, refresher)
}

impl KeyCache {
    pub(super) async fn find(&self, kid: &str, algorithm: Algorithm) -> Lookup {
        let reads = {
            let known = self.known.borrow();
            if let Some(found) = known.find(kid, algorithm) {
                return found;
            }
            if known.is_recent() {
                return known.missing();
            }
            known.reads
        };
        let Ok(_permit) = self.waiters.try_acquire() else {
            return Lookup::Unavailable;
        };
        self.wanted.notify_one();
        let mut known = self.known.clone();
        let read = timeout(WAIT, known.wait_for(|known| known.reads != reads)).await;
        match read {
            Ok(Ok(known)) => known
                .find(kid, algorithm)
                .unwrap_or_else(|| known.missing()),
            // it took too long, or the process shuts down
            Ok(Err(_)) | Err(_) => Lookup::Unavailable,
        }
    }
}

impl Refresher {
    /// Reads until cancelled, the first time at once.
    pub async fn run(self, cancel: CancellationToken) {
        let _ = cancel.run_until_cancelled(self.read_on()).await;
    }

    async fn read_on(&self) {
        loop {
            let pause = match self.read().await {
                Read::Ok => REFRESH,
                Read::Failed => RETRY,
            };
            // who asked before the read ended has its answer
            let _ = self.wanted.notified().now_or_never();
            let asked = async {
                sleep(MIN_PAUSE).await;
                self.wanted.notified().await;
            };
            let _ = timeout(pause, asked).await;
        }
    }

    async fn read(&self) -> Read {
        let fetched = self.source.fetch().await;
        let failed_before = matches!(self.known.borrow().last, Some((_, Read::Failed)));
        self.metrics.fetched(fetched.as_ref().ok().map(KeySet::len));
        let (keys, read) = match fetched {
            Ok(set) => {
                if failed_before {
                    tracing::info!(keys = set.len(), "the issuer's keys can be read again");
                }
                (Some((Arc::new(set), Instant::now())), Read::Ok)
            }
            Err(error) => {
                // once, when it begins: the metric counts on
                if !failed_before {
                    tracing::warn!(error = %Chain(&error), "the issuer's keys can not be read");
                }
                (None, Read::Failed)
            }
        };
        self.known.send_modify(|known| {
            known.keys = keys.or_else(|| known.keys.take());
            known.last = Some((Instant::now(), read));
            known.reads += 1;
        });
        read
    }
}

#[cfg(test)]
mod tests;
