//! The Completer: it brings every delivered turn to its verdict and every finished sandbox to its end.
//!
//! ```text
//!   claim (lease) ─▶ observe + harvest ─▶ decide ─▶ settle ─▶ rejudge ─▶ teardown ─▶ release
//! ```
//! It takes no input: each round reads the world, does bounded, idempotent work and can be killed anywhere; the next round,
//! here or on another replica, goes on from the rows. One session is worked on by one replica at a time; a session that
//! fails is retried with a growing delay and keeps nobody else waiting.

mod clocks;
mod decide;
pub mod harvest;
pub mod log;
mod round;
mod settle;
mod sweep;
mod teardown;

use std::sync::Arc;
use std::time::Duration;

use bex_proto::Chain;
use bex_proto::limits;
use bex_store::Db;
use bex_store::leases::{Lease, Round};
use bex_store::listen::Event;
use bex_store::wake::Channel;
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::Timings;
use crate::exec_client::SandboxRpc;
use crate::keep::kept;
use crate::metrics::{CompleterMetrics, RoundResult, TickResult};
use crate::notices::Notices;
use crate::sandbox::Lifecycle;

use clocks::Clocks;

/// How often due sessions are looked for when nobody tells.
const POLL: Duration = Duration::from_secs(1);
/// One round of one session; what is left is done in the next.
const ROUND_LIMIT: Duration = Duration::from_secs(10 * 60);
/// The longest delay of a session that keeps failing.
const BACKOFF_MAX: Duration = Duration::from_secs(5 * 60);
/// How long rounds may go on after cancel; they are resumed elsewhere.
const DRAIN: Duration = Duration::from_secs(5);

/// What the Completer works with.
#[derive(Clone)]
pub struct CompleterDeps {
    /// The store.
    pub db: Db,
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
    clocks: Clocks,
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
            deps,
            clocks: Clocks::default(),
        }
    }

    /// Works until cancelled.
    pub async fn run(self: Arc<Self>, cancel: CancellationToken) {
        let mut notices = self.deps.notices.subscribe();
        let mut poll = interval(POLL.min(self.deps.timings.completer_tick));
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rounds = JoinSet::new();
        let sweep = tokio::spawn(sweep::run(self.deps.clone(), cancel.clone()));
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                _ = poll.tick() => {}
                event = notices.next() => if !self.hear(event).await { continue },
                Some(ended) = rounds.join_next() => if let Err(error) = ended {
                    self.deps.metrics.round_ended(RoundResult::Panicked, None);
                    tracing::error!(%error, "a completer round panicked; its session is retried when its lease ends");
                },
            }
            self.claim(&mut rounds).await;
            self.deps.metrics.set_active(rounds.len());
        }
        let drained = timeout(DRAIN, async {
            while rounds.join_next().await.is_some() {}
            sweep.await
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
        let free = limits::COMPLETER_PARALLEL.saturating_sub(rounds.len());
        if free == 0 {
            return;
        }
        let limit = u32::try_from(free).unwrap_or(u32::MAX);
        match self
            .deps
            .db
            .claim_leases(&self.deps.owner, limit, self.deps.timings.idle_grace)
            .await
        {
            Ok(leases) => {
                self.deps.metrics.ticked(TickResult::Ok);
                for lease in leases {
                    rounds.spawn(Arc::clone(self).work(lease));
                }
            }
            Err(error) => {
                self.deps.metrics.ticked(TickResult::Error);
                tracing::warn!(error = %Chain(&error), "no sessions could be claimed");
            }
        }
    }

    /// One round under its lease. Whatever happens, the lease is given back or runs out.
    async fn work(self: Arc<Self>, lease: Lease) {
        let began = Instant::now();
        // a store that does not answer has not said that the lease is lost; every step names its fence anyway
        let renew = || -> BoxFuture<'_, bool> {
            Box::pin(async { self.deps.db.renew_lease(&lease).await.unwrap_or(true) })
        };
        let round = timeout(ROUND_LIMIT, kept(renew, Box::pin(self.round(&lease))));
        let (end, result) = match round.await {
            Ok(Some(Ok(end))) => (Some(end), RoundResult::Done),
            Ok(Some(Err(error))) => {
                tracing::warn!(session = %lease.session, failures = lease.failures, error = %Chain(&error), "a completer round failed");
                (Some(self.backoff(&lease)), RoundResult::Failed)
            }
            // somebody else holds the session now
            Ok(None) => (None, RoundResult::LeaseLost),
            Err(_) => {
                tracing::error!(session = %lease.session, after = ?began.elapsed(), "a completer round took too long");
                (Some(self.backoff(&lease)), RoundResult::TimedOut)
            }
        };
        let took = Some(began.elapsed());
        self.deps.metrics.round_ended(result, took);
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

    fn backoff(&self, lease: &Lease) -> RoundEnd {
        let bounds = (self.deps.timings.completer_tick, BACKOFF_MAX);
        RoundEnd {
            next: jittered(clock::backoff(bounds, lease.failures)),
            round: Round::Failed,
        }
    }
}

/// The delay, up to a tenth more or less, so that sessions that became due together part.
fn jittered(delay: Duration) -> Duration {
    let mut byte = [0u8; 1];
    // without randomness there is no jitter, and nothing else depends on it
    let _ = getrandom::fill(&mut byte);
    delay.mul_f64(0.9 + f64::from(byte[0]) / 255.0 * 0.2)
}
