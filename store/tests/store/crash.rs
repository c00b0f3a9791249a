//! A server that is killed and comes back.

use std::time::Duration;

use bex_proto::{Seq, SessionId};
use bex_store::dispatch::{BeginGeneration, Delivery};
use bex_store::transcript::{Append, AppendError, AppendOutcome};
use bex_store::{Db, DbConfig, migrate};
use bex_testpg::{Fsync, Options, TestPg};

use crate::support::*;

async fn running(db: &Db) -> SessionId {
    let new = new_session();
    db.create_session(&new).await.unwrap();
    let claim = db.claim_dispatches("t", 1).await.unwrap().pop().unwrap();
    assert!(matches!(
        db.begin_generation(&claim, &new_sandbox()).await.unwrap(),
        BeginGeneration::Begun { .. }
    ));
    db.sandbox_ready(&claim, G1, "u").await.unwrap();
    db.begin_delivery(&claim, G1).await.unwrap();
    db.delivered(&claim, Delivery::Accepted).await.unwrap();
    new.id
}

async fn append(db: &Db, session: &SessionId, from: u32) -> Result<AppendOutcome, AppendError> {
    let batch = parts(from..from + 32);
    let marks = bex_store::transcript::Marks::Clean;
    db.append(Append {
        session,
        turn: T1,
        generation: G1,
        parts: &batch,
        marks,
        harvest: None,
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_acknowledged_survives_a_kill_and_the_pool_recovers_by_itself() {
    let mut pg = TestPg::start_new(Options { fsync: Fsync::On }).unwrap();
    let url = pg.create_database("bex", None).unwrap();
    migrate(&DbConfig::new(&url, "t")).await.unwrap();
    let db = Db::connect(&DbConfig::new(pg.pooled_url("bex"), "t")).unwrap();
    let session = running(&db).await;
    for batch in 0..10 {
        stored(append(&db, &session, batch * 32).await.unwrap());
    }
    pg.kill9();
    let Err(AppendError::Store(error)) = append(&db, &session, 320).await else {
        panic!("nobody is there")
    };
    assert!(error.is_transient(), "{error:?}");
    pg.start().unwrap();
    // the same pool, the same batch: at most one broken connection a slot stands before a good one
    let mut outcome = append(&db, &session, 320).await;
    for _ in 0..16 {
        if outcome.is_ok() {
            break;
        }
        // a pooler between asks again only after its own pause
        tokio::time::sleep(Duration::from_millis(150)).await;
        outcome = append(&db, &session, 320).await;
    }
    assert_eq!(stored(outcome.unwrap()).next_seq, Seq(352));
    let read = db.read_feed(&session, Seq(-1), 1000).await.unwrap().parts;
    assert_eq!(read.len(), 352);
    assert!(
        read.iter()
            .zip(0..)
            .all(|(part, n)| part.seq == Seq(n) && part.bytes == text_of(part.id.index.0))
    );
}
