//! The Completer: it brings every delivered turn to its verdict and every finished sandbox to its end.
//!
//! ```text
//!   claim (lease) ─▶ observe + harvest ─▶ decide ─▶ settle ─▶ rejudge ─▶ teardown ─▶ release
//! ```
//! It takes no input: each round reads the world, does bounded, idempotent work and can be killed anywhere; the next round,
//! here or on another replica, goes on from the rows. One session is worked on by one replica at a time; a session that
//! fails is retried with a growing delay and keeps nobody else waiting ([`lanes`]).

mod decide;
pub mod harvest;
pub mod idle;
mod lanes;
pub mod log;
mod round;
mod settle;
pub mod store;
mod sweep;
mod teardown;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bex_proto::Chain;
use bex_store::leases::{Lease, Round};
use bex_store::listen::Event;
use bex_store::wake::Channel;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock;
use crate::config::Timings;
use crate::exec_client::{SandboxRpc, Windows};
use crate::keep::kept;
use crate::metrics::{CompleterMetrics, RoundResult, TickResult};
use crate::notices::Notices;
use crate::sandbox::Lifecycle;

use lanes::{Lanes, Seat};
use store::CompleterStore;

/// How often due sessions are looked for when nobody tells.
const POLL: Duration = Duration::from_secs(1);
/// One round of one session; what is left is done in the next.
const ROUND_LIMIT: Duration = Duration::from_secs(10 * 60);
/// The longest delay of a session that keeps failing.
const BACKOFF_MAX: Duration = Duration::from_secs(5 * 60);
/// How long rounds may go on after cancel; they are resumed elsewhere.
const DRAIN: Duration = Duration::from_secs(5);
/// Claims in a row, each for as many sessions as there are quick seats: far more than are ever due at once.
const CLAIMS: usize = 100;

/// What the Completer works with.
#[derive(Clone)]
pub struct CompleterDeps {
    /// The store.
    pub db: Arc<dyn CompleterStore>,
    /// Names this process in lease rows.
    pub owner: String,
    /// The way into sandboxes.
    pub rpc: Arc<dyn SandboxRpc>,
    /// Makes and removes them.
    pub lifecycle: Arc<dyn Lifecycle>,
    /// How patient it is.
    pub timings: Timings,
    /// Where wakes are heard.
    pub notices: Notices,
    /// What it counts.
    pub metrics: CompleterMetrics,
}

/// See the module's text.
pub struct Completer {
    deps: CompleterDeps,
    lanes: Lanes,
    windows: Windows,
}

/// How a round ends: when the session is due again, and whether it counts as failed.
#[derive(Debug, Clone, Copy)]
struct RoundEnd {
    next: Duration,
    round: Round,
}

impl Completer {
    /// A Completer that does nothing until it runs.
    pub fn new(deps: CompleterDeps) -> Self {
        Self {
            windows: Windows::new(deps.metrics.harvest_windows()),
            deps,
            lanes: Lanes::default(),
        }
    }

    /// Works until cancelled.
    pub async fn run(self: Arc<Self>, cancel: CancellationToken) {
        let mut notices = self.deps.notices.subscribe();
        let mut poll = interval(POLL.min(self.deps.timings.completer_tick));
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rounds = JoinSet::new();
        // aborted with whoever runs this: nothing of a Completer works on without it
        let sweep = tokio::spawn(sweep::run(self.deps.clone(), cancel.clone()));
        let sweep = AbortOnDropHandle::new(sweep);
        let idle = tokio::spawn(idle::run(self.deps.clone(), cancel.clone()));
        let idle = AbortOnDropHandle::new(idle);
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                Some(ended) = rounds.join_next() => if let Err(error) = ended {
                    self.deps.metrics.round_ended(RoundResult::Panicked, None);
                    tracing::error!(%error, "a completer round's end panicked; its session is retried when its lease ends");
                },
                event = notices.next() => if !self.hear(event).await { continue },
                () = self.lanes.freed() => {}
                _ = poll.tick() => {}
            }
            self.claim(&mut rounds).await;
            self.deps.metrics.set_active(rounds.len());
        }
        let drained = timeout(DRAIN, async {
            while rounds.join_next().await.is_some() {}
            let _ = tokio::join!(sweep, idle);
        });
        if drained.await.is_err() {
            tracing::info!(
                late = rounds.len(),
                "completer rounds are left to the next process"
            );
        }
    }

    /// Whether there may be something to claim now.
    async fn hear(&self, event: Event) -> bool {
        match event {
            Event::Notified {
                channel: Channel::Wake,
                payload,
            } => {
                let Ok(session) = payload.parse() else {
                    return false;
                };
                if let Err(error) = self.deps.db.make_due(&session).await {
                    // a lost wake costs a tick
                    tracing::debug!(%session, error = %Chain(&error), "a wake was lost");
                }
                true
            }
            Event::Notified {
                channel: Channel::Ready,
                ..
            }
            | Event::Resumed => true,
            Event::Notified { .. } => false,
        }
    }

    async fn claim(self: &Arc<Self>, rounds: &mut JoinSet<()>) {
        for _ in 0..CLAIMS {
            let free = self.lanes.free();
            if free == 0 {
                return;
            }
            let limit = u32::try_from(free).unwrap_or(u32::MAX);
            let leases = match self
                .deps
                .db
                .claim_leases(&self.deps.owner, limit, self.deps.timings.idle_grace)
                .await
            {
                Ok(leases) => leases,
                Err(error) => {
                    self.deps.metrics.ticked(TickResult::Error);
                    tracing::warn!(error = %Chain(&error), "no sessions could be claimed");
                    return;
                }
            };
            self.deps.metrics.ticked(TickResult::Ok);
            let claimed = leases.len();
            for lease in leases {
                let seat = self.lanes.seat(&lease);
                rounds.spawn(Arc::clone(self).work(lease, seat));
            }
            // suspects took no quick seat: there may be more that is due
            if claimed < free {
                return;
            }
        }
    }

    /// One round under its lease, in its lane. Whatever happens, the lease is given back or runs out.
    async fn work(self: Arc<Self>, lease: Lease, seat: Option<Seat>) {
        let began = Instant::now();
        let ended = match seat {
            Some(seat) => self.lanes.run(seat, Box::pin(self.attempt(&lease))).await,
            None => None,
        };
        let (end, result) = ended.unwrap_or_else(|| {
            tracing::warn!(session = %lease.session, after = ?began.elapsed(), "no room for a slow session, it is tried again");
            (Some(self.again_later(&lease)), RoundResult::TimedOut)
        });
        self.deps.metrics.round_ended(result, Some(began.elapsed()));
        let Some(end) = end else { return };
        if let Err(error) = self
            .deps
            .db
            .release_lease(&lease, end.next, end.round)
            .await
        {
            tracing::debug!(session = %lease.session, error = %Chain(&error), "a lease is left to run out");
        }
    }

    /// One round, and how it ended; no end when somebody else holds the session now.
    async fn attempt(&self, lease: &Lease) -> (Option<RoundEnd>, RoundResult) {
        let began = Instant::now();
        // a store that does not answer has not said that the lease is lost; every step names its fence anyway
        let renew = || -> BoxFuture<'_, bool> {
            Box::pin(async { self.deps.db.renew_lease(lease).await.unwrap_or(true) })
        };
        // rows are what a round goes on from, so one that broke anywhere leaves nothing behind that is in between
        let round = AssertUnwindSafe(Box::pin(self.round(lease))).catch_unwind();
        match timeout(ROUND_LIMIT, kept(renew, round)).await {
            Ok(Some(Ok(Ok(end)))) => (Some(end), RoundResult::Done),
            Ok(Some(Ok(Err(error)))) => {
                tracing::warn!(session = %lease.session, failures = lease.failures, error = %Chain(&error), "a completer round failed");
                (Some(self.backoff(lease)), RoundResult::Failed)
            }
            Ok(Some(Err(_panic))) => {
                tracing::error!(session = %lease.session, failures = lease.failures, "a completer round panicked");
                (Some(self.backoff(lease)), RoundResult::Panicked)
            }
            Ok(None) => (None, RoundResult::LeaseLost),
            Err(_) => {
                tracing::error!(session = %lease.session, after = ?began.elapsed(), "a completer round took too long");
                (Some(self.backoff(lease)), RoundResult::TimedOut)
            }
        }
    }

    fn backoff(&self, lease: &Lease) -> RoundEnd {
        let bounds = (self.deps.timings.completer_tick, BACKOFF_MAX);
        RoundEnd {
            next: jittered(clock::backoff(bounds, lease.failures), lease),
            round: Round::Failed,
        }
    }

    /// The end of a round that saw nothing, because there was no room for it.
    fn again_later(&self, lease: &Lease) -> RoundEnd {
        RoundEnd {
            next: jittered(self.deps.timings.completer_tick, lease),
            round: Round::Unseen,
        }
    }
}

/// The delay, a tenth to a fifth shorter, differently for each claim: sessions that became due together part, and with the
/// poll and the round's own time a session is still looked at within its tick.
fn jittered(delay: Duration, lease: &Lease) -> Duration {
    let mut hasher = DefaultHasher::new();
    (&lease.session, lease.fence).hash(&mut hasher);
    delay.mul_f64(0.8 + (hasher.finish() % 256) as f64 / 255.0 * 0.1)
}
