//! Claims on sessions.

use std::time::Duration;

use bex_proto::SessionId;
use bex_proto::session::{Phase, Verdict};
use bex_store::leases::{Lease, Round};
use bex_store::sandboxes::SandboxState;
use jiff::Timestamp;

use super::{Model, Session, later, leased};

impl Model {
    pub fn claim_leases(&self, limit: u32, idle_grace: Duration) -> Vec<Lease> {
        let now = self.now();
        let mut sessions = self.sessions();
        let mut due: Vec<_> = sessions
            .values_mut()
            .filter(|s| s.has_work(now, idle_grace))
            .filter(|s| s.lease.next_due_at.is_none_or(|at| at <= now))
            .filter(|s| s.lease.until.is_none_or(|until| until < now))
            .collect();
        due.sort_by_key(|s| s.lease.next_due_at);
        due.into_iter()
            .take(limit as usize)
            .map(|session| {
                let lease = &mut session.lease;
                lease.fence += 1;
                lease.woken = false;
                if lease.until.replace(leased(now)).is_some() {
                    // what a claim that ran out saw nobody knows
                    lease.unclear_since = None;
                }
                Lease {
                    session: session.row.id.clone(),
                    fence: lease.fence,
                    failures: lease.failures,
                    unclear_since: lease.unclear_since,
                    unseen: lease.unseen,
                }
            })
            .collect()
    }

    pub fn renew_lease(&self, lease: &Lease) -> bool {
        let until = Some(leased(self.now()));
        self.with(&lease.session, |session| {
            let held = session.lease.fence == lease.fence;
            if held {
                session.lease.until = until;
            }
            held
        })
        .unwrap_or(false)
    }

    pub fn release_lease(&self, lease: &Lease, next_due: Duration, round: Round) -> bool {
        let now = self.now();
        self.with(&lease.session, |session| {
            let row = &mut session.lease;
            if row.fence != lease.fence {
                return false;
            }
            row.until = None;
            row.failures = if round == Round::Failed {
                row.failures + 1
            } else {
                0
            };
            row.unclear_since = match round {
                Round::Done | Round::Failed => None,
                Round::Unclear => row.unclear_since.or(Some(now)),
                Round::Unseen => row.unclear_since,
            };
            row.unseen = round == Round::Unseen;
            row.next_due_at = Some(if row.woken { now } else { later(now, next_due) });
            row.woken = false;
            true
        })
        .unwrap_or(false)
    }

    pub fn make_due(&self, session: &SessionId) {
        let now = self.now();
        self.with(session, |session| session.wake(now));
    }

    /// As if [`bex_proto::limits::LEASE`] had passed since everybody died.
    pub fn expire(&self) {
        let now = self.now();
        for session in self.sessions().values_mut() {
            if session.lease.until.is_some() {
                session.lease.until = Some(now - Duration::from_secs(1));
                session.lease.next_due_at = Some(now);
            }
            if let Some(dispatch) = session.dispatch.as_mut().filter(|d| d.until.is_some()) {
                dispatch.until = Some(now - Duration::from_secs(1));
            }
        }
    }
}

impl Session {
    pub(super) fn wake(&mut self, now: Timestamp) {
        self.lease.next_due_at = Some(now);
        self.lease.woken |= self.lease.until.is_some();
    }

    /// Whether the claim is still this session's newest.
    pub(super) fn holds(&self, lease: &Lease) -> bool {
        self.lease.fence == lease.fence
    }

    fn has_work(&self, now: Timestamp, idle_grace: Duration) -> bool {
        let turn = self.turns.values().any(|turn| {
            turn.rejudge
                || turn.row.verdict == Verdict::Open && turn.row.delivery_started_at.is_some()
        });
        let sandbox = self.sandboxes.values().any(|life| match life.row.state {
            SandboxState::Stopping => life.row.teardown_after.is_none_or(|after| after <= now),
            SandboxState::Idle => {
                life.row.legacy
                    || self.row.phase == Phase::Canceled
                    || self.row.archived_at.is_some()
                    || life
                        .row
                        .idle_since
                        .is_some_and(|since| later(since, idle_grace) <= now)
            }
            SandboxState::Creating | SandboxState::Turn | SandboxState::Gone => false,
        });
        turn || sandbox || self.row.phase == Phase::Canceling
    }
}
