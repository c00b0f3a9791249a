//! From a claim to a sandbox that is ready.

use std::time::Duration;

use bex_proto::Chain;
use bex_proto::Generation;
use bex_proto::driver::{DriverKey, TokenSeed};
use bex_proto::launch::{CONTAINER, LegacyTurn, namespace_of};
use bex_proto::limits;
use bex_proto::session::FailureReason;
use bex_store::StoreError;
use bex_store::dispatch::{
    BeginDelivery, BeginGeneration, Delivery, DispatchClaim, NewSandbox, Step,
};
use bex_store::sandboxes::{SandboxRow, SandboxState};
use bex_store::sessions::SessionRow;
use bex_store::turns::TurnRow;
use tokio::time::timeout;

use super::{ATTEMPTS, Dispatcher, Outcome, Plan, backoff};
use crate::clock::age;
use crate::sandbox::{Again, CreateError, Look, SandboxPlan, TurnLife};

/// Looking at a sandbox is asked again after this when nothing was learned.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// A claimed turn with its rows.
pub(super) struct Work<'a> {
    pub claim: &'a DispatchClaim,
    pub session: &'a SessionRow,
    pub turn: &'a TurnRow,
}

impl Dispatcher {
    pub(super) async fn dispatch(&self, claim: &DispatchClaim) -> Result<Outcome, StoreError> {
        let db = &self.deps.db;
        let (Some(session), Some(turn)) = (
            db.session(&claim.session).await?,
            db.turn(&claim.session, claim.turn).await?,
        ) else {
            return Ok(Outcome::Left);
        };
        let work = Work {
            claim,
            session: &session,
            turn: &turn,
        };
        let given = match claim.generation {
            Generation(0) => None,
            generation => db.sandbox(&claim.session, generation).await?,
        };
        let Some(sandbox) = given else {
            return self.fresh(&work).await;
        };
        let look = self.deps.lifecycle.look(&(&sandbox).into()).await;
        match (claim.delivery_begun, sandbox.state, look) {
            // from here on nobody else may speak the turn
            (true, _, Look::Gone) => Ok(Outcome::Delivered(Delivery::Unknown)),
            (true, SandboxState::Creating, Look::Running) => self.make_again(&work, &sandbox).await,
            (true, _, Look::Running | Look::Unknown) if sandbox.pod_uid.is_some() => {
                self.deliver(&work, &sandbox).await
            }
            (_, SandboxState::Turn, Look::Running) => {
                match self.deps.lifecycle.turn_life(&(&sandbox).into()).await {
                    TurnLife::Enough => self.deliver(&work, &sandbox).await,
                    TurnLife::TooShort => self.fresh(&work).await,
                }
            }
            // an attempt before this one made it, or is making it
            (false, SandboxState::Creating, Look::Running) => {
                self.make_again(&work, &sandbox).await
            }
            (_, _, Look::Unknown) => self.unless_too_late(&work, Outcome::Wait(LOOK_AGAIN)).await,
            (true, _, Look::Running) => Ok(Outcome::Delivered(Delivery::Unknown)),
            (false, _, Look::Gone | Look::Running) => self.fresh(&work).await,
        }
    }

    /// A new life for the turn: it must not have begun under another.
    async fn fresh(&self, work: &Work<'_>) -> Result<Outcome, StoreError> {
        if let failed @ Outcome::Failed { .. } = self.unless_too_late(work, Outcome::Left).await? {
            return Ok(failed);
        }
        let plan = match self.deps.plans.plan(&work.session.agent) {
            Ok(plan) => plan,
            Err(fault) => {
                return Ok(Outcome::Failed {
                    reason: fault.reason(),
                    why: Some(Chain(&fault).to_string()),
                });
            }
        };
        let namespace = namespace_of(&work.session.workspace);
        let (driver_kid, key) = self.deps.driver_keys.signing_key();
        let new = NewSandbox {
            kind: self.deps.lifecycle.kind(),
            namespace: &namespace,
            container: CONTAINER,
            legacy: plan.legacy,
            driver_kid,
        };
        match self.deps.db.begin_generation(work.claim, &new).await? {
            BeginGeneration::Begun { generation } => self.make(work, plan, generation, key).await,
            BeginGeneration::DeliveryBegun => Ok(Outcome::Wait(Duration::ZERO)),
            BeginGeneration::Moved | BeginGeneration::Stale => Ok(Outcome::Left),
        }
    }

    async fn make_again(
        &self,
        work: &Work<'_>,
        sandbox: &SandboxRow,
    ) -> Result<Outcome, StoreError> {
        let plan = self.deps.plans.plan(&work.session.agent).ok();
        let plan = plan.filter(|plan| plan.legacy == sandbox.legacy);
        // the one that was recorded for it, whichever comes first in the ring by now: the gateway looks it up there
        let key = self.deps.driver_keys.key(&sandbox.driver_kid);
        match (plan, key) {
            (Some(plan), Some(key)) => self.make(work, plan, sandbox.generation, key).await,
            _ if !work.claim.delivery_begun => self.fresh(work).await,
            _ => Ok(Outcome::Delivered(Delivery::Unknown)),
        }
    }

    async fn make(
        &self,
        work: &Work<'_>,
        plan: Plan,
        generation: Generation,
        key: &[u8],
    ) -> Result<Outcome, StoreError> {
        let claim = work.claim;
        let legacy = plan.legacy;
        if legacy {
            // an older driver begins to speak as soon as it lives
            match self.deps.db.begin_delivery(claim, generation).await? {
                BeginDelivery::Begun | BeginDelivery::Again => {}
                BeginDelivery::Moved | BeginDelivery::Stale => return Ok(Outcome::Left),
            }
        }
        let sandbox_plan = SandboxPlan {
            session: claim.session.clone(),
            workspace: work.session.workspace.clone(),
            generation,
            agent: plan.agent,
            secrets: plan.secrets,
            legacy: legacy.then(|| LegacyTurn {
                turn: claim.turn,
                prompt: work.turn.prompt.clone(),
            }),
            key: DriverKey::derive(key, &claim.session, generation),
            token_seed: TokenSeed::derive(key, &claim.session),
        };
        let created = timeout(
            limits::PROVISION_TIMEOUT,
            self.deps.lifecycle.create(&sandbox_plan),
        )
        .await;
        let made = match created.unwrap_or(Err(CreateError::NotListening)) {
            Ok(made) => made,
            Err(error) => return self.not_made(work, legacy, generation, &error).await,
        };
        match self
            .deps
            .db
            .sandbox_ready(claim, generation, &made.pod_uid)
            .await?
        {
            Step::Done => {}
            Step::Moved | Step::Stale => return Ok(Outcome::Left),
        }
        if legacy {
            return Ok(Outcome::Delivered(Delivery::Accepted));
        }
        match self.deps.db.sandbox(&claim.session, generation).await? {
            Some(sandbox) => self.deliver(work, &sandbox).await,
            None => Ok(Outcome::Left),
        }
    }

    /// What becomes of the turn now, and a log line unless it is the last attempt: the conclusion says why then.
    async fn not_made(
        &self,
        work: &Work<'_>,
        legacy: bool,
        generation: Generation,
        error: &CreateError,
    ) -> Result<Outcome, StoreError> {
        let outcome = match error {
            _ if legacy => Outcome::Delivered(Delivery::Unknown),
            CreateError::Impossible(_) => Outcome::Failed {
                reason: FailureReason::SandboxImpossible,
                why: None,
            },
            CreateError::Refused { reason, again, .. } => {
                self.refused(work, *reason, *again).await?
            }
            CreateError::Failed { .. } | CreateError::NotListening | CreateError::Ended => {
                self.unless_too_late(work, Outcome::Retry(backoff(work.claim.attempts)))
                    .await?
            }
        };
        let why = Chain(error);
        if let Outcome::Failed { reason, .. } = outcome {
            let why = Some(why.to_string());
            return Ok(Outcome::Failed { reason, why });
        }
        let (session, turn) = (&work.claim.session, work.claim.turn);
        tracing::warn!(%session, %turn, %generation, error = %why, "a sandbox could not be made");
        Ok(outcome)
    }

    /// A refusal is told by its own reason when it is not tried again, the last attempt's too.
    async fn refused(
        &self,
        work: &Work<'_>,
        reason: FailureReason,
        again: Again,
    ) -> Result<Outcome, StoreError> {
        let now = self.deps.db.now().await?;
        let too_late = age(now, Some(work.turn.created_at)) >= limits::PROVISION_TIMEOUT;
        let again = match again {
            Again::ForSomeAttempts if work.claim.attempts < ATTEMPTS => {
                Some(Outcome::Retry(backoff(work.claim.attempts)))
            }
            Again::WhileTimeLasts => Some(Outcome::Wait(LOOK_AGAIN)),
            Again::ForSomeAttempts | Again::Never => None,
        };
        Ok(match again {
            Some(again) if !too_late || work.claim.delivery_begun => again,
            _ if work.claim.delivery_begun => Outcome::Delivered(Delivery::Unknown),
            _ => Outcome::Failed { reason, why: None },
        })
    }

    /// The outcome, unless attempts or time are used up.
    async fn unless_too_late(
        &self,
        work: &Work<'_>,
        outcome: Outcome,
    ) -> Result<Outcome, StoreError> {
        let now = self.deps.db.now().await?;
        let too_late = age(now, Some(work.turn.created_at)) >= limits::PROVISION_TIMEOUT;
        Ok(
            if (too_late || work.claim.attempts > ATTEMPTS) && !work.claim.delivery_begun {
                Outcome::Failed {
                    reason: FailureReason::ProvisioningFailed,
                    why: None,
                }
            } else {
                outcome
            },
        )
    }
}
