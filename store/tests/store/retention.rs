//! Deleting: in one step for those who look, in many for the parts.

use bex_proto::{SessionId, TurnNo};
use bex_store::Db;
use bex_store::holds::{Hold, HoldSet};
use bex_store::retention::{Purged, Removal};
use bex_store::sessions::{Created, Delete};
use bex_store::settle::SandboxAfter;

use crate::support::*;

const EXPIRE: Removal<'static> = Removal {
    subject: "system:retention",
    action: "session.expire",
    quiet_days: Some(30),
};

async fn over(store: &Store, parts_stored: u32) -> SessionId {
    let session = store.running().await;
    store.append(&session, &parts(0..parts_stored)).await;
    let end = end_of(parts_stored);
    store
        .settle(&session, Some(&end), SandboxAfter::Stopping)
        .await;
    session
}

fn age(store: &Store, session: &SessionId, days: u32) {
    store.sql(&format!(
        "UPDATE sessions SET created_at = now() - interval '{days} days', updated_at = now() - interval '{days} days'
          WHERE id = '{session}'"
    ));
}

async fn expired(db: &Db) -> Vec<SessionId> {
    db.expired_sessions(&workspace(), 30, 10).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn only_what_is_over_quiet_and_free_expires() {
    let store = Store::new().await;
    let (old, held, young) = (
        over(&store, 2).await,
        over(&store, 2).await,
        over(&store, 2).await,
    );
    let live = store.running().await;
    for session in [&old, &held, &live] {
        age(&store, session, 31);
    }
    let hold = async |hold| store.db.set_hold(&held, hold, "admin").await.unwrap();
    assert_eq!(hold(Hold::Held).await, HoldSet::Changed);
    assert_eq!(hold(Hold::Held).await, HoldSet::Same);
    assert_eq!(expired(&store.db).await, std::slice::from_ref(&old));
    for (session, result) in [
        (&held, Delete::LegalHold),
        (&young, Delete::Live),
        (&live, Delete::Live),
        (&old, Delete::Deleted),
        (&old, Delete::NotFound),
    ] {
        let removed = store.db.remove_session(session, EXPIRE).await.unwrap();
        assert_eq!(removed, result, "{session}");
    }
    let told = store.sql(
        "SELECT subject || ' ' || action || ' ' || session_id || ' ' || detail FROM audit_events WHERE action <> 'session.hold'",
    );
    assert!(
        told.starts_with(&format!(
            "system:retention session.expire {old} turns 1, parts 2"
        )),
        "{told}"
    );
    assert_eq!(hold(Hold::Free).await, HoldSet::Changed);
    assert_eq!(expired(&store.db).await, [held]);
    let events = store.sql("SELECT string_agg(action, ' ' ORDER BY id) FROM audit_events");
    assert_eq!(events, "session.hold session.expire session.release");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn parts_are_removed_in_batches_and_a_crash_between_two_loses_none() {
    let store = Store::new().await;
    let session = over(&store, 2500).await;
    let other = over(&store, 3).await;
    store.db.remove_session(&session, removal()).await.unwrap();
    // gone for everybody, at once
    assert!(store.db.session(&session).await.unwrap().is_none());
    assert!(store.db.turn(&session, T1).await.unwrap().is_none());
    let left = || {
        store.sql(&format!(
            "SELECT count(*) FROM transcript_parts WHERE session_id = '{session}'"
        ))
    };
    assert_eq!(left(), "2500");
    assert_eq!(store.db.purge().await.unwrap(), Purged::Parts(1000));
    assert_eq!(left(), "1500");
    // a batch that dies half-way is no batch
    let client = tokio_postgres_client(&store).await;
    client
        .batch_execute(&format!(
            "BEGIN; SELECT 1 FROM deletions FOR UPDATE; DELETE FROM transcript_parts WHERE session_id = '{session}'"
        ))
        .await
        .unwrap();
    // while another holds the session, nobody waits for it
    assert_eq!(store.db.purge().await.unwrap(), Purged::Nothing);
    drop(client);
    let mut removed = 0;
    loop {
        match store.db.purge().await.unwrap() {
            Purged::Parts(parts) => removed += parts,
            Purged::Nothing if removed == 1500 => break,
            // the dead connection's lock is given back in a moment
            Purged::Nothing => tokio::task::yield_now().await,
        }
    }
    assert_eq!(left(), "0");
    assert_eq!(store.sql("SELECT count(*) FROM deletions"), "0");
    let kept = store.sql(&format!(
        "SELECT count(*) FROM transcript_parts WHERE session_id = '{other}'"
    ));
    assert_eq!(kept, "3");
}

/// A session that lives is never touched, whatever is deleted around it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_session_is_written_to_while_others_are_deleted() {
    let store = Store::new().await;
    let live = store.running().await;
    age(&store, &live, 100);
    let mut old = Vec::new();
    for _ in 0..8 {
        let session = over(&store, 300).await;
        age(&store, &session, 100);
        old.push(session);
    }
    let sweep = async {
        let mut removed = 0;
        loop {
            let expired = expired(&store.db).await;
            if expired.is_empty() {
                break;
            }
            for session in expired {
                assert_ne!(session, live);
                let result = store.db.remove_session(&session, EXPIRE).await.unwrap();
                assert_eq!(result, Delete::Deleted);
                removed += 1;
            }
            while store.db.purge().await.unwrap() != Purged::Nothing {}
        }
        removed
    };
    let speak = async {
        for index in 0..200 {
            let stored = store.append(&live, &parts([index])).await;
            assert_eq!(stored.stored, 1);
        }
    };
    let (removed, ()) = tokio::join!(sweep, speak);
    assert_eq!(removed, old.len());
    let turn = store.db.turn(&live, TurnNo(1)).await.unwrap().unwrap();
    assert_eq!(turn.stored_parts, 200);
    assert_eq!(
        store.sql("SELECT count(*) FROM transcript_parts"),
        "200",
        "of the deleted ones nothing is left"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_workspace_that_is_being_deleted_takes_no_session() {
    let store = Store::new().await;
    let session = over(&store, 1).await;
    let running = store.running().await;
    let begun = store
        .db
        .begin_workspace_deletion(&workspace(), "admin")
        .await
        .unwrap();
    assert_eq!(begun, Delete::Deleted);
    let refused = store.db.create_session(&new_session()).await.unwrap();
    assert_eq!(refused, Created::WorkspaceDeleting);
    let kept = store.db.kept_workspaces().await.unwrap();
    assert!(kept[0].policy.as_ref().unwrap().deleting_since.is_some());
    let active = store.db.wind_down(&workspace(), 10).await.unwrap();
    assert_eq!(active, std::slice::from_ref(&running));
    // not before its last session is gone
    store.db.end_workspace_deletion(&workspace()).await.unwrap();
    assert!(
        store
            .db
            .workspace_policy(&workspace())
            .await
            .unwrap()
            .is_some()
    );
    store.db.remove_session(&session, removal()).await.unwrap();
    let live = store.db.remove_session(&running, removal()).await.unwrap();
    assert_eq!(live, Delete::Live);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn policies_say_days_and_audit_rows_of_held_sessions_stay() {
    let store = Store::new().await;
    let (held, free) = (over(&store, 1).await, over(&store, 1).await);
    store.db.set_hold(&held, Hold::Held, "admin").await.unwrap();
    store
        .db
        .set_retention(&workspace(), Some(7), "admin")
        .await
        .unwrap();
    let policy = store.db.workspace_policy(&workspace()).await.unwrap();
    assert_eq!(policy.unwrap().retention_days, Some(7));
    for session in [&held, &free] {
        store.sql(&format!(
            "INSERT INTO audit_events (workspace_id, subject, action, session_id, result, at)
             VALUES ('acme', 's', 'old', '{session}', 'ok', now() - interval '8 days')"
        ));
    }
    assert_eq!(store.db.sweep_audit(&workspace(), 7).await.unwrap(), 1);
    let left =
        store.sql("SELECT string_agg(session_id, ' ') FROM audit_events WHERE action = 'old'");
    assert_eq!(left, held.to_string());
}
