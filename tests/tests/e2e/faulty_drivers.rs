//! Drivers that break the contract: a clear mark every time, and nothing lost beside the fault.

use bex_proto::transcript::sha256_hex;
use bex_proto::{PartId, SessionId, limits};
use bex_tests::client::{Ending, NewSession, Turn};
use bex_tests::fake_driver::script::{PARTS, SPOILT, parts};
use bex_tests::scenario::{same_parts, saw_everything, settled, stored};
use bex_tests::stack::WORKSPACE;
use bex_tests::tally::Parts;
use bex_tests::{Stack, StackOptions};

/// What the gateway may take beside an idle one's memory, whatever a driver sends.
const GROWTH_KIB: u64 = 96 * 1024;

async fn start() -> Stack {
    let options = StackOptions::default().with_fake_driver();
    Stack::start(options).await.unwrap()
}

async fn create(stack: &Stack, fault: &str) -> SessionId {
    let new = NewSession::new(WORKSPACE, "demo", &format!("please fault={fault}"));
    stack.operator().create(&new).await.unwrap()
}

async fn outcome(stack: &Stack, session: &SessionId) -> (Turn, Parts) {
    let turn = settled(&stack.operator(), session, 1).await.unwrap();
    (turn, stored(&stack.operator(), session).await.unwrap())
}

fn is_complete(fault: &str, turn: &Turn, stored: &Parts) {
    assert_eq!(
        (turn.verdict.as_str(), turn.reason.as_deref()),
        ("complete", None),
        "{fault}"
    );
    same_parts(stored, 1, &parts()).expect(fault);
}

/// The spoilt part is marked in its place; all others are as they were spoken.
fn is_marked(fault: &str, turn: &Turn, stored: &Parts) {
    assert_eq!(turn.verdict, "truncated", "{fault}: {turn:?}");
    let ids: Vec<_> = stored.iter().map(|(id, _)| id.index.0).collect();
    let without: Vec<_> = (0..PARTS).filter(|n| *n != SPOILT).collect();
    let whole: Vec<_> = (0..PARTS).collect();
    assert!(ids == whole || ids == without, "{fault}: {ids:?}");
    for (index, part) in (0..).zip(parts()) {
        let found = stored.iter().find(|(id, _)| *id == PartId::new(1, index));
        if index == SPOILT {
            let mark = found.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned());
            assert!(
                mark.is_none_or(|m| m.contains("data-bex-unstorable")),
                "{fault}"
            );
        } else {
            assert_eq!(
                found.map(|(_, bytes)| bytes),
                Some(&part),
                "{fault}: 1.{index}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_logs_of_unwatched_turns() {
    let stack = start().await;
    let mut sessions = Vec::new();
    let whole = ["none", "crlf", "open-end"];
    let spoilt = ["nul", "torn", "one-over", "huge-line", "long-line"];
    for fault in whole.into_iter().chain(spoilt) {
        sessions.push((fault, create(&stack, fault).await));
    }
    for (fault, session) in &sessions {
        let (turn, stored) = outcome(&stack, session).await;
        if whole.contains(fault) {
            is_complete(fault, &turn, &stored);
        } else {
            is_marked(fault, &turn, &stored);
            assert_eq!(turn.reason.as_deref(), Some("part_unstorable"), "{fault}");
        }
        let mut replay = stack.watch(session).await.unwrap();
        assert_eq!(replay.to_end().await.unwrap(), Ending::Done, "{fault}");
        saw_everything(&stored, &replay.parts()).expect(fault);
        let marks = replay.of_kind("data-bex-incomplete").len();
        assert_eq!(marks, usize::from(turn.verdict != "complete"), "{fault}");
    }
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_streams_of_watched_turns() {
    let stack = start().await;
    let idle = memory_kib(stack.gateway_pid().unwrap());
    for fault in ["none", "redirect", "no-ids", "no-done", "never-ends"] {
        let session = create(&stack, fault).await;
        let mut viewer = stack.watch(&session).await.unwrap();
        assert_eq!(viewer.to_end().await.unwrap(), Ending::Done, "{fault}");
        let (turn, stored) = outcome(&stack, &session).await;
        is_complete(fault, &turn, &stored);
        saw_everything(&stored, &viewer.parts()).expect(fault);
    }
    let grown = memory_kib(stack.gateway_pid().unwrap()).saturating_sub(idle);
    assert!(grown < GROWTH_KIB, "the gateway grew by {grown} KiB");
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unstorable_parts_of_watched_turns() {
    let stack = start().await;
    let idle = memory_kib(stack.gateway_pid().unwrap());
    for fault in ["one-over", "long-line", "huge-line", "nul", "torn"] {
        let session = create(&stack, fault).await;
        let mut viewer = stack.watch(&session).await.unwrap();
        assert_eq!(viewer.to_end().await.unwrap(), Ending::Done, "{fault}");
        let (turn, stored) = outcome(&stack, &session).await;
        is_marked(fault, &turn, &stored);
        let shown = viewer.parts();
        for (index, part) in (1..PARTS - 1).zip(parts().into_iter().skip(1)) {
            if index != SPOILT {
                let times = shown
                    .iter()
                    .filter(|(id, b)| *id == PartId::new(1, index) && *b == part)
                    .count();
                assert_eq!(times, 1, "{fault}: 1.{index}");
            }
        }
        if let Some((_, mark)) = stored.iter().find(|(id, _)| *id == PartId::new(1, SPOILT)) {
            let mark: serde_json::Value = serde_json::from_slice(mark).unwrap();
            let size = mark["data"]["bytes"].as_u64().unwrap();
            assert!(
                fault != "one-over" || size == limits::PART_BYTES as u64 + 1,
                "{mark}"
            );
            let digest = mark["data"]["sha256"].as_str().unwrap();
            assert_eq!(digest.len(), sha256_hex(b"").len());
        }
    }
    let grown = memory_kib(stack.gateway_pid().unwrap()).saturating_sub(idle);
    assert!(grown < GROWTH_KIB, "the gateway grew by {grown} KiB");
    stack.stop().await.unwrap();
}

/// Resident memory.
fn memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}
