//! Viewers: who may read, what they are shown, and when they are sent away.
//!
//! A stream passes these files in order: `request` → [`admission`] → [`plan`] → `viewer` (which reads [`replay`] and the
//! [`hub`](crate::hub), deciding by [`pull`]) → [`body`]; one of a remote session goes by `remote` instead of `request`'s second half to
//! [`remote`](crate::remote). It promises that a request is refused in the contract's order, that an
//! admitted viewer sees each part once and in order, and that no viewer can slow another, a driver or the store's writers.

pub mod admission;
mod answer;
pub mod body;
pub mod cors;
pub mod cursor;
mod events;
mod forwarded;
pub mod limiter;
mod phases;
pub mod plan;
pub mod post;
pub mod pull;
mod remote;
pub mod replay;
mod request;
mod revocation;
pub(crate) mod rooms;
pub(crate) mod stop;
pub(crate) mod viewer;

use std::sync::Arc;
use std::time::Duration;

use bex_proto::limits;
use bex_proto::ticket::KeyRing;
use bex_store::listen::{Listener, Source as NoticeSource};
use bex_store::{ConfigError, Db};
use futures::stream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Network;
use crate::hub::{Hub, HubDeps, TeeMode};
use crate::metrics::{AttachMetrics, Level};
use crate::remote::follow::Follows;
use crate::sandbox::Targets;
use cors::Cors;
use limiter::Limiter;
use replay::ReplayBudget;
use revocation::Streams;
use rooms::Rooms;

/// How long draining streams may take to be told where to resume.
pub const GOODBYE: Duration = Duration::from_secs(5);

/// How long the audit rows of the others may take to be closed then.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What the attach listener works with.
pub struct AttachDeps {
    /// The store.
    pub db: Db,
    /// Where notices come from.
    pub notices: NoticeSource,
    /// Where sandboxes are.
    pub targets: Arc<dyn Targets>,
    /// From which drivers' keys are derived.
    pub driver_keys: Arc<KeyRing>,
    /// Who may sign tickets; `None`: the listener is not configured.
    pub attach_keys: Option<KeyRing>,
    /// Listed origins.
    pub cors_origins: Vec<String>,
    /// Peers whose `X-Forwarded-For` is believed, for audit rows.
    pub trusted_proxies: Vec<Network>,
    /// Whether live parts are stored from here.
    pub tee: TeeMode,
    /// This process, in audit rows.
    pub instance: String,
    /// How long a lost driver is dialled again: [`limits::SOURCE_RETRY`], but in tests.
    pub source_retry: Duration,
    /// Counts.
    pub metrics: AttachMetrics,
}

/// The attach listener.
pub struct Attach {
    db: Db,
    hub: Arc<Hub>,
    keys: Option<KeyRing>,
    cors: Cors,
    trusted_proxies: Vec<Network>,
    instance: String,
    limiter: Arc<Limiter>,
    budget: ReplayBudget,
    rooms: Arc<Rooms>,
    streams: Arc<Streams>,
    follows: Arc<Follows>,
    metrics: AttachMetrics,
    viewers: TaskTracker,
    drain: CancellationToken,
    /// Revocations are not heard of any more.
    lost: CancellationToken,
    /// Ends viewers that could not be told.
    cut: CancellationToken,
}

impl std::fmt::Debug for Attach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attach")
            .field("streams", &self.streams.count())
            .finish_non_exhaustive()
    }
}

impl Attach {
    /// A listener without streams. Starts to hear notices.
    ///
    /// # Errors
    /// When the notices' database configuration is unusable.
    pub fn new(deps: AttachDeps) -> Result<Arc<Self>, ConfigError> {
        let hub = Hub::new(HubDeps {
            store: Arc::new(deps.db.clone()),
            targets: deps.targets,
            driver_keys: deps.driver_keys,
            tee: deps.tee,
            retry: deps.source_retry,
            metrics: deps.metrics.hub.clone(),
        });
        let (rooms, streams) = (Arc::new(Rooms::default()), Arc::new(Streams::default()));
        let drain = CancellationToken::new();
        let listener = Listener::start(deps.notices)?;
        let notices = stream::unfold(listener, async |mut listener| {
            Some((listener.next().await?, listener))
        });
        let lost = CancellationToken::new();
        let watching = revocation::watch(
            deps.db.clone(),
            Box::pin(notices),
            Arc::clone(&rooms),
            Arc::clone(&streams),
            drain.clone(),
        );
        revocation::spawn(watching, drain.clone(), lost.clone());
        let follows = Follows::new(deps.db.clone(), Arc::clone(&rooms));
        Ok(Arc::new(Self {
            db: deps.db,
            hub,
            keys: deps.attach_keys,
            cors: Cors::new(deps.cors_origins),
            trusted_proxies: deps.trusted_proxies,
            instance: deps.instance,
            limiter: Limiter::new(limits::STREAMS_PER_PROCESS, limits::STREAMS_PER_SUBJECT),
            budget: ReplayBudget::default(),
            rooms,
            streams,
            follows,
            metrics: deps.metrics,
            viewers: TaskTracker::new(),
            drain,
            lost,
            cut: CancellationToken::new(),
        }))
    }

    /// Tells every viewer where to resume, then has every tee store what it holds.
    pub async fn drain(&self) {
        self.drain.cancel();
        self.viewers.close();
        let goodbye = async {
            if timeout(GOODBYE, self.viewers.wait()).await.is_err() {
                let late = self.viewers.len();
                tracing::warn!(
                    late,
                    "viewers that take nothing were not told where to resume"
                );
                self.cut.cancel();
                let _ = timeout(LAST_WORDS, self.viewers.wait()).await;
            }
        };
        tokio::join!(goodbye, self.hub.drain());
    }

    /// Waits for what ended with its connection, after a drain, to end in the audit too.
    pub async fn closed(&self) {
        if timeout(LAST_WORDS, self.viewers.wait()).await.is_err() {
            tracing::warn!("audit rows of the last streams stay open");
        }
    }

    /// Waits until this process may not go on: revocations would reach nobody any more. New streams are refused then.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// What it holds now, for metrics.
    pub fn levels(&self) -> [Level; 5] {
        let level = |name, help, value| Level { name, help, value };
        [
            level("sources", "Live turns being read", self.hub.live()),
            level(
                "remote_followed",
                "Remote sessions that somebody watches",
                self.follows.count(),
            ),
            level(
                "stream_places",
                "Places taken by streams, of those there are",
                self.limiter.count(),
            ),
            level(
                "streams_watched",
                "Streams that hear of revocations",
                self.streams.count(),
            ),
            level(
                "replay_free_bytes",
                "Replay memory that nobody uses",
                self.budget.free_bytes(),
            ),
        ]
    }
}

#[cfg(test)]
mod tests;
