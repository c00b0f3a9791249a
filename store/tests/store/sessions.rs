//! The verbs on sessions.

use bex_proto::session::{Phase, SessionKind, Verdict};
use bex_proto::{Chain, SessionId, TurnNo};
use bex_store::idempotency::Idempotency;
use bex_store::retention::Purged;
use bex_store::sessions::{
    ArchivedFilter, BeginTurn, Cancel, Created, Delete, ListFilter, NewTurn,
};
use bex_store::settle::{Cause, SandboxAfter, Settled};

use crate::support::*;

fn new_turn(session: &SessionId, prompt: &str) -> NewTurn {
    NewTurn {
        session: session.clone(),
        workspace: workspace(),
        prompt: prompt.into(),
        idempotency: None,
    }
}

fn key(body: &str) -> Option<Idempotency> {
    Some(Idempotency {
        scope: "create".into(),
        key: "k".into(),
        body_sha256: body.into(),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_error_says_why_and_quotes_no_row() {
    let store = Store::new().await;
    store.sql("ALTER TABLE turns ADD CONSTRAINT polite CHECK (prompt <> 'hunter2')");
    let mut new = new_session();
    new.prompt = "hunter2".into();
    let error = store.db.create_session(&new).await.unwrap_err();
    let said = Chain(&error).to_string();
    assert!(
        said.contains("SQLSTATE 23514") && said.contains("\"polite\""),
        "{said}"
    );
    assert!(!format!("{said} {error:?}").contains("hunter2"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn creating_makes_everything_at_once() {
    let store = Store::new().await;
    let session = store.create().await;
    let row = store.db.session(&session).await.unwrap().unwrap();
    assert_eq!(
        (row.phase, row.turns, row.prompt_bytes),
        (Phase::Creating, TurnNo(1), 5)
    );
    assert_eq!(
        (row.agent.profile.as_str(), row.transcript.parts),
        ("demo", 0)
    );
    let turn = store.db.open_turn(&session).await.unwrap().unwrap();
    assert_eq!(
        (turn.turn, turn.prompt.as_str(), turn.verdict),
        (T1, "do it", Verdict::Open)
    );
    let listed = store.db.turns(&session, T1, 10).await.unwrap();
    let bare = store
        .db
        .turns_without_prompts(&session, T1, 10)
        .await
        .unwrap();
    assert_eq!((listed.len(), listed[0].prompt.as_str()), (1, "do it"));
    assert_eq!(
        (bare.len(), bare[0].prompt.as_str(), bare[0].created_at),
        (1, "", listed[0].created_at)
    );
    let again = store.db.turn_without_prompt(&session, T1).await.unwrap();
    let again = again.unwrap();
    assert_eq!(
        (again.prompt.as_str(), again.created_at),
        ("", turn.created_at)
    );
    assert_eq!(store.claim_dispatch(&session).await.turn, T1);
    assert!(
        store
            .db
            .session(&SessionId::random())
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_repeated_create_is_the_same_session_and_another_body_conflicts() {
    let store = Store::new().await;
    let mut first = new_session();
    first.idempotency = key("body");
    let mut again = new_session();
    again.idempotency = key("body");
    assert_eq!(store.db.create_session(&first).await.unwrap(), Created::New);
    assert_eq!(
        store.db.create_session(&again).await.unwrap(),
        Created::Replayed(first.id.clone())
    );
    again.idempotency = key("other");
    assert_eq!(
        store.db.create_session(&again).await.unwrap(),
        Created::KeyConflict
    );
    assert_eq!(store.sql("SELECT count(*) FROM sessions"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_live_limit_holds_against_concurrent_creators() {
    let store = Store::new().await;
    let create = || {
        let (db, mut new) = (store.db.clone(), new_session());
        new.live_limit = 3;
        tokio::spawn(async move { db.create_session(&new).await.unwrap() })
    };
    let tasks: Vec<_> = (0..8).map(|_| create()).collect();
    let mut made = 0;
    for task in tasks {
        match task.await.unwrap() {
            Created::New => made += 1,
            refused => assert_eq!(refused, Created::LiveLimit { live: 3, limit: 3 }),
        }
    }
    assert_eq!(made, 3);
    let mut autonomous = new_session();
    (autonomous.kind, autonomous.workflow_id) = (SessionKind::Autonomous, Some("w".into()));
    autonomous.workspace = "other".parse().unwrap();
    assert_eq!(
        store.db.create_session(&autonomous).await.unwrap(),
        Created::New,
        "another workspace's limit is its own"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_turn_goes_to_the_idle_driver_or_to_a_fresh_sandbox() {
    let store = Store::new().await;
    let session = store.running().await;
    assert_eq!(
        store.db.begin_turn(&new_turn(&session, "x")).await.unwrap(),
        BeginTurn::InFlight { turn: T1 }
    );
    store
        .settle(&session, Some(&end_of(0)), SandboxAfter::Idle)
        .await;
    let second = store.db.begin_turn(&new_turn(&session, "x")).await.unwrap();
    assert_eq!(
        second,
        BeginTurn::Delivering {
            turn: TurnNo(2),
            generation: G1
        }
    );
    assert_eq!(
        store.db.session(&session).await.unwrap().unwrap().phase,
        Phase::Running
    );
    let claim = store.claim_dispatch(&session).await;
    assert_eq!((claim.turn, claim.generation), (TurnNo(2), G1));
    store.db.begin_delivery(&claim, G1).await.unwrap();
    store
        .db
        .delivered(&claim, bex_store::dispatch::Delivery::Accepted)
        .await
        .unwrap();
    let turn = store.db.turn(&session, TurnNo(2)).await.unwrap().unwrap();
    assert_eq!(turn.delivery_mode, bex_proto::session::DeliveryMode::Live);
    let lease = store.lease(&session).await;
    store
        .db
        .settle(
            &lease,
            &settle(TurnNo(2), Cause::Lost, SandboxAfter::Stopping),
        )
        .await
        .unwrap();
    store
        .db
        .release_lease(
            &lease,
            std::time::Duration::ZERO,
            bex_store::leases::Round::Done,
        )
        .await
        .unwrap();
    assert_eq!(
        store.db.session(&session).await.unwrap().unwrap().phase,
        Phase::Failed
    );
    assert_eq!(
        store.db.begin_turn(&new_turn(&session, "x")).await.unwrap(),
        BeginTurn::Redispatched { turn: TurnNo(3) }
    );
    let claim = store.claim_dispatch(&session).await;
    assert_eq!(store.deliver(&claim).await, bex_proto::Generation(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn turns_that_may_not_begin_say_why() {
    let store = Store::new().await;
    let session = store.running().await;
    store
        .settle(&session, Some(&end_of(0)), SandboxAfter::Idle)
        .await;
    let mut foreign = new_turn(&session, "x");
    foreign.workspace = "other".parse().unwrap();
    assert_eq!(
        store.db.begin_turn(&foreign).await.unwrap(),
        BeginTurn::NotFound
    );
    let huge = "x".repeat(8 * 1024 * 1024);
    assert_eq!(
        store
            .db
            .begin_turn(&new_turn(&session, &huge))
            .await
            .unwrap(),
        BeginTurn::PromptQuota
    );
    store.db.archive(&session).await.unwrap();
    assert_eq!(
        store.db.begin_turn(&new_turn(&session, "x")).await.unwrap(),
        BeginTurn::Archived
    );
    store.db.unarchive(&session).await.unwrap();
    store.sql(&format!(
        "UPDATE transcript_heads SET quota_turn = 1, quota_index = 7 WHERE session_id = '{session}'"
    ));
    assert_eq!(
        store.db.begin_turn(&new_turn(&session, "x")).await.unwrap(),
        BeginTurn::Full
    );
    store.sql(&format!(
        "UPDATE sessions SET phase = 'canceled' WHERE id = '{session}'"
    ));
    assert_eq!(
        store.db.begin_turn(&new_turn(&session, "x")).await.unwrap(),
        BeginTurn::NotSteerable
    );
    assert_eq!(
        store.sql(&format!(
            "SELECT count(*) FROM turns WHERE session_id = '{session}'"
        )),
        "1"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_repeated_turn_is_the_same_turn() {
    let store = Store::new().await;
    let session = store.running().await;
    store
        .settle(&session, Some(&end_of(0)), SandboxAfter::Idle)
        .await;
    let mut turn = new_turn(&session, "x");
    turn.idempotency = key("body");
    assert!(matches!(
        store.db.begin_turn(&turn).await.unwrap(),
        BeginTurn::Delivering { .. }
    ));
    assert_eq!(
        store.db.begin_turn(&turn).await.unwrap(),
        BeginTurn::Replayed { turn: TurnNo(2) }
    );
    turn.idempotency = key("other");
    assert_eq!(
        store.db.begin_turn(&turn).await.unwrap(),
        BeginTurn::KeyConflict
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_the_turn_or_the_teardown_gets_the_sandbox() {
    let store = Store::new().await;
    let mut won = [0, 0];
    for round in 0..20 {
        let session = store.running().await;
        store
            .settle(&session, Some(&end_of(0)), SandboxAfter::Idle)
            .await;
        store.sql(&format!("UPDATE sandboxes SET idle_since = now() - interval '1 day' WHERE session_id = '{session}'"));
        let lease = store.lease(&session).await;
        let (db, turn) = (store.db.clone(), new_turn(&session, "x"));
        let steer = tokio::spawn(async move { db.begin_turn(&turn).await.unwrap() });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let stopping = store.db.begin_stopping(&lease, G1).await.unwrap();
        match (steer.await.unwrap(), stopping) {
            (BeginTurn::Delivering { .. }, false) => won[0] += 1,
            (BeginTurn::Redispatched { .. }, true) => won[1] += 1,
            both => panic!("both or neither got it: {both:?}"),
        }
    }
    assert_eq!(won[0] + won[1], 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn cancel_moves_only_what_is_active() {
    let store = Store::new().await;
    let session = store.running().await;
    assert_eq!(
        store.db.request_cancel(&session).await.unwrap(),
        Cancel::Canceling
    );
    assert_eq!(
        store.db.request_cancel(&session).await.unwrap(),
        Cancel::AlreadyCanceling
    );
    let lease = store.lease(&session).await;
    let settled = store
        .db
        .settle(&lease, &settle(T1, Cause::Lost, SandboxAfter::Stopping))
        .await
        .unwrap();
    assert!(matches!(
        settled,
        Settled::Now {
            phase: Phase::Canceled,
            ..
        }
    ));
    assert_eq!(
        store.db.request_cancel(&session).await.unwrap(),
        Cancel::Terminal(Phase::Canceled)
    );
    assert_eq!(
        store.db.request_cancel(&SessionId::random()).await.unwrap(),
        Cancel::NotFound
    );
    let row = store.db.session(&session).await.unwrap().unwrap();
    assert!(row.canceled_at.is_some());
    let turn = store.db.turn(&session, T1).await.unwrap().unwrap();
    assert_eq!(turn.ended_by, Some(bex_proto::session::EndedBy::Canceled));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn deleting_takes_everything_and_only_when_nothing_is_live() {
    let store = Store::new().await;
    let session = store.running().await;
    store.append(&session, &parts(0..3)).await;
    assert_eq!(
        store.db.remove_session(&session, removal()).await.unwrap(),
        Delete::Live
    );
    store
        .settle(&session, Some(&end_of(3)), SandboxAfter::Idle)
        .await;
    assert_eq!(
        store.db.remove_session(&session, removal()).await.unwrap(),
        Delete::Live,
        "its sandbox lives"
    );
    store.sql("UPDATE sandboxes SET state = 'gone'");
    store.sql("UPDATE sessions SET legal_hold = true");
    assert_eq!(
        store.db.remove_session(&session, removal()).await.unwrap(),
        Delete::LegalHold
    );
    store.sql("UPDATE sessions SET legal_hold = false");
    assert_eq!(
        store.db.remove_session(&session, removal()).await.unwrap(),
        Delete::Deleted
    );
    assert_eq!(
        store.db.remove_session(&session, removal()).await.unwrap(),
        Delete::NotFound
    );
    while store.db.purge().await.unwrap() != Purged::Nothing {}
    let left = store.sql(
        "SELECT (SELECT count(*) FROM turns) + (SELECT count(*) FROM transcript_parts) + (SELECT count(*) FROM leases)
              + (SELECT count(*) FROM transcript_heads) + (SELECT count(*) FROM sandboxes)",
    );
    assert_eq!(left, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_list_is_newest_first_and_pages_without_gaps() {
    let store = Store::new().await;
    let mut made = Vec::new();
    for n in 0..5 {
        let mut new = new_session();
        new.repo = (n % 2 == 0).then(|| "r".to_owned());
        store.db.create_session(&new).await.unwrap();
        made.push(new.id);
    }
    // two of the same instant: the id decides
    store.sql("UPDATE sessions SET created_at = '2026-01-01T00:00:00Z' WHERE repo IS NULL");
    let mut filter = ListFilter {
        limit: 2,
        ..ListFilter::default()
    };
    let mut listed = Vec::new();
    loop {
        let (page, next) = store.db.list_sessions(&workspace(), &filter).await.unwrap();
        listed.extend(page.into_iter().map(|s| s.id));
        let Some(next) = next else { break };
        filter.cursor = Some(next);
    }
    let mut old = vec![made[1].clone(), made[3].clone()];
    old.sort();
    old.reverse();
    assert_eq!(
        listed,
        [vec![made[4].clone(), made[2].clone(), made[0].clone()], old].concat()
    );
    let count = async |filter: ListFilter| {
        store
            .db
            .list_sessions(&workspace(), &filter)
            .await
            .unwrap()
            .0
            .len()
    };
    let all = ListFilter {
        limit: 200,
        ..ListFilter::default()
    };
    store.db.archive(&made[0]).await.unwrap();
    assert_eq!(count(all.clone()).await, 4);
    assert_eq!(
        count(ListFilter {
            archived: ArchivedFilter::Only,
            ..all.clone()
        })
        .await,
        1
    );
    assert_eq!(
        count(ListFilter {
            archived: ArchivedFilter::All,
            ..all.clone()
        })
        .await,
        5
    );
    assert_eq!(
        count(ListFilter {
            repo: Some("r".into()),
            ..all.clone()
        })
        .await,
        2
    );
    assert_eq!(
        count(ListFilter {
            phases: vec![Phase::Running, Phase::Failed],
            ..all.clone()
        })
        .await,
        0
    );
    let noon = "2026-01-01T00:00:01Z".parse().unwrap();
    assert_eq!(
        count(ListFilter {
            created_before: Some(noon),
            ..all.clone()
        })
        .await,
        2
    );
    assert_eq!(
        count(ListFilter {
            created_after: Some(noon),
            ..all
        })
        .await,
        2
    );
    let (nobody, _) = store
        .db
        .list_sessions(
            &"other".parse().unwrap(),
            &ListFilter {
                limit: 9,
                ..ListFilter::default()
            },
        )
        .await
        .unwrap();
    assert!(nobody.is_empty());
}
