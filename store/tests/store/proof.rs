//! Statements: due with the settle, added once, never changed.

use bex_proto::PartIndex;
use bex_proto::session::Verdict;
use bex_store::proof::Stated;
use bex_store::settle::{Rejudged, SandboxAfter};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_settled_turn_is_due_until_it_is_stated_and_again_when_it_heals() {
    let store = Store::new().await;
    let session = store.running().await;
    store.append(&session, &parts(0..2)).await;
    assert_eq!(store.db.statements_due(10).await.unwrap(), []);
    store
        .settle(&session, Some(&end_of(3)), SandboxAfter::Idle)
        .await;
    let due = store.db.statements_due(10).await.unwrap();
    assert_eq!(due, [(session.clone(), T1)]);
    let facts = store.db.turn_facts(&session, T1).await.unwrap().unwrap();
    assert_eq!(
        (facts.turn.verdict, facts.turn.stored_parts),
        (Verdict::Truncated, 2)
    );
    assert_eq!(facts.sha256, end_of(2).sha256);
    assert_eq!((&facts.previous, facts.superseded), (&None, None));
    let first = store.db.add_statement(&facts, "one").await.unwrap();
    assert_eq!(first, Stated::Now);
    // another replica with the same facts comes second
    let second = store.db.add_statement(&facts, "other").await.unwrap();
    assert_eq!(second, Stated::Moved);
    assert_eq!(store.db.statements_due(10).await.unwrap(), []);
    assert!(store.db.turn_facts(&session, T1).await.unwrap().is_none());

    // the missing part arrives between the facts and the statement
    store.append(&session, &parts([2])).await;
    let stale = store.db.turn_facts(&session, T1).await.unwrap().unwrap();
    let lease = store.lease(&session).await;
    let healed = store.db.rejudge(&lease, T1).await.unwrap();
    assert_eq!(healed, Rejudged::Healed);
    let moved = store.db.add_statement(&stale, "stale").await.unwrap();
    assert_eq!(moved, Stated::Moved);
    let facts = store.db.turn_facts(&session, T1).await.unwrap().unwrap();
    assert_eq!(facts.turn.verdict, Verdict::Complete);
    assert_eq!(facts.previous, Some((0, "one".to_owned())));
    assert_eq!(facts.superseded, Some(0));
    let added = store.db.add_statement(&facts, "two").await.unwrap();
    assert_eq!(added, Stated::Now);
    let chain = store.db.statements(&session, 0, 10).await.unwrap();
    let chain: Vec<_> = chain
        .iter()
        .map(|s| (s.number, s.turn, s.statement.as_str()))
        .collect();
    assert_eq!(chain, [(0, T1, "one"), (1, T1, "two")]);
    assert_eq!(store.db.statements_pending(&session).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nobody_changes_a_statement() {
    let store = Store::new().await;
    for role in ["bex_api", "bex_gateway"] {
        for privilege in ["UPDATE", "DELETE", "TRUNCATE"] {
            let has = store.sql(&format!(
                "SELECT has_table_privilege('{role}', 'turn_statements', '{privilege}')"
            ));
            assert_eq!(has, "f", "{role} {privilege}");
        }
    }
}

/// A turn's row and its parts agree, however late they are read.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_snapshot_is_cut_at_what_its_row_counts() {
    let store = Store::new().await;
    let session = store.running().await;
    store.append(&session, &parts([0, 1, 5])).await;
    let snapshot = store.db.turn_snapshot(&session, T1).await.unwrap().unwrap();
    store.append(&session, &parts([2, 6])).await;
    let read = async |from: u32, max: usize| {
        let from = bex_proto::PartId {
            turn: T1,
            index: PartIndex(from),
        };
        let parts = store
            .db
            .export_parts(&session, from, snapshot.before, 100, max)
            .await
            .unwrap();
        parts.iter().map(|p| p.id.index.0).collect::<Vec<_>>()
    };
    assert_eq!(snapshot.turn.stored_parts, 3);
    assert_eq!(read(0, 1 << 20).await, [0, 1, 5]);
    assert_eq!(read(2, 1 << 20).await, [5]);
    assert_eq!(read(0, 1).await, [0], "one at least");
    assert_eq!(read(0, text_of(0).len() + 1).await, [0, 1]);
}
