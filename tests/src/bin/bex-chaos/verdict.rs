//! Whether a session came to a true end: everything that was spoken is stored, or it is said truly why not.
//!
//! Pure: what is known of a session goes in, what is wrong comes out. The reasons that count as true are those of the
//! simulation: a sandbox may be lost only if it was killed or canceled, a log truncated only if its disk was full, and what
//! happened to gateways, apis, the store and the network between them is never a reason.

mod text;
mod views;

use std::collections::BTreeMap;

use bex_proto::driver::TurnDigest;
use bex_proto::session::{EndedBy, Phase, TruncationReason as Reason, Verdict};
use bex_proto::{Generation, SessionId};
use bex_tests::tally::Parts;
use bytes::Bytes;

use crate::faults::Hit;
use crate::plan::Midway;
use crate::schedule::Kind;
use crate::viewers::View;
use crate::witness::Spoken;

/// A signed statement about a turn, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    pub verdict: Verdict,
    pub parts: u32,
}

/// One turn.
#[derive(Debug, Clone)]
pub struct TurnCase {
    pub turn: u32,
    pub generation: Generation,
    pub verdict: Verdict,
    pub reason: Option<Reason>,
    pub ended_by: Option<EndedBy>,
    /// The store knows what the driver declared at its end.
    pub declared: bool,
    /// A cancel waited for that in vain: for as long as a stop may take, at least.
    pub waited: bool,
    /// How often an api wrote that it settled it.
    pub settles: u32,
    pub statements: Vec<Statement>,
    /// By every sandbox life that has a log of it.
    pub spoken: Vec<Spoken>,
    /// The agent's own record.
    pub said: String,
    /// Lines it was asked for.
    pub lines: u32,
    pub midway: Midway,
}

/// One sandbox life.
#[derive(Debug, Clone)]
pub struct Life {
    pub generation: Generation,
    pub state: String,
    /// How often an api wrote that it removed it.
    pub removals: u32,
}

/// Everything that is known of a session at the end.
#[derive(Debug, Clone)]
pub struct Case {
    pub session: SessionId,
    pub phase: Phase,
    /// Somebody asked for it.
    pub canceled: bool,
    /// Turns that were begun.
    pub begun: u32,
    pub turns: Vec<TurnCase>,
    pub stored: Parts,
    pub lives: Vec<Life>,
    pub hits: Vec<Hit>,
    /// Processes and directories that still belong to it.
    pub left: Vec<String>,
    /// Of viewers that were there.
    pub views: Vec<View>,
    /// Of one that came at the end.
    pub replay: View,
    /// What its users met that they should not have.
    pub trouble: Vec<String>,
}

/// What is wrong; nothing when all is well.
pub fn faults(case: &Case) -> Vec<String> {
    let mut faults = case.trouble.clone();
    session(case, &mut faults);
    for turn in &case.turns {
        let mut found = Vec::new();
        of_turn(case, turn, &mut found);
        faults.extend(
            found
                .into_iter()
                .map(|what| format!("turn {} {what}", turn.turn)),
        );
    }
    for (n, view) in (1..).zip(&case.views) {
        let mut found = Vec::new();
        views::live(case, view, &mut found);
        faults.extend(found.into_iter().map(|what| format!("viewer {n} {what}")));
    }
    let mut found = Vec::new();
    views::replay(case, &mut found);
    faults.extend(found.into_iter().map(|what| format!("the replay {what}")));
    faults
}

fn session(case: &Case, faults: &mut Vec<String>) {
    if !case.phase.is_terminal() {
        faults.push(format!("it is {}", case.phase));
    }
    if case.phase == Phase::Canceled && !case.canceled {
        faults.push("it is canceled, and nobody asked for that".into());
    }
    if case.turns.len() != case.begun as usize {
        faults.push(format!(
            "{} turns were begun, there are {}",
            case.begun,
            case.turns.len()
        ));
    }
    for life in &case.lives {
        if life.state != "gone" {
            faults.push(format!("sandbox {} is {}", life.generation, life.state));
        }
        if life.removals > 1 {
            faults.push(format!(
                "sandbox {} was removed {} times",
                life.generation, life.removals
            ));
        }
    }
    faults.extend(case.left.iter().map(|left| format!("left: {left}")));
}

fn of_turn(case: &Case, turn: &TurnCase, faults: &mut Vec<String>) {
    if turn.verdict == Verdict::Open {
        faults.push("is open".into());
        return;
    }
    let stored = stored(case, turn.turn);
    terminal_records(turn, stored.len(), faults);
    let with_words = turn.spoken.iter().filter(|spoken| !spoken.parts.is_empty());
    if with_words.count() > 1 {
        faults.push("was spoken by more than one sandbox".into());
    }
    let spoken = turn
        .spoken
        .iter()
        .find(|spoken| spoken.generation == turn.generation);
    same_bytes(&stored, spoken, unlogged_from(case, turn), faults);
    text::check(case, turn, &stored, spoken, faults);
    let whole = is_whole(&stored, spoken);
    let hit = hit_by(case, turn);
    match (turn.verdict, turn.reason) {
        (Verdict::Complete, _) if !whole => {
            let spoken = spoken.map_or(0, |spoken| spoken.parts.len());
            faults.push(format!(
                "is complete with {} parts, {spoken} are logged",
                stored.len()
            ));
        }
        (Verdict::Complete, _) => {}
        (_, None) => faults.push("is truncated without a reason".into()),
        (_, Some(reason)) => {
            // an end that nobody could read proves nothing
            if whole && turn.declared {
                faults.push(format!("holds all of it and is truncated: {reason}"));
            }
            if !is_true(case, turn, spoken, reason, &hit) {
                faults.push(format!("is truncated: {reason}; nothing explains that"));
            }
        }
    }
    ended_by(case, turn, &hit, faults);
}

/// Exactly one, unless later ones say more.
fn terminal_records(turn: &TurnCase, stored: usize, faults: &mut Vec<String>) {
    if turn.settles > 1 {
        faults.push(format!("was settled {} times", turn.settles));
    }
    let Some(last) = turn.statements.last() else {
        faults.push("has no statement".into());
        return;
    };
    if last.verdict != turn.verdict || last.parts as usize != stored {
        faults.push(format!(
            "is stated as {last:?}, it is {} with {stored}",
            turn.verdict
        ));
    }
    for two in turn.statements.windows(2) {
        let grows = two[0].verdict != Verdict::Complete && two[1].parts >= two[0].parts;
        if !grows || two[0] == two[1] {
            faults.push(format!("has two terminal records: {two:?}"));
        }
    }
}

fn stored(case: &Case, turn: u32) -> BTreeMap<u32, &Bytes> {
    let of_turn = case.stored.iter().filter(|(id, _)| id.turn.0 == turn);
    of_turn.map(|(id, part)| (id.index.0, part)).collect()
}

/// From which part on the log need not have what was spoken: its disk was full. It says so itself, unless its driver was killed before
/// there was room to say it in.
fn unlogged_from(case: &Case, turn: &TurnCase) -> Option<u32> {
    let hit = hit_by(case, turn);
    let mut spoken = turn.spoken.iter();
    let spoken = spoken.find(|spoken| spoken.generation == turn.generation)?;
    let unsaid = hit.contains(&Kind::DiskFull) && killed(&hit);
    match (spoken.dropped, &spoken.end) {
        (Some(first), _) => Some(first),
        (None, None) if unsaid => u32::try_from(spoken.parts.len()).ok(),
        (None, _) => None,
    }
}

fn same_bytes(
    stored: &BTreeMap<u32, &Bytes>,
    spoken: Option<&Spoken>,
    unlogged: Option<u32>,
    faults: &mut Vec<String>,
) {
    for (index, part) in stored {
        let logged = spoken.and_then(|spoken| spoken.parts.get(*index as usize));
        match logged {
            Some(logged) if logged == *part => {}
            Some(_) => faults.push(format!("holds another part {index} than was spoken")),
            // what the disk did not take is proved by text and digest
            None if unlogged.is_some_and(|first| first <= *index) => {}
            None => faults.push(format!("holds part {index}, which nobody spoke")),
        }
    }
}

/// Whether all that was spoken is stored, by count and digest of the driver's last line.
fn is_whole(stored: &BTreeMap<u32, &Bytes>, spoken: Option<&Spoken>) -> bool {
    let Some(end) = spoken.and_then(|spoken| spoken.end.as_ref()) else {
        return false;
    };
    let mut digest = TurnDigest::default();
    stored.values().for_each(|part| digest.add(part));
    let contiguous = stored.keys().copied().eq(0..end.parts);
    contiguous && digest.hex() == end.sha256
}

/// What hit the sandbox that spoke a turn, while it spoke it or before.
fn hit_by(case: &Case, turn: &TurnCase) -> Vec<Kind> {
    let theirs = case
        .hits
        .iter()
        .filter(|hit| hit.generation == turn.generation && hit.turn.0 <= turn.turn);
    theirs.map(|hit| hit.kind).collect()
}

fn killed(hit: &[Kind]) -> bool {
    hit.iter()
        .any(|kind| matches!(kind, Kind::DriverKilled | Kind::SandboxKilled))
}

fn is_true(
    case: &Case,
    turn: &TurnCase,
    spoken: Option<&Spoken>,
    reason: Reason,
    hit: &[Kind],
) -> bool {
    let canceled = case.phase == Phase::Canceled && turn.turn == case.begun;
    match reason {
        Reason::SandboxLost => killed(hit) || (canceled && turn.waited),
        Reason::LogTruncated => {
            hit.contains(&Kind::DiskFull) && spoken.is_some_and(|spoken| spoken.dropped.is_some())
        }
        // the log's end was read, and the sandbox died before the rest of it was
        Reason::LogUnreadable => killed(hit),
        Reason::StoreFailed
        | Reason::TurnDeadline
        | Reason::DigestMismatch
        | Reason::PartUnstorable
        | Reason::SessionQuota
        | Reason::ProvisioningFailed
        | Reason::LegacyUnproved
        | Reason::LegalDelete => false,
    }
}

fn ended_by(case: &Case, turn: &TurnCase, hit: &[Kind], faults: &mut Vec<String>) {
    let stops = matches!(turn.midway, Midway::Stop(_) | Midway::StopSilent);
    let fine = match turn.ended_by {
        Some(EndedBy::Agent) => true,
        Some(EndedBy::Stopped) => stops || case.canceled,
        Some(EndedBy::Canceled) => case.canceled && turn.turn == case.begun,
        Some(EndedBy::Lost) => killed(hit),
        Some(EndedBy::Deadline) | None => false,
    };
    if !fine {
        faults.push(format!(
            "was ended by {:?}; nothing explains that",
            turn.ended_by
        ));
    }
}

#[cfg(test)]
mod tests;
