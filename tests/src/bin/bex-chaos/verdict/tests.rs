use super::*;
use crate::viewers::Gap;
use bex_proto::driver::{TurnEnd, TurnState};
use bex_proto::{PartId, TurnNo};

const LINES: u32 = 4;
const G1: Generation = Generation(1);

fn line(n: u32) -> String {
    format!("Line {n} of {LINES}: so.\n")
}

fn part(n: u32) -> Bytes {
    let text = serde_json::to_string(&line(n)).unwrap();
    format!(r#"{{"type":"text-delta","id":"t","delta":{text}}}"#).into()
}

fn end_of(parts: &[Bytes]) -> TurnEnd {
    let mut digest = TurnDigest::default();
    parts.iter().for_each(|part| digest.add(part));
    TurnEnd {
        turn: TurnNo(1),
        parts: parts.len() as u32,
        bytes: parts.iter().map(|part| part.len() as u64).sum(),
        sha256: digest.hex(),
        state: TurnState::Succeeded,
        dropped: None,
    }
}

/// A session of one turn that went well, with one viewer.
fn case() -> Case {
    let parts: Vec<Bytes> = (1..=LINES).map(part).collect();
    let stored: Parts = (0..LINES)
        .map(|n| (PartId::new(1, n), parts[n as usize].clone()))
        .collect();
    let view = View {
        parts: stored.clone(),
        ended: true,
        ..View::default()
    };
    Case {
        session: "ags-aaaaaaaaaaaaaaaaaaaa".parse().unwrap(),
        phase: Phase::Completed,
        canceled: false,
        begun: 1,
        turns: vec![TurnCase {
            turn: 1,
            generation: G1,
            verdict: Verdict::Complete,
            reason: None,
            ended_by: Some(EndedBy::Agent),
            declared: true,
            waited: false,
            settles: 1,
            statements: vec![Statement {
                verdict: Verdict::Complete,
                parts: LINES,
            }],
            spoken: vec![Spoken {
                generation: G1,
                end: Some(end_of(&parts)),
                parts,
                dropped: None,
            }],
            said: (1..=LINES).map(line).collect(),
            lines: LINES,
            midway: Midway::Nothing,
        }],
        stored,
        lives: vec![Life {
            generation: G1,
            state: "gone".into(),
            removals: 1,
        }],
        hits: Vec::new(),
        left: Vec::new(),
        views: vec![view.clone()],
        replay: view,
        trouble: Vec::new(),
    }
}

/// What is found when something is spoilt.
fn found(spoil: impl FnOnce(&mut Case)) -> String {
    let mut case = case();
    spoil(&mut case);
    faults(&case).join("; ")
}

fn hit(kind: Kind) -> Hit {
    Hit {
        session: case().session,
        generation: G1,
        turn: TurnNo(1),
        kind,
    }
}

/// The last part is nowhere but in the log, and the turn says so.
fn lose_the_last(case: &mut Case, reason: Reason) {
    case.stored.pop();
    case.replay.parts.pop();
    case.replay.incomplete.insert(1);
    let turn = &mut case.turns[0];
    (turn.verdict, turn.reason) = (Verdict::Truncated, Some(reason));
    turn.statements = vec![Statement {
        verdict: Verdict::Truncated,
        parts: LINES - 1,
    }];
}

#[test]
fn a_session_that_went_well_has_no_faults() {
    assert_eq!(found(|_| {}), "");
}

#[test]
fn a_lost_part_is_found() {
    let found = found(|case| {
        case.stored.pop();
        case.turns[0].statements[0].parts -= 1;
    });
    assert!(
        found.contains("is complete with 3 parts, 4 are logged"),
        "{found}"
    );
    assert!(found.contains("holds 3 of 4 lines"), "{found}");
}

#[test]
fn a_doubled_part_is_found() {
    let found = found(|case| {
        case.stored.push((PartId::new(1, LINES), part(LINES)));
    });
    assert!(
        found.contains("holds part 4, which nobody spoke"),
        "{found}"
    );
    assert!(found.contains("text that the agent did not say"), "{found}");
}

#[test]
fn a_changed_part_is_found() {
    let found = found(|case| case.stored[2].1 = part(9));
    assert!(
        found.contains("holds another part 2 than was spoken"),
        "{found}"
    );
}

#[test]
fn a_turn_that_two_sandboxes_spoke_is_found() {
    let found = found(|case| {
        let mut again = case.turns[0].spoken[0].clone();
        again.generation = Generation(2);
        case.turns[0].spoken.push(again);
        case.turns[0].said = case.turns[0].said.repeat(2);
    });
    assert!(found.contains("spoken by more than one sandbox"), "{found}");
    assert!(found.contains("not said once and in order"), "{found}");
}

#[test]
fn a_false_complete_is_found() {
    let found = found(|case| {
        case.hits.push(hit(Kind::DriverKilled));
        case.turns[0].spoken[0].end = None;
    });
    assert!(found.contains("is complete with 4 parts"), "{found}");
}

#[test]
fn a_process_that_is_left_is_found() {
    let found = found(|case| case.left.push("process 7: bex-driver serve".into()));
    assert_eq!(found, "left: process 7: bex-driver serve");
}

#[test]
fn two_terminal_records_are_found() {
    let stated = found(|case| {
        let again = case.turns[0].statements[0].clone();
        case.turns[0].statements.push(again);
    });
    assert!(stated.contains("has two terminal records"), "{stated}");
    assert!(found(|case| case.turns[0].settles = 2).contains("settled 2 times"));
    assert!(found(|case| case.turns[0].statements.clear()).contains("no statement"));
}

#[test]
fn two_teardowns_and_none_are_found() {
    assert!(found(|case| case.lives[0].removals = 2).contains("removed 2 times"));
    assert!(found(|case| case.lives[0].state = "stopping".into()).contains("is stopping"));
}

#[test]
fn a_reason_must_be_true() {
    let lost = |case: &mut Case| {
        lose_the_last(case, Reason::SandboxLost);
        case.turns[0].spoken[0].end = None;
        case.turns[0].ended_by = Some(EndedBy::Lost);
    };
    let untrue = found(lost);
    assert!(
        untrue.contains("truncated: sandbox_lost; nothing explains that"),
        "{untrue}"
    );
    let of_another_life = found(|case| {
        lost(case);
        case.hits.push(Hit {
            generation: Generation(2),
            ..hit(Kind::DriverKilled)
        });
    });
    assert!(
        of_another_life.contains("nothing explains that"),
        "{of_another_life}"
    );
    let told = found(|case| {
        lost(case);
        case.hits.push(hit(Kind::DriverKilled));
    });
    assert_eq!(
        told, "",
        "a driver was killed: that is true, and its viewer ran ahead of the store"
    );
}

#[test]
fn a_store_that_was_away_is_no_reason() {
    let found = found(|case| lose_the_last(case, Reason::StoreFailed));
    assert!(
        found.contains("truncated: store_failed; nothing explains that"),
        "{found}"
    );
}

#[test]
fn a_full_disk_is_a_reason_if_the_log_says_so() {
    let full = |case: &mut Case| {
        lose_the_last(case, Reason::LogTruncated);
        case.hits.push(hit(Kind::DiskFull));
        case.turns[0].spoken[0].parts.pop();
    };
    let true_to_it = found(|case| {
        full(case);
        case.turns[0].spoken[0].dropped = Some(LINES - 1);
    });
    assert_eq!(true_to_it, "");
    assert!(found(full).contains("nothing explains that"));
}

#[test]
fn a_driver_that_is_killed_on_a_full_disk_cannot_say_what_it_dropped() {
    let lost = |case: &mut Case| {
        let turn = &mut case.turns[0];
        (turn.verdict, turn.reason) = (Verdict::Truncated, Some(Reason::SandboxLost));
        (turn.ended_by, turn.declared) = (Some(EndedBy::Lost), false);
        turn.statements[0].verdict = Verdict::Truncated;
        turn.spoken[0].parts.truncate(2);
        turn.spoken[0].end = None;
        case.replay.incomplete.insert(1);
        case.hits.push(hit(Kind::DriverKilled));
    };
    assert!(found(lost).contains("holds part 2, which nobody spoke"));
    let true_to_it = found(|case| {
        lost(case);
        case.hits.push(hit(Kind::DiskFull));
    });
    assert_eq!(true_to_it, "");
}

#[test]
fn what_is_whole_is_not_truncated() {
    let found = found(|case| {
        case.hits.push(hit(Kind::DriverKilled));
        let turn = &mut case.turns[0];
        (turn.verdict, turn.reason) = (Verdict::Truncated, Some(Reason::SandboxLost));
        turn.statements[0].verdict = Verdict::Truncated;
        case.replay.incomplete.insert(1);
    });
    assert_eq!(
        found,
        "turn 1 holds all of it and is truncated: sandbox_lost"
    );
}

#[test]
fn a_cancel_is_a_reason_once_it_has_waited() {
    let cancel = |case: &mut Case| {
        lose_the_last(case, Reason::SandboxLost);
        (case.phase, case.canceled) = (Phase::Canceled, true);
        case.turns[0].declared = false;
        case.turns[0].ended_by = Some(EndedBy::Canceled);
    };
    assert!(found(cancel).contains("nothing explains that"));
    let waited = found(|case| {
        cancel(case);
        case.turns[0].waited = true;
    });
    assert_eq!(waited, "");
}

#[test]
fn what_a_viewer_missed_or_saw_twice_is_found() {
    assert!(
        found(|case| drop(case.views[0].parts.remove(1)))
            .contains("viewer 1 was not shown: 1 parts, 1.1")
    );
    let twice = found(|case| {
        let again = case.views[0].parts[1].clone();
        case.views[0].parts.insert(2, again);
    });
    assert!(
        twice.contains("viewer 1 was shown twice: 1 parts, 1.1"),
        "{twice}"
    );
    assert!(found(|case| case.views[0].parts.swap(0, 1)).contains("out of order"));
    assert!(found(|case| case.views[0].ended = false).contains("never told the end"));
    assert!(found(|case| drop(case.replay.parts.pop())).contains("the replay was not shown"));
    let told = found(|case| {
        case.views[0].parts.remove(1);
        case.views[0].gaps.push(Gap {
            turn: 1,
            from: 1,
            to: 1,
        });
    });
    assert_eq!(told, "", "it was told of the gap");
}

#[test]
fn an_open_turn_and_a_session_nobody_canceled_are_found() {
    assert!(found(|case| case.turns[0].verdict = Verdict::Open).contains("turn 1 is open"));
    assert!(found(|case| case.phase = Phase::Canceled).contains("nobody asked"));
    assert!(found(|case| case.phase = Phase::Running).contains("it is running"));
    assert!(found(|case| case.begun = 2).contains("2 turns were begun, there are 1"));
}
