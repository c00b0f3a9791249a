//! Verdict, phase and sandbox in one move.

use bex_proto::driver::TurnState;
use bex_proto::session::{FailureReason, Phase, Verdict};
use bex_proto::{SessionId, TurnNo};
use bex_store::leases::Lease;
use bex_store::sandboxes::SandboxState;
use bex_store::settle::{Cause, Declared, Facts, Rejudged, SandboxAfter, Settle, Settled, judge};
use bex_store::turns::TurnRow;
use tokio::time::Instant;

use super::{Model, Session, Written};

impl Model {
    pub fn settle(&self, lease: &Lease, settle: &Settle) -> Settled {
        let now = self.now();
        let mut sessions = self.sessions();
        let Some(session) = sessions.get_mut(&lease.session) else {
            return Settled::Stale;
        };
        if !session.holds(lease) {
            return Settled::Stale;
        }
        let stored = session.stored(settle.turn);
        let (phase, quota_mark) = (session.row.phase, session.row.transcript.quota_mark);
        let Some(turn) = session.turns.get_mut(&settle.turn) else {
            return Settled::NotFound;
        };
        if turn.row.verdict != Verdict::Open {
            return Settled::Already(turn.row.verdict);
        }
        if turn.row.generation != settle.generation {
            return Settled::WrongGeneration;
        }
        let declared = declared(&turn.row);
        let state = declared
            .as_ref()
            .map(|declared| declared.state)
            .or(settle.legacy.map(|legacy| legacy.state));
        let (verdict, reason, ended_by) = judge(&Facts {
            turn: settle.turn,
            stored,
            declared,
            quota_mark,
            unstorable: turn.row.unstorable,
            mismatch: turn.row.mismatch.is_some(),
            cause: if phase == Phase::Canceling {
                Cause::Canceled
            } else {
                settle.cause
            },
            stop_requested: turn.row.stop_requested_at.is_some(),
            legacy: settle.legacy,
        });
        turn.row.verdict = verdict;
        turn.row.reason = reason;
        turn.row.ended_by = Some(ended_by);
        turn.row.settled_at = Some(now);
        turn.rejudge = false;
        let next = match (phase, state) {
            (Phase::Canceling, _) => Phase::Canceled,
            (_, Some(TurnState::Succeeded | TurnState::Stopped)) => Phase::Completed,
            (_, Some(TurnState::Failed) | None) => Phase::Failed,
        };
        session.verdicts.push(Written {
            turn: settle.turn,
            reason,
            at: Instant::now(),
        });
        session.ends += 1;
        session.row.phase = next;
        session.row.failure_reason = settle
            .failure
            .filter(|_| next == Phase::Failed)
            .map(|failure: FailureReason| failure.as_str().to_owned());
        session.row.canceled_at = (next == Phase::Canceled).then_some(now);
        session.sandbox_after(settle, now);
        if next == Phase::Canceled {
            session.stop_sandboxes();
        }
        if session
            .dispatch
            .as_ref()
            .is_some_and(|d| d.turn == settle.turn)
        {
            session.dispatch = None;
        }
        Settled::Now {
            verdict,
            reason,
            phase: next,
        }
    }

    pub fn rejudge(&self, lease: &Lease, turn: TurnNo) -> Rejudged {
        let now = self.now();
        let mut sessions = self.sessions();
        let Some(session) = sessions.get_mut(&lease.session) else {
            return Rejudged::Stale;
        };
        if !session.holds(lease) {
            return Rejudged::Stale;
        }
        let stored = session.stored(turn);
        let quota_mark = session.row.transcript.quota_mark;
        let Some(row) = session.turns.get_mut(&turn) else {
            return Rejudged::Unchanged;
        };
        row.rejudge = false;
        let declared = declared(&row.row);
        let may_heal = row.row.verdict == Verdict::Truncated
            && row
                .row
                .reason
                .is_some_and(|reason| reason.may_heal(declared.is_some()));
        let facts = Facts {
            turn,
            stored,
            declared,
            quota_mark,
            unstorable: row.row.unstorable,
            mismatch: row.row.mismatch.is_some(),
            cause: Cause::DriverEnded,
            stop_requested: row.row.stop_requested_at.is_some(),
            legacy: None,
        };
        if !may_heal || judge(&facts).0 != Verdict::Complete {
            return Rejudged::Unchanged;
        }
        row.row.verdict = Verdict::Complete;
        row.row.reason = None;
        row.row.healed_at = Some(now);
        Rejudged::Healed
    }

    pub fn turns_to_rejudge(&self, session: &SessionId) -> Vec<TurnNo> {
        self.with(session, |session| {
            let waiting = session.turns.iter().filter(|(_, turn)| turn.rejudge);
            waiting.map(|(turn, _)| *turn).collect()
        })
        .unwrap_or_default()
    }
}

fn declared(row: &TurnRow) -> Option<Declared> {
    Some(Declared {
        parts: row.expected_parts?,
        sha256: row.expected_sha256.clone()?,
        state: row.driver_state?,
        dropped: row.dropped,
    })
}

impl Session {
    fn sandbox_after(&mut self, settle: &Settle, now: jiff::Timestamp) {
        let Some(life) = self.sandboxes.get_mut(&settle.generation) else {
            return;
        };
        use SandboxState as S;
        match (settle.sandbox, life.row.state) {
            (SandboxAfter::Idle, S::Turn) => {
                life.row.state = S::Idle;
                life.row.idle_since = Some(now);
            }
            (SandboxAfter::Stopping, S::Creating | S::Turn | S::Idle) => {
                life.row.state = S::Stopping;
            }
            (SandboxAfter::Idle | SandboxAfter::Stopping, _) => {}
        }
    }

    pub(super) fn stop_sandboxes(&mut self) {
        for life in self.sandboxes.values_mut() {
            if !matches!(life.row.state, SandboxState::Stopping | SandboxState::Gone) {
                life.row.state = SandboxState::Stopping;
            }
        }
    }
}
