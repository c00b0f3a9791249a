//! Handing a turn to a driver that is ready.

use std::time::Duration;

use bex_proto::priming::{DEFAULT_BUDGET, Payloads};
use bex_proto::{TurnNo, limits};
use bex_store::StoreError;
use bex_store::dispatch::{BeginDelivery, Delivery, DispatchClaim};
use bex_store::sandboxes::SandboxRow;

use super::make::Work;
use super::{Dispatcher, Outcome};
use crate::clock::age;
use crate::exec_client::{ExecFailure, ExecTarget};
use crate::priming::priming_before;

/// A driver that did not answer is asked again after this; it takes a turn once, however often it is asked.
const DELIVER_AGAIN: Duration = Duration::from_secs(1);

impl Dispatcher {
    pub(super) async fn deliver(
        &self,
        work: &Work<'_>,
        sandbox: &SandboxRow,
    ) -> Result<Outcome, StoreError> {
        let claim = work.claim;
        let Some(target) = ExecTarget::of(work.session, sandbox) else {
            return Ok(Outcome::Left);
        };
        match self
            .deps
            .db
            .begin_delivery(claim, sandbox.generation)
            .await?
        {
            BeginDelivery::Begun | BeginDelivery::Again => {}
            BeginDelivery::Moved | BeginDelivery::Stale => return Ok(Outcome::Left),
        }
        if sandbox.legacy {
            // its prompt was given at its creation
            return Ok(Outcome::Delivered(Delivery::Accepted));
        }
        let priming = self.priming(claim).await?;
        let failure = match self
            .deps
            .rpc
            .deliver_turn(&target, claim.turn, priming)
            .await
        {
            Ok(()) => return Ok(Outcome::Delivered(Delivery::Accepted)),
            Err(failure) => failure,
        };
        tracing::info!(session = %claim.session, turn = %claim.turn, generation = %sandbox.generation, %failure, "the driver did not take the turn");
        if failure == ExecFailure::Terminated {
            return Ok(Outcome::Delivered(Delivery::Unknown));
        }
        // nobody else may speak it now: asked again, for as long as a sandbox may be unreadable or a gateway away
        let patience = match failure {
            ExecFailure::Unreachable | ExecFailure::Refused(_) => limits::PROVISION_TIMEOUT,
            _ => self.deps.timings.status_unreadable,
        };
        let now = self.deps.db.now().await?;
        Ok(if age(now, work.turn.delivery_started_at) < patience {
            Outcome::Wait(DELIVER_AGAIN)
        } else {
            Outcome::Delivered(Delivery::Unknown)
        })
    }

    /// What was said before, for an agent that does not remember it. The driver knows whether its does: every later turn brings it.
    async fn priming(&self, claim: &DispatchClaim) -> Result<Option<String>, StoreError> {
        if claim.turn == TurnNo::FIRST {
            return Ok(None);
        }
        let mut priming = priming_before(
            &self.deps.db,
            &claim.session,
            claim.turn,
            DEFAULT_BUDGET,
            Payloads::Left,
        )
        .await?;
        priming.agent_session_id = self.deps.db.agent_session(&claim.session).await?;
        let json = serde_json::to_string(&priming).expect("a priming is plain data");
        Ok(Some(json))
    }
}
