//! The dispatcher: every recorded turn gets a driver that speaks it.
//!
//! ```text
//!   outbox ─▶ claim ─▶ raise generation ─▶ make sandbox ─▶ ready ─▶ begin delivery ─▶ driver ─▶ delivered
//!                  └─▶ a live idle driver was given the turn ──────────▶┘
//! ```
//! A kill at any arrow is survived. Before delivery began the turn may get another generation; from then on only its own may
//! speak it: it is asked again (drivers take a turn once), and when it is gone the Completer settles `sandbox_lost`.

mod deliver;
mod make;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use bex_proto::Chain;
use bex_proto::session::FailureReason;
use bex_proto::ticket::KeyRing;
use bex_store::Db;
use bex_store::StoreError;
use bex_store::dispatch::{Attempt, Delivery, DispatchClaim, Step};
use bex_store::listen::Event;
use bex_store::wake::Channel;
use bex_telemetry::{Attribute, Span};
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::Timings;
use crate::exec_client::SandboxRpc;
use crate::keep::kept;
use crate::metrics::{DispatchMetrics, DispatchResult, TickResult};
use crate::notices::Notices;
use crate::sandbox::Lifecycle;

pub use plan::{Plan, PlanFault, Plans};

/// How often the outbox is looked at when nobody tells.
const POLL: Duration = Duration::from_secs(1);
/// Turns one dispatcher works on at once.
const PARALLEL: usize = 8;
/// Attempts at a sandbox before the turn settles `provisioning_failed`.
const ATTEMPTS: u32 = 5;
/// First and last delay between attempts.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How long dispatches may go on after cancel; they are resumed elsewhere.
const DRAIN: Duration = Duration::from_secs(5);

/// What the dispatcher works with.
#[derive(Clone)]
pub struct DispatcherDeps {
    /// The store.
    pub db: Db,
    /// Names this process in outbox rows.
    pub owner: String,
    /// The way into sandboxes.
    pub rpc: Arc<dyn SandboxRpc>,
    /// Makes sandboxes.
    pub lifecycle: Arc<dyn Lifecycle>,
    /// What runs in them.
    pub plans: Plans,
    /// Driver keys are derived from its first key.
    pub driver_keys: KeyRing,
    /// How patient it is.
    pub timings: Timings,
    /// Where new work is heard of.
    pub notices: Notices,
    /// What it counts.
    pub metrics: DispatchMetrics,
}

/// See the module's text.
pub struct Dispatcher {
    deps: DispatcherDeps,
}

/// What becomes of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// The turn is with its driver, or with the Completer.
    Delivered(Delivery),
    /// An attempt failed: again after a while.
    Retry(Duration),
    /// Nothing failed, it only takes its time: looked at again after a while.
    Wait(Duration),
    /// No sandbox can be made for it, and the session fails.
    Failed {
        reason: FailureReason,
        /// The last failure with its causes, for the log.
        why: Option<String>,
    },
    /// Somebody else moved the turn or holds it.
    Left,
}

impl Outcome {
    fn result(&self) -> DispatchResult {
        match self {
            Self::Delivered(_) => DispatchResult::Delivered,
            Self::Retry(_) | Self::Wait(_) => DispatchResult::Retried,
            Self::Failed { .. } => DispatchResult::Failed,
            Self::Left => DispatchResult::Left,
        }
    }
}

impl Dispatcher {
    /// A dispatcher that does nothing until it runs.
    pub fn new(deps: DispatcherDeps) -> Self {
        Self { deps }
    }

    /// Works until cancelled.
    pub async fn run(self: Arc<Self>, cancel: CancellationToken) {
        let mut notices = self.deps.notices.subscribe();
        let mut poll = interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut dispatches = JoinSet::new();
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                _ = poll.tick() => {}
                event = notices.next() => if !self.hear(event).await { continue },
                Some(ended) = dispatches.join_next() => if let Err(error) = ended {
                    self.deps.metrics.ended(DispatchResult::Panicked);
                    tracing::error!(%error, "a dispatch panicked; its turn is retried when its lease ends");
                },
            }
            self.claim(&mut dispatches).await;
            self.deps.metrics.set_active(dispatches.len());
        }
        let drained = timeout(DRAIN, async {
            while dispatches.join_next().await.is_some() {}
        });
        if drained.await.is_err() {
            tracing::info!(
                late = dispatches.len(),
                "dispatches are left to the next process"
            );
        }
    }

    /// Whether there may be something to claim now.
    async fn hear(&self, event: Event) -> bool {
        match event {
            Event::Notified {
                channel: Channel::Dispatch,
                payload,
            } => {
                let Ok(session) = payload.parse() else {
                    return false;
                };
                if let Err(error) = self.deps.db.make_dispatch_due(&session).await {
                    tracing::debug!(%session, error = %Chain(&error), "a wake was lost");
                }
                true
            }
            Event::Resumed => true,
            Event::Notified { .. } => false,
        }
    }

    async fn claim(self: &Arc<Self>, dispatches: &mut JoinSet<()>) {
        let free = PARALLEL.saturating_sub(dispatches.len());
        if free == 0 {
            return;
        }
        match self
            .deps
            .db
            .claim_dispatches(&self.deps.owner, u32::try_from(free).unwrap_or(u32::MAX))
            .await
        {
            Ok(claims) => {
                self.deps.metrics.ticked(TickResult::Ok);
                for claim in claims {
                    let (dispatcher, span) = (Arc::clone(self), Span::of(&claim.session));
                    dispatches.spawn(async move { span.hold(dispatcher.work(claim, span)).await });
                }
            }
            Err(error) => {
                self.deps.metrics.ticked(TickResult::Error);
                tracing::warn!(error = %Chain(&error), "no turns could be claimed for dispatch");
            }
        }
    }

    async fn work(self: Arc<Self>, claim: DispatchClaim, span: Span) {
        // a store that does not answer has not said that the claim is lost; every step names its fence anyway
        let renew = || -> BoxFuture<'_, bool> {
            Box::pin(async { self.deps.db.renew_dispatch(&claim).await.unwrap_or(true) })
        };
        let ended = match kept(renew, Box::pin(self.dispatch(&claim))).await {
            Some(Ok(outcome)) => {
                let result = outcome.result();
                self.conclude(&claim, outcome).await.map(|()| result)
            }
            Some(Err(error)) => Err(error),
            None => Ok(DispatchResult::Left),
        };
        let result = *ended.as_ref().unwrap_or(&DispatchResult::Error);
        self.deps.metrics.ended(result);
        let attributes: [Attribute<'_>; 4] = [
            ("bex.session", &claim.session),
            ("bex.turn", &claim.turn),
            ("bex.attempt", &claim.attempts),
            ("bex.result", &result.as_str()),
        ];
        span.end("dispatch", &attributes);
        if let Err(error) = ended {
            tracing::warn!(session = %claim.session, turn = %claim.turn, error = %Chain(&error), "a dispatch failed");
            if let Err(error) = self
                .deps
                .db
                .retry_dispatch(&claim, Attempt::Failed, backoff(claim.attempts))
                .await
            {
                tracing::debug!(session = %claim.session, error = %Chain(&error), "a claim is left to run out");
            }
        }
    }

    async fn conclude(&self, claim: &DispatchClaim, outcome: Outcome) -> Result<(), StoreError> {
        let (session, turn) = (&claim.session, claim.turn);
        let step = match outcome {
            Outcome::Delivered(delivery) => {
                tracing::info!(%session, %turn, ?delivery, "turn delivered");
                self.deps.db.delivered(claim, delivery).await?
            }
            Outcome::Failed { reason, why } => {
                tracing::warn!(%session, %turn, code = reason.as_str(), attempts = claim.attempts, error = why, "no sandbox could be made");
                self.deps.db.provisioning_failed(claim, reason).await?
            }
            Outcome::Retry(delay) => self.again(claim, Attempt::Failed, delay).await?,
            Outcome::Wait(delay) => self.again(claim, Attempt::Waited, delay).await?,
            // a canceled turn's outbox row goes with its settle
            Outcome::Left => self.again(claim, Attempt::Waited, BACKOFF.1).await?,
        };
        if step != Step::Done {
            tracing::debug!(%session, %turn, ?step, "the turn moved meanwhile");
        }
        Ok(())
    }

    async fn again(
        &self,
        claim: &DispatchClaim,
        attempt: Attempt,
        delay: Duration,
    ) -> Result<Step, StoreError> {
        let is_ours = self.deps.db.retry_dispatch(claim, attempt, delay).await?;
        Ok(if is_ours { Step::Done } else { Step::Stale })
    }
}

fn backoff(attempts: u32) -> Duration {
    clock::backoff(BACKOFF, attempts.saturating_sub(1))
}
