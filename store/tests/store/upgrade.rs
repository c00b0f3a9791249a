//! From the previous release's schema to this one's while parts are stored and read: no append fails, none is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bex_proto::ids::PartId;
use bex_proto::{Seq, SessionId, limits};
use bex_store::migrate::migrate_up_to;
use bex_store::settle::{Cause, SandboxAfter};
use bex_store::transcript::{Append, StoredPart};
use bex_store::{Db, DbConfig, check_schema, migrate};
use bex_testpg::Database;
use sha2::{Digest, Sha256};

use crate::support::*;

/// The newest migration of the previous release.
const PREVIOUS: usize = 6;
/// SHA-256 over its migrations: what was released is never edited.
const PREVIOUS_SHA256: &str = "b8a18eec1e6c7a10887fd2f3c9d1f51ee7a8353ac41825dfc1c22414a9ee1b78";
/// Sessions that are being written.
const WRITTEN: usize = 4;
/// Parts of one append.
const BATCH: u32 = 32;
/// Appends that each session has before the migration begins, and after it has ended.
const APPENDS: u32 = 20;

#[test]
fn the_previous_releases_migrations_are_as_they_were() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut digest = Sha256::new();
    for file in &files[..PREVIOUS] {
        digest.update(std::fs::read(file).unwrap());
    }
    assert_eq!(hex::encode(digest.finalize()), PREVIOUS_SHA256);
}

/// A database of the previous schema with the rows of this one that it can hold.
async fn as_it_was(now: &Store) -> Database {
    let before = bex_testpg::server().unwrap().empty_database().unwrap();
    let config = DbConfig::new(&before.url, "test");
    let last = i32::try_from(PREVIOUS).unwrap();
    let applied = migrate_up_to(&config, last).await.unwrap().applied;
    assert_eq!(applied, (1..=last).collect::<Vec<_>>());
    let tables = before
        .sql(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
              AND relname NOT IN ('schema_migrations', 'changes')",
        )
        .unwrap();
    for table in tables.lines() {
        let rows = now.sql(&format!(
            "SELECT COALESCE(json_agg(t), '[]') FROM {table} t"
        ));
        // columns that are new are passed over
        before
            .sql(&format!(
                "SET session_replication_role = replica;
                 INSERT INTO {table} OVERRIDING SYSTEM VALUE
                 SELECT * FROM json_populate_recordset(NULL::{table}, $rows${rows}$rows$)"
            ))
            .unwrap();
    }
    before
}

/// Appends and reads without a pause until told to stop; answers how many parts were acknowledged.
async fn write(db: Db, session: SessionId, appends: Arc<AtomicU32>, stop: Arc<AtomicBool>) -> u32 {
    let mut next = 0;
    while !stop.load(Ordering::SeqCst) {
        let batch = parts(next..next + BATCH);
        let append = Append {
            session: &session,
            turn: T1,
            generation: G1,
            parts: &batch,
            marks: Default::default(),
            harvest: None,
        };
        assert_eq!(stored(db.append(append).await.unwrap()).stored, BATCH);
        next += BATCH;
        let from = PartId::new(1, next - BATCH);
        db.read_page(&session, from, 1000, 1 << 20).await.unwrap();
        appends.fetch_add(1, Ordering::SeqCst);
    }
    next
}

async fn feed(db: &Db, session: &SessionId) -> Vec<StoredPart> {
    let mut read: Vec<StoredPart> = Vec::new();
    loop {
        let after = read.last().map_or(Seq(-1), |part| part.seq);
        let page = db.read_feed(session, after, 1000).await.unwrap();
        if page.parts.is_empty() {
            return read;
        }
        read.extend(page.parts);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_is_brought_forward_while_parts_are_stored() {
    let now = Store::new().await;
    let settled = now.running().await;
    now.append(&settled, &parts(0..3)).await;
    now.settle(&settled, Some(&end_of(3)), SandboxAfter::Idle)
        .await;
    let mut written = Vec::new();
    for _ in 0..WRITTEN {
        written.push(now.running().await);
    }
    let database = as_it_was(&now).await;
    let db = Db::connect(&DbConfig::new(database.pooled_url(), "test")).unwrap();
    assert!(check_schema(&db).await.is_err(), "it is older");

    let (appends, stop) = (
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let writers: Vec<_> = written
        .iter()
        .map(|session| {
            let (appends, stop) = (Arc::clone(&appends), Arc::clone(&stop));
            tokio::spawn(write(db.clone(), session.clone(), appends, stop))
        })
        .collect();
    let due = APPENDS * u32::try_from(WRITTEN).unwrap();
    eventually(|| appends.load(Ordering::SeqCst) >= due || writers.iter().any(|w| w.is_finished()))
        .await;
    migrate(&DbConfig::new(&database.url, "migrate"))
        .await
        .unwrap();
    let migrated = appends.load(Ordering::SeqCst);
    eventually(|| {
        appends.load(Ordering::SeqCst) >= migrated + due || writers.iter().any(|w| w.is_finished())
    })
    .await;
    stop.store(true, Ordering::SeqCst);
    check_schema(&db).await.unwrap();

    for session in &written {
        db.make_due(session).await.unwrap();
    }
    let leases = db
        .claim_leases("test", 1000, limits::IDLE_GRACE)
        .await
        .unwrap();
    for (session, writer) in written.iter().zip(writers) {
        let acknowledged = writer.await.unwrap();
        let read = feed(&db, session).await;
        assert_eq!(read.len(), acknowledged as usize);
        for (part, n) in read.iter().zip(0u32..) {
            assert_eq!((part.seq, part.id.index.0), (Seq(i64::from(n)), n));
            assert_eq!(part.bytes, text_of(n));
        }
        let end = end_of(acknowledged);
        db.record_turn_end(session, G1, &end).await.unwrap();
        let lease = leases.iter().find(|l| l.session == *session).unwrap();
        let settle = settle(T1, Cause::DriverEnded, SandboxAfter::Idle);
        db.settle(lease, &settle).await.unwrap();
        let verdict = format!("SELECT verdict FROM turns WHERE session_id = '{session}'");
        assert_eq!(database.sql(&verdict).unwrap().trim(), "complete");
    }
}
