//! Leases and teardown.

use std::collections::BTreeSet;
use std::time::Duration;

use bex_proto::limits;
use bex_store::leases::{Lease, Round};
use bex_store::sandboxes::SandboxState;
use bex_store::settle::{Cause, SandboxAfter, Settled};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_claimers_get_disjoint_sessions() {
    let store = Store::new().await;
    let mut sessions = BTreeSet::new();
    for _ in 0..12 {
        sessions.insert(store.running().await);
    }
    let claim = |owner: &'static str| {
        let db = store.db.clone();
        tokio::spawn(async move {
            let mut got = Vec::new();
            for _ in 0..6 {
                got.extend(db.claim_leases(owner, 2, limits::IDLE_GRACE).await.unwrap());
            }
            got
        })
    };
    let (a, b) = (claim("a"), claim("b"));
    let (a, b) = (a.await.unwrap(), b.await.unwrap());
    let all: BTreeSet<_> = a
        .iter()
        .chain(&b)
        .map(|lease| lease.session.clone())
        .collect();
    assert_eq!(a.len() + b.len(), all.len(), "no session twice");
    assert_eq!(all, sessions);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stale_fence_changes_nothing() {
    let store = Store::new().await;
    let session = store.running().await;
    let old = store.lease(&session).await;
    store.sql("UPDATE leases SET until = now() - interval '1 second'");
    let new = store.lease(&session).await;
    assert!(new.fence > old.fence);
    let end = end_of(0);
    store.db.record_turn_end(&session, G1, &end).await.unwrap();
    let request = settle(T1, Cause::DriverEnded, SandboxAfter::Idle);
    assert_eq!(
        store.db.settle(&old, &request).await.unwrap(),
        Settled::Stale
    );
    assert!(!store.db.renew_lease(&old).await.unwrap());
    assert!(
        !store
            .db
            .release_lease(&old, Duration::ZERO, Round::Done)
            .await
            .unwrap()
    );
    assert!(!store.db.mark_gone(&old, G1).await.unwrap());
    assert!(store.db.open_turn(&session).await.unwrap().is_some());
    assert!(matches!(
        store.db.settle(&new, &request).await.unwrap(),
        Settled::Now { .. }
    ));
    assert!(matches!(
        store.db.settle(&new, &request).await.unwrap(),
        Settled::Already(_)
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_is_due_when_its_time_comes_or_somebody_wakes_it() {
    let store = Store::new().await;
    let session = store.create().await;
    let claim = async || {
        store
            .db
            .claim_leases("c", 10, limits::IDLE_GRACE)
            .await
            .unwrap()
    };
    assert!(
        claim().await.is_empty(),
        "an undelivered turn is the dispatcher's"
    );
    let dispatch = store.claim_dispatch(&session).await;
    store.deliver(&dispatch).await;
    let lease = claim().await.pop().unwrap();
    assert!(claim().await.is_empty(), "claimed");
    store
        .db
        .release_lease(&lease, Duration::from_secs(3600), Round::Failed)
        .await
        .unwrap();
    assert!(claim().await.is_empty(), "not due");
    store.db.make_due(&session).await.unwrap();
    let lease = claim().await.pop().unwrap();
    assert_eq!(lease.failures, 1);
    // woken while claimed: due again at its release, whatever the worker thought
    store.db.make_due(&session).await.unwrap();
    assert!(claim().await.is_empty());
    store
        .db
        .release_lease(&lease, Duration::from_secs(3600), Round::Done)
        .await
        .unwrap();
    assert_eq!(claim().await.pop().unwrap().failures, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn since_when_nothing_clear_was_seen_outlives_who_saw_it() {
    let store = Store::new().await;
    let session = store.running().await;
    let claim = async || store.lease(&session).await;
    let release = async |lease, round| {
        let released = store.db.release_lease(&lease, Duration::ZERO, round).await;
        assert!(released.unwrap());
    };
    let lease = claim().await;
    assert_eq!(lease.unclear_since, None);
    release(lease, Round::Failed).await;
    let lease = claim().await;
    assert_eq!((lease.unclear_since, lease.failures), (None, 1));
    release(lease, Round::Unclear).await;
    let lease = claim().await;
    let since = lease.unclear_since;
    assert!(since.is_some() && lease.failures == 0);
    release(lease, Round::Unclear).await;
    release(claim().await, Round::Unclear).await;
    let lease = claim().await;
    assert_eq!(lease.unclear_since, since);
    // what a round saw that failed, or whose end nobody heard of, nobody knows
    release(lease, Round::Failed).await;
    let lease = claim().await;
    assert_eq!((lease.unclear_since, lease.failures), (None, 1));
    release(lease, Round::Unclear).await;
    assert!(claim().await.unclear_since.is_some());
    store.sql("UPDATE leases SET until = now() - interval '1 second'");
    let lease = claim().await;
    assert_eq!(lease.unclear_since, None);
    release(lease, Round::Unclear).await;
    let lease = claim().await;
    assert!(lease.unclear_since.is_some());
    release(lease, Round::Done).await;
    // who did not look has seen nothing unclear
    let lease = claim().await;
    assert_eq!((lease.unclear_since, lease.unseen), (None, false));
    release(lease, Round::Unseen).await;
    let lease = claim().await;
    assert_eq!((lease.unclear_since, lease.unseen), (None, true));
    release(lease, Round::Unclear).await;
    let lease = claim().await;
    let since = lease.unclear_since;
    assert!(since.is_some() && !lease.unseen);
    release(lease, Round::Unseen).await;
    let lease = claim().await;
    assert_eq!((lease.unclear_since, lease.unseen), (since, true));
    release(lease, Round::Done).await;
    let lease = claim().await;
    assert_eq!((lease.unclear_since, lease.unseen), (None, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_idle_sandbox_is_due_after_its_grace_and_torn_down_once() {
    let store = Store::new().await;
    let session = store.running().await;
    store
        .settle(&session, Some(&end_of(0)), SandboxAfter::Idle)
        .await;
    let claim = async |grace: Duration| store.db.claim_leases("c", 10, grace).await.unwrap();
    assert!(
        claim(limits::IDLE_GRACE).await.is_empty(),
        "within the grace"
    );
    store.sql("UPDATE sandboxes SET idle_since = now() - interval '31 minutes'");
    store.db.touch_idle(&session).await.unwrap();
    assert!(
        claim(limits::IDLE_GRACE).await.is_empty(),
        "prolonged by a reader"
    );
    // but not for ever
    store.sql("UPDATE sandboxes SET idle_since = now() - interval '31 minutes'");
    store.sql("UPDATE turns SET settled_at = now() - interval '3 hours 31 minutes'");
    store.db.touch_idle(&session).await.unwrap();
    let lease = claim(limits::IDLE_GRACE).await.pop().unwrap();
    assert!(store.db.begin_stopping(&lease, G1).await.unwrap());
    let later = Duration::from_secs(600);
    let lost = Lease {
        fence: lease.fence - 1,
        ..lease.clone()
    };
    assert!(!store.db.retry_teardown(&lost, G1, later).await.unwrap());
    assert!(store.db.retry_teardown(&lease, G1, later).await.unwrap());
    store
        .db
        .release_lease(&lease, Duration::ZERO, Round::Failed)
        .await
        .unwrap();
    assert!(
        claim(limits::IDLE_GRACE).await.is_empty(),
        "its next attempt is later"
    );
    store.sql("UPDATE sandboxes SET teardown_after = now()");
    let lease = claim(limits::IDLE_GRACE).await.pop().unwrap();
    assert!(store.db.mark_gone(&lease, G1).await.unwrap());
    assert!(!store.db.mark_gone(&lease, G1).await.unwrap());
    store
        .db
        .release_lease(&lease, Duration::ZERO, Round::Done)
        .await
        .unwrap();
    assert!(
        claim(Duration::ZERO).await.is_empty(),
        "nothing is left to do"
    );
    let gone = store.db.sandbox(&session, G1).await.unwrap().unwrap();
    assert_eq!(
        (gone.state, gone.teardown_attempts),
        (SandboxState::Gone, 1)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_orphan_sweep_pages_over_all_living_sandboxes() {
    let store = Store::new().await;
    let mut sessions = BTreeSet::new();
    for _ in 0..5 {
        sessions.insert(store.running().await);
    }
    let mut found = Vec::new();
    loop {
        let last = found
            .last()
            .map(|row: &bex_store::sandboxes::SandboxRow| (row.session.clone(), row.generation));
        let page = store
            .db
            .living_sandboxes(last.as_ref().map(|(s, g)| (s, *g)), 2)
            .await
            .unwrap();
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    assert_eq!(
        found
            .iter()
            .map(|row| row.session.clone())
            .collect::<BTreeSet<_>>(),
        sessions
    );
    assert_eq!(found.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_agent_s_own_session_is_the_newest_generation_s() {
    let store = Store::new().await;
    let session = store.running().await;
    let kept = async || store.db.agent_session(&session).await.unwrap();
    assert_eq!(kept().await, None);
    let keep = async |life, name| {
        store
            .db
            .keep_agent_session(&session, life, name)
            .await
            .unwrap()
    };
    keep(G1, "first").await;
    assert_eq!(kept().await.as_deref(), Some("first"));
    store.sql("UPDATE sessions SET generation = 2");
    keep(G1, "late").await;
    assert_eq!(kept().await.as_deref(), Some("first"));
    keep(bex_proto::Generation(2), "second").await;
    assert_eq!(kept().await.as_deref(), Some("second"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_idle_sandbox_that_is_lost_moves_once_and_its_session_is_due() {
    let store = Store::new().await;
    let session = store.running().await;
    let lose = async || store.db.lose_idle(&session, G1).await.unwrap();
    assert!(!lose().await, "it speaks");
    store
        .settle(&session, Some(&end_of(0)), SandboxAfter::Idle)
        .await;
    store.sql("UPDATE leases SET until = NULL, next_due_at = now() + interval '1 hour'");
    assert!(lose().await);
    assert!(!lose().await, "it stops already");
    let leases = store.db.claim_leases("c", 10, limits::IDLE_GRACE).await;
    let lease = leases.unwrap().pop().expect("due");
    assert!(store.db.mark_gone(&lease, G1).await.unwrap());
    assert!(!lose().await, "it is gone");
}
