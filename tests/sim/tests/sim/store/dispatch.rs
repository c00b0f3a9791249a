//! The dispatcher's steps, and the Completer's on sandbox rows.

use std::time::Duration;

use bex_proto::launch::pod_of;
use bex_proto::session::{DeliveryMode, Phase, Verdict};
use bex_proto::{Generation, SessionId};
use bex_store::dispatch::{
    BeginDelivery, BeginGeneration, Delivery, DispatchClaim, NewSandbox, Step,
};
use bex_store::leases::Lease;
use bex_store::sandboxes::{SandboxRow, SandboxState};

use super::{Life, Model, Session, later, leased};

impl Model {
    pub fn claim_dispatches(&self) -> Vec<DispatchClaim> {
        self.claim_dispatches_of(|_| true)
    }

    /// The dispatch of one session, as a dispatcher of its own would claim it.
    pub fn claim_dispatch(&self, id: &SessionId) -> Option<DispatchClaim> {
        self.claim_dispatches_of(|session| session == id).pop()
    }

    fn claim_dispatches_of(&self, of: impl Fn(&SessionId) -> bool) -> Vec<DispatchClaim> {
        let now = self.now();
        let mut claims = Vec::new();
        for (id, session) in self.sessions().iter_mut() {
            if !of(id) {
                continue;
            }
            let Some(dispatch) = session
                .dispatch
                .as_mut()
                .filter(|d| d.until.is_none_or(|until| until < now))
            else {
                continue;
            };
            dispatch.fence += 1;
            dispatch.attempts += 1;
            dispatch.until = Some(leased(now));
            let turn = &session.turns[&dispatch.turn].row;
            claims.push(DispatchClaim {
                session: session.row.id.clone(),
                turn: dispatch.turn,
                fence: dispatch.fence,
                attempts: dispatch.attempts,
                generation: turn.generation,
                delivery_begun: turn.delivery_started_at.is_some(),
            });
        }
        claims
    }

    pub fn begin_generation(&self, claim: &DispatchClaim, new: &NewSandbox<'_>) -> BeginGeneration {
        let now = self.now();
        self.claimed(claim, |session| {
            if !session.is_deliverable(claim) {
                return BeginGeneration::Moved;
            }
            let turn = &mut session.turns.get_mut(&claim.turn).expect("claimed").row;
            if turn.delivery_started_at.is_some() {
                return BeginGeneration::DeliveryBegun;
            }
            session.generation += 1;
            let generation = Generation(session.generation);
            turn.generation = generation;
            session.stop_sandboxes();
            let row = SandboxRow {
                session: claim.session.clone(),
                generation,
                turn: claim.turn,
                namespace: new.namespace.to_owned(),
                pod: pod_of(&claim.session, generation),
                pod_uid: None,
                container: new.container.to_owned(),
                legacy: new.legacy,
                driver_kid: new.driver_kid.to_owned(),
                state: SandboxState::Creating,
                created_at: now,
                ready_at: None,
                idle_since: None,
                teardown_attempts: 0,
                teardown_after: None,
            };
            let life = Life {
                row,
                first_turn: claim.turn,
                gone: None,
            };
            session.sandboxes.insert(generation, life);
            BeginGeneration::Begun { generation }
        })
        .unwrap_or(BeginGeneration::Stale)
    }

    pub fn sandbox_ready(&self, claim: &DispatchClaim, life: Generation, pod_uid: &str) -> Step {
        let now = self.now();
        self.claimed(claim, |session| {
            let ours = session.turns[&claim.turn].row.generation == life;
            if !session.is_deliverable(claim) || !ours {
                return Step::Moved;
            }
            let Some(life) = session.sandboxes.get_mut(&life) else {
                return Step::Moved;
            };
            let row = &mut life.row;
            let again = row.state == SandboxState::Turn && row.pod_uid.as_deref() == Some(pod_uid);
            if row.state != SandboxState::Creating && !again {
                return Step::Moved;
            }
            row.state = SandboxState::Turn;
            row.pod_uid = Some(pod_uid.to_owned());
            row.ready_at = row.ready_at.or(Some(now));
            Step::Done
        })
        .unwrap_or(Step::Stale)
    }

    pub fn begin_delivery(&self, claim: &DispatchClaim, life: Generation) -> BeginDelivery {
        let now = self.now();
        self.claimed(claim, |session| {
            let deliverable = session.is_deliverable(claim);
            let turn = &mut session.turns.get_mut(&claim.turn).expect("claimed").row;
            if !deliverable || turn.generation != life {
                return BeginDelivery::Moved;
            }
            if turn.delivery_started_at.is_some() {
                return BeginDelivery::Again;
            }
            turn.delivery_started_at = Some(now);
            BeginDelivery::Begun
        })
        .unwrap_or(BeginDelivery::Stale)
    }

    pub fn delivered(&self, claim: &DispatchClaim, delivery: Delivery) -> Step {
        let now = self.now();
        self.claimed(claim, |session| {
            let turn = &mut session.turns.get_mut(&claim.turn).expect("claimed").row;
            if turn.verdict != Verdict::Open || turn.delivery_started_at.is_none() {
                return Step::Moved;
            }
            if delivery == Delivery::Accepted {
                turn.delivered_at = turn.delivered_at.or(Some(now));
                turn.started_at = turn.started_at.or(Some(now));
            } else {
                turn.delivered_at = None;
            }
            let first = session
                .sandboxes
                .get(&turn.generation)
                .is_some_and(|life| life.first_turn == claim.turn);
            turn.delivery_mode = if first {
                DeliveryMode::Fresh
            } else {
                DeliveryMode::Live
            };
            if matches!(session.row.phase, Phase::Creating | Phase::Redispatching) {
                session.row.phase = Phase::Running;
            }
            session.dispatch = None;
            session.wake(now);
            Step::Done
        })
        .unwrap_or(Step::Stale)
    }

    /// Does something with a session while the claim holds.
    fn claimed<T>(&self, claim: &DispatchClaim, with: impl FnOnce(&mut Session) -> T) -> Option<T> {
        self.with(&claim.session, |session| {
            let held = session
                .dispatch
                .as_ref()
                .is_some_and(|d| (d.turn, d.fence) == (claim.turn, claim.fence));
            held.then(|| with(session))
        })
        .flatten()
    }

    pub fn begin_stopping(&self, lease: &Lease, life: Generation) -> bool {
        self.leased_life(lease, life, |life| {
            let state = life.row.state;
            let may = matches!(state, SandboxState::Idle | SandboxState::Stopping);
            if may {
                life.row.state = SandboxState::Stopping;
            }
            may
        })
    }

    pub fn lose_idle(&self, session: &SessionId, life: Generation) -> bool {
        let now = self.now();
        self.with(session, |session| {
            let life = session.sandboxes.get_mut(&life);
            let Some(life) = life.filter(|life| life.row.state == SandboxState::Idle) else {
                return false;
            };
            life.row.state = SandboxState::Stopping;
            session.wake(now);
            true
        })
        .unwrap_or(false)
    }

    pub fn mark_gone(&self, lease: &Lease, life: Generation) -> bool {
        self.leased_life(lease, life, |life| {
            let may = life.row.state != SandboxState::Gone;
            life.is_gone();
            may
        })
    }

    pub fn retry_teardown(&self, lease: &Lease, life: Generation, delay: Duration) -> bool {
        let after = Some(later(self.now(), delay));
        self.leased_life(lease, life, |life| {
            life.row.teardown_attempts += 1;
            life.row.teardown_after = after;
            true
        })
    }

    fn leased_life(
        &self,
        lease: &Lease,
        life: Generation,
        with: impl FnOnce(&mut Life) -> bool,
    ) -> bool {
        self.with(&lease.session, |session| {
            session.holds(lease) && session.sandboxes.get_mut(&life).is_some_and(with)
        })
        .unwrap_or(false)
    }
}

impl Session {
    fn is_deliverable(&self, claim: &DispatchClaim) -> bool {
        let live = matches!(
            self.row.phase,
            Phase::Creating | Phase::Redispatching | Phase::Running
        );
        live && self.turns[&claim.turn].row.verdict == Verdict::Open
    }
}
