//! What must hold: all the time, at each removal, and at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bex_api::sandbox::SandboxName;
use bex_proto::session::{Phase, TruncationReason as R, Verdict};
use bex_proto::{SessionId, TurnNo};
use bex_store::sandboxes::SandboxState;
use tokio::time::Instant;

use crate::plan::SessionPlan;
use crate::scenario::{Run, TIMINGS};
use crate::store::{Session, Written};

/// A tick, a poll and a slow answer.
const SLACK: Duration = Duration::from_secs(25);
/// A sandbox that is removed while it is being made may be there afterwards: an orphan, and the sweep's.
const BEING_MADE: Duration = Duration::from_secs(5);
/// How a part begins that stands in for one that could not be stored.
const STAND_IN: &[u8] = br#"{"type":"data-bex-unstorable""#;

/// No sandbox is removed before the turn it spoke has its verdict.
pub fn before_removal(run: &Run, sandbox: &SandboxName) {
    let there = run
        .world
        .with_pod(&sandbox.session, sandbox.generation, |pod| pod.alive);
    if there != Some(true) {
        return;
    }
    let needed = run.model.with(&sandbox.session, |session| {
        session.turns.values().any(|turn| {
            turn.row.generation == sandbox.generation
                && turn.row.delivery_started_at.is_some()
                && turn.row.verdict == Verdict::Open
        })
    });
    run.trace.note(format_args!(
        "{} {} is removed",
        sandbox.session, sandbox.generation
    ));
    if needed == Some(true) {
        run.trace.violation(format!(
            "{} {} is removed before its turn has a verdict",
            sandbox.session, sandbox.generation
        ));
    }
}

/// What an auditor remembers.
#[derive(Debug, Default)]
pub struct Audit {
    complete: BTreeSet<(SessionId, TurnNo)>,
    parts: BTreeMap<SessionId, usize>,
}

impl Audit {
    /// One look at everything.
    pub fn look(&mut self, run: &Run) {
        for id in run.model.ids() {
            run.model.with(&id, |session| self.audit(run, &id, session));
        }
    }

    fn audit(&mut self, run: &Run, id: &SessionId, session: &Session) {
        let wrong = |what: &str| run.trace.violation(format!("{id} {what}"));
        for (no, turn) in &session.turns {
            let key = (id.clone(), *no);
            if turn.row.verdict == Verdict::Complete {
                self.complete.insert(key);
            } else if self.complete.contains(&key) {
                wrong("a complete turn is not complete any more");
            }
        }
        let open = session
            .turns
            .values()
            .any(|turn| turn.row.verdict == Verdict::Open);
        if session.row.phase.is_terminal() == open {
            wrong("phase and open turn contradict each other");
        }
        let seen = self.parts.insert(id.clone(), session.parts.len());
        if seen.is_some_and(|seen| seen > session.parts.len()) {
            wrong("stored parts are not stored any more");
        }
        for life in session.sandboxes.values() {
            let lives = run
                .world
                .with_pod(id, life.row.generation, |pod| {
                    let made = pod.made + BEING_MADE;
                    pod.alive && life.gone.is_some_and(|gone| made <= gone)
                })
                .unwrap_or(false);
            if lives {
                wrong("a living sandbox is marked gone");
            }
        }
    }
}

/// Whether nothing is left to be done.
pub fn is_over(run: &Run) -> bool {
    let settled = run.model.ids().iter().all(|id| {
        run.model
            .with(id, |session| {
                session.row.phase.is_terminal()
                    && session.turns.values().all(|turn| !turn.rejudge)
                    && session
                        .sandboxes
                        .values()
                        .all(|life| life.row.state == SandboxState::Gone)
            })
            .unwrap_or(false)
    });
    settled && run.world.pods().iter().all(|(_, _, alive)| !alive)
}

/// The run is over: everything is as it should be.
pub fn ends(run: &Run) {
    for plan in &run.plan.sessions {
        run.model.with(&plan.id, |session| {
            for what in session_faults(session) {
                run.trace.violation(format!("{} {what}", plan.id));
            }
            for no in session.turns.keys() {
                for what in turn_faults(run, plan, session, *no) {
                    run.trace.violation(format!("{} {no} {what}", plan.id));
                }
            }
        });
    }
    for (id, life, alive) in run.world.pods() {
        if alive {
            run.trace.violation(format!("{id} {life} is left"));
        }
        let (removals, died) = run
            .world
            .with_pod(&id, life, |pod| (pod.removals, pod.died.is_some()))
            .expect("it was listed");
        if removals + u32::from(died) != 1 {
            run.trace
                .violation(format!("{id} {life} was removed {removals} times"));
        }
    }
}

fn session_faults(session: &Session) -> Vec<String> {
    let mut faults = Vec::new();
    let head = &session.row.transcript;
    let mut seqs: Vec<_> = session.parts.values().map(|part| part.seq).collect();
    seqs.sort_unstable();
    if !seqs.iter().copied().eq(0..head.next_seq.0) {
        faults.push("seq has gaps".into());
    }
    let bytes: u64 = session
        .parts
        .values()
        .map(|part| part.bytes.len() as u64 + 64)
        .sum();
    if (head.charged_bytes, head.parts) != (bytes, session.parts.len() as u64) {
        faults.push("the head does not count what is stored".into());
    }
    if head.parts > session.part_limit {
        faults.push("more is stored than may be".into());
    }
    if session.row.phase == Phase::Canceled && session.row.cancel_requested_at.is_none() {
        faults.push("nobody canceled it".into());
    }
    if session.ends as usize != session.turns.len() {
        faults.push("not one terminal record a turn".into());
    }
    faults
}

fn turn_faults(run: &Run, plan: &SessionPlan, session: &Session, no: TurnNo) -> Vec<String> {
    let mut faults = Vec::new();
    let row = &session.turns[&no].row;
    let written: Vec<&Written> = session.verdicts.iter().filter(|w| w.turn == no).collect();
    let [written] = written[..] else {
        return vec![format!("has {} verdicts", written.len())];
    };
    let stored: Vec<_> = session.parts.range((no, 0)..=(no, u32::MAX)).collect();
    let truth = run.world.with_speech(&plan.id, no, |speech| {
        let wrong = stored.iter().any(|((_, index), part)| {
            speech.parts.get(*index as usize).is_none_or(|(spoken, _)| {
                // half a line and the next one are no part, but still name one
                let stands_in = speech.tampered && part.bytes.starts_with(STAND_IN);
                *spoken != part.bytes && !stands_in && !speech.altered
            })
        });
        let spoken = speech.parts.iter().map(|(text, _)| text);
        let whole = stored.iter().map(|(_, part)| &part.bytes).eq(spoken);
        (wrong, whole, speech.parts.len(), speech.ended.is_some())
    });
    let (wrong, whole, spoken, ended) = truth.unwrap_or((!stored.is_empty(), true, 0, false));
    if wrong {
        faults.push("holds what was not spoken".into());
    }
    match row.verdict {
        Verdict::Open => faults.push("is open".into()),
        Verdict::Complete if !ended || !whole => {
            faults.push(format!("is complete with {} of {spoken}", stored.len()));
        }
        Verdict::Complete => {}
        Verdict::Truncated => {
            let reason = row.reason.expect("a truncated turn has one");
            if row.expected_parts == Some(stored.len() as u32)
                && whole
                && !matches!(reason, R::PartUnstorable | R::DigestMismatch)
            {
                faults.push(format!("holds all of it and is truncated {reason:?}"));
            }
            if !is_true(run, plan, session, no, written) {
                faults.push(format!("is truncated {reason:?}, and why?"));
            }
        }
    }
    faults
}

/// Whether there was a reason for the verdict's reason.
fn is_true(
    run: &Run,
    plan: &SessionPlan,
    session: &Session,
    no: TurnNo,
    written: &Written,
) -> bool {
    let row = &session.turns[&no].row;
    let turn = &plan.turns[no.0 as usize - 1];
    let reason = written.reason.expect("a truncated turn has one");
    let canceled = session.row.phase == Phase::Canceled && no == session.row.turns;
    let (tampered, dropped, last) = run
        .world
        .with_speech(&plan.id, no, |speech| {
            let last = speech.parts.last().map(|(_, at)| *at);
            (speech.tampered, speech.dropped_from.is_some(), last)
        })
        .unwrap_or((false, false, None));
    let (died, hung, clear) = run
        .world
        .with_pod(&plan.id, row.generation, |pod| {
            (
                pod.died.is_some_and(|at| at <= written.at),
                pod.hung,
                Some(pod.last_clear),
            )
        })
        .unwrap_or((false, false, None));
    let (steps, most) = run.plan.weather.steps;
    let stepped = Duration::from_millis(u64::from(steps) * most);
    let for_long = |since: Option<Instant>, window: Duration| {
        let window = window.saturating_sub(stepped).saturating_sub(SLACK);
        since.is_none_or(|since| written.at.saturating_duration_since(since) >= window)
    };
    // nothing readable for as long as a window lasts
    let unreadable = for_long(clear, TIMINGS.status_unreadable);
    match reason {
        R::SandboxLost => died || canceled || hung || unreadable || tampered,
        R::LogUnreadable => tampered || hung || unreadable || died,
        R::LogTruncated => dropped,
        R::PartUnstorable => tampered,
        R::SessionQuota => plan.part_limit.is_some(),
        R::StoreFailed => plan.poisoned,
        // of a log that was cut nothing tells how much is new, and one that is full tells nothing more
        R::TurnDeadline => {
            turn.end.is_none() || tampered || dropped || for_long(last, TIMINGS.turn_deadline)
        }
        // a part that a tee stored and a spoiled log tells otherwise
        R::DigestMismatch => tampered,
        R::ProvisioningFailed | R::LegacyUnproved | R::LegalDelete => false,
    }
}

/// What came of the turns, in words.
pub fn kinds(run: &Run) -> Vec<String> {
    let mut kinds = Vec::new();
    for plan in &run.plan.sessions {
        run.model.with(&plan.id, |session| {
            for turn in session.turns.values() {
                let reason = turn.row.reason.map_or("", |reason| reason.as_str());
                let healed = if turn.row.healed_at.is_some() {
                    " healed"
                } else {
                    ""
                };
                kinds.push(format!("{} {reason}{healed}", turn.row.verdict));
            }
        });
    }
    kinds
}
