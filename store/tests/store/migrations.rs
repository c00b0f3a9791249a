//! The runner.

use bex_store::migrate::{MigrateError, SCHEMA_VERSION, SchemaError};
use bex_store::{Db, DbConfig, check_schema, migrate};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn migrations_apply_once_and_again_change_nothing() {
    let database = bex_testpg::server().unwrap().empty_database().unwrap();
    let config = DbConfig::new(&database.url, "test");
    let db = Db::connect(&config).unwrap();
    assert!(matches!(
        check_schema(&db).await,
        Err(SchemaError::TooOld { found: 0, .. })
    ));
    let first = migrate(&config).await.unwrap();
    assert_eq!(first.applied, (1..=SCHEMA_VERSION).collect::<Vec<_>>());
    assert_eq!(migrate(&config).await.unwrap().applied, Vec::<i32>::new());
    check_schema(&db).await.unwrap();
    database
        .sql(&format!(
            "DELETE FROM schema_migrations WHERE version = {SCHEMA_VERSION}"
        ))
        .unwrap();
    assert!(
        matches!(check_schema(&db).await, Err(SchemaError::TooOld { found, .. }) if found == SCHEMA_VERSION - 1)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_changed_migration_is_refused() {
    let database = bex_testpg::server().unwrap().empty_database().unwrap();
    let config = DbConfig::new(&database.url, "test");
    migrate(&config).await.unwrap();
    database
        .sql("UPDATE schema_migrations SET checksum = 'other' WHERE version = 2")
        .unwrap();
    assert!(matches!(
        migrate(&config).await,
        Err(MigrateError::ChecksumMismatch { version: 2 })
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn two_migrators_at_once_apply_each_migration_once() {
    let database = bex_testpg::server().unwrap().empty_database().unwrap();
    let config = DbConfig::new(&database.url, "test");
    let (a, b) = tokio::join!(migrate(&config), migrate(&config));
    let applied = a.unwrap().applied.len() + b.unwrap().applied.len();
    assert_eq!(i32::try_from(applied).unwrap(), SCHEMA_VERSION);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_newer_database_is_left_alone() {
    let database = bex_testpg::server().unwrap().empty_database().unwrap();
    let config = DbConfig::new(&database.url, "test");
    migrate(&config).await.unwrap();
    database.sql("INSERT INTO schema_migrations VALUES (9999, 'next', 'x'); GRANT SELECT ON leases TO bex_gateway").unwrap();
    assert_eq!(migrate(&config).await.unwrap().applied, Vec::<i32>::new());
    check_schema(&Db::connect(&config).unwrap()).await.unwrap();
    let kept = database
        .sql("SELECT has_table_privilege('bex_gateway', 'leases', 'SELECT')")
        .unwrap();
    assert_eq!(
        kept.trim(),
        "t",
        "the next release's grants are not taken back"
    );
}
