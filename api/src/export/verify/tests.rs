//! An export made of rows that no store held, and every way in which it may be damaged.

use bex_proto::driver::TurnDigest;
use bex_proto::session::{DeliveryMode, EndedBy, Phase, SessionKind};
use bex_proto::{Generation, PartIndex, Seq};
use bex_store::export::TurnSnapshot;
use bex_store::proof::{StatementRow, TurnFacts};
use bex_store::sessions::{AgentSpec, SessionRow, TranscriptHead};
use bex_store::transcript::StoredPart;
use bex_store::turns::TurnRow;
use bytes::Bytes;
use jiff::Timestamp;

use super::super::line::seal;
use super::*;
use crate::proof::{Jwks, ProofRing};

const PARTS: u32 = 5;

fn ring() -> ProofRing {
    ProofRing::parse(&format!("k:{}", "11".repeat(32))).expect("a ring")
}

fn at(second: i64) -> Timestamp {
    Timestamp::new(1_790_000_000 + second, 123_456_000).expect("a time")
}

fn id() -> SessionId {
    "ags-aaaaaaaaaaaaaaaaaaaa".parse().expect("an id")
}

fn session() -> SessionRow {
    SessionRow {
        id: id(),
        workspace: "acme".parse().expect("an id"),
        kind: SessionKind::Interactive,
        workflow_id: None,
        title: Some("a title".into()),
        repo: None,
        branch: None,
        agent: AgentSpec {
            profile: "demo".into(),
            model: None,
            args: vec![],
            env: vec![],
        },
        created_by: "somebody".into(),
        phase: Phase::Completed,
        failure_reason: None,
        turns: TurnNo(2),
        prompt_bytes: 8,
        legal_hold: false,
        created_at: at(0),
        updated_at: at(9),
        archived_at: None,
        cancel_requested_at: None,
        canceled_at: None,
        transcript: TranscriptHead {
            next_seq: Seq(0),
            charged_bytes: 0,
            parts: 0,
            quota_mark: None,
        },
    }
}

fn parts(turn: u32) -> Vec<StoredPart> {
    let part = |index| {
        let text = match index {
            // odd but stored: spaces, a repeated key, an escape that is no character, a line that is no JSON
            1 => r#"{"type":"text-delta",  "id":"1","id":"1","delta":"\ud800"}"#.to_owned(),
            2 => " {\"type\":\"start\"} ".to_owned(),
            _ => format!(r#"{{"type":"text-delta","id":"1","delta":"part {index}"}}"#),
        };
        StoredPart {
            id: PartId {
                turn: TurnNo(turn),
                index: PartIndex(index),
            },
            seq: Seq(i64::from(turn * PARTS + index)),
            bytes: Bytes::from(text),
            spoken_at: (index == 3).then(|| at(3)),
            created_at: at(4),
        }
    };
    (0..PARTS).map(part).collect()
}

fn turn(turn: u32) -> TurnRow {
    let mut digest = TurnDigest::default();
    let parts = parts(turn);
    parts.iter().for_each(|part| digest.add(&part.bytes));
    TurnRow {
        session: id(),
        turn: TurnNo(turn),
        prompt: "do it".into(),
        delivery_mode: DeliveryMode::Fresh,
        generation: Generation(1),
        delivery_started_at: Some(at(1)),
        delivered_at: Some(at(1)),
        stop_requested_at: None,
        verdict: Verdict::Complete,
        reason: None,
        ended_by: Some(EndedBy::Agent),
        driver_state: Some(bex_proto::driver::TurnState::Succeeded),
        expected_parts: Some(PARTS),
        expected_sha256: Some(digest.hex()),
        dropped: None,
        unstorable: false,
        mismatch: None,
        stored_parts: PARTS,
        stored_bytes: parts.iter().map(|p| p.bytes.len() as u64).sum(),
        created_at: at(1),
        started_at: Some(at(2)),
        last_part_at: Some(at(5)),
        settled_at: Some(at(6)),
        healed_at: None,
        run: None,
    }
}

/// The chain: turn 1, turn 2, and turn 1 again, as if it had healed.
fn statements(ring: &ProofRing) -> Vec<StatementRow> {
    let mut chain: Vec<StatementRow> = Vec::new();
    for (number, of, superseded) in [(0, 1, None), (1, 2, None), (2, 1, Some(0))] {
        let row = turn(of);
        let facts = TurnFacts {
            workspace: session().workspace,
            prompt_sha256: sha256_hex(row.prompt.as_bytes()),
            sha256: row.expected_sha256.clone().expect("declared"),
            turn: row,
            previous: chain.last().map(|s| (s.number, s.statement.clone())),
            superseded,
        };
        chain.push(StatementRow {
            number,
            turn: TurnNo(of),
            statement: Statement::of(&facts).sign(ring),
            created_at: at(7),
        });
    }
    chain
}

/// The lines of an export, and the signed end that `ring` gives them.
fn lines(ring: &ProofRing) -> Vec<String> {
    let keys = ring.public().to_jwks();
    let mut lines = vec![seal(
        Kind::Session,
        &SessionLine::of(&session(), Generation(1), keys),
    )];
    for (of, statement) in [(1, 2), (2, 1)] {
        let snapshot = TurnSnapshot {
            turn: turn(of),
            before: Seq(100),
            statement: Some(statement),
        };
        lines.push(seal(Kind::Turn, &TurnLine::of(snapshot)));
        let parts = parts(of);
        lines.extend(parts.iter().map(|p| seal(Kind::Part, &PartLine::of(p))));
    }
    for row in statements(ring) {
        lines.push(seal(Kind::Statement, &StatementLine::of(row)));
    }
    lines
}

fn ended(lines: &[String], ring: Option<&ProofRing>) -> Vec<u8> {
    let text = lines.concat();
    let digest = sha256_hex(text.as_bytes());
    let count = lines.len() as u64;
    let signature = ring.map(|ring| {
        let seal = ExportSeal {
            session: id(),
            lines: count,
            digest: digest.clone(),
        };
        seal.sign(ring)
    });
    let end = EndLine {
        lines: count,
        digest,
        signature,
    };
    (text + &seal(Kind::End, &end)).into_bytes()
}

fn export() -> Vec<u8> {
    let ring = ring();
    ended(&lines(&ring), Some(&ring))
}

fn complaint(bytes: &[u8]) -> Complaint {
    match verify(bytes, None) {
        Err(VerifyFault::Complaint(complaint)) => complaint,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_export_is_believed_and_described() {
    let checked = verify(&export()[..], Some(ring().public())).expect("it is as it was");
    assert_eq!(
        (
            checked.turns,
            checked.stated,
            checked.parts,
            checked.statements
        ),
        (2, 2, u64::from(2 * PARTS), 3)
    );
    assert!(checked.signed && checked.finished);
    let text = String::from_utf8(export()).expect("text");
    // verbatim where it can be, and the very bytes where it cannot
    assert!(text.contains(r#""part":{"type":"text-delta",  "id":"1","id":"1","delta":"\ud800"}"#));
    assert!(text.contains(r#""text":" {\"type\":\"start\"} ""#));
}

/// Every byte of an export, one bit of each flipped; all eight in every part's line.
#[test]
fn one_flipped_bit_anywhere_is_refused_and_the_part_is_named() {
    let whole = export();
    let mut start = 0;
    for line in whole.split_inclusive(|byte| *byte == b'\n') {
        let part = String::from_utf8_lossy(line);
        let place = part
            .starts_with(r#"{"type":"part""#)
            .then(|| name_of(line).expect("a part has its name"));
        // what a name is read from, when it is itself damaged
        let words = place
            .is_some()
            .then(|| part.find(r#","seq""#).expect("a seq"));
        for offset in 0..line.len() {
            let bits = if place.is_some() && offset % 5 == 0 {
                0..8
            } else {
                let bit = (offset * 7 + start) % 8;
                bit..bit + 1
            };
            for bit in bits {
                let mut damaged = whole.clone();
                damaged[start + offset] ^= 1 << bit;
                let refused = complaint(&damaged);
                if let (Some(place), Some(words)) = (&place, words)
                    && offset > words
                {
                    assert_eq!(&refused.place, place, "byte {offset}, bit {bit}: {refused}");
                }
            }
        }
        start += line.len();
    }
}

#[test]
fn what_is_missing_moved_or_added_is_refused() {
    let ring = ring();
    let whole = lines(&ring);
    for at in 0..whole.len() {
        let mut fewer = whole.clone();
        fewer.remove(at);
        complaint(&ended(&fewer, Some(&ring)));
        let mut twice = whole.clone();
        twice.insert(at, whole[at].clone());
        complaint(&ended(&twice, Some(&ring)));
    }
    let export = export();
    for cut in [1, 100, export.len() / 2, export.len() - 1] {
        complaint(&export[..cut]);
    }
    complaint(b"");
    let more = [&export[..], b"{}\n"].concat();
    assert_eq!(complaint(&more).problem, "something stands behind the end");
}

/// Whoever can write the file can make its digests fit again; the signatures are what he cannot make.
#[test]
fn a_forger_without_the_key_is_refused() {
    let (ring, other) = (
        ring(),
        ProofRing::parse(&format!("k:{}", "22".repeat(32))).expect("a ring"),
    );
    let forged_part = StoredPart {
        bytes: Bytes::from_static(br#"{"type":"text-delta","id":"1","delta":"part 9"}"#),
        ..parts(1).remove(0)
    };
    let mut forged = lines(&ring);
    forged[2] = seal(Kind::Part, &PartLine::of(&forged_part));
    let refused = complaint(&ended(&forged, None));
    assert!(refused.problem.contains("turn 1"), "{refused}");

    // a title is in no statement: only the export's own signature tells
    let mut titled = session();
    titled.title = Some("another".into());
    let mut forged = lines(&ring);
    let keys = ring.public().to_jwks();
    forged[0] = seal(
        Kind::Session,
        &SessionLine::of(&titled, Generation(1), keys),
    );
    let unsigned = verify(&ended(&forged, None)[..], None).expect("its digests fit");
    assert!(!unsigned.signed);
    complaint(&ended(&forged, Some(&other)));

    // of one piece, but of another's making
    let made = ended(&lines(&other), Some(&other));
    assert!(verify(&made[..], None).expect("it is of one piece").signed);
    let refused = verify(&made[..], Some(ring.public())).expect_err("not ours");
    assert!(refused.to_string().contains("signature"), "{refused}");
    let none = PublicKeys::of_jwks(&Jwks { keys: Vec::new() });
    assert!(verify(&made[..], Some(&none)).is_err());
}
