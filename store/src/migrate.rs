//! Migrations: numbered, forward only, each in its own transaction, under one session lock, with checksums.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio_postgres::Client;
use tracing::info;

use crate::config::{ConfigError, DbConfig};
use crate::error::StoreError;
use crate::pool::Db;

/// `(version, name, sql)` in order. Applied files are never edited.
const MIGRATIONS: &[(i32, &str, &str)] = &[
    (
        1,
        "sessions",
        include_str!("../migrations/0001_sessions.sql"),
    ),
    (
        2,
        "transcript",
        include_str!("../migrations/0002_transcript.sql"),
    ),
    (3, "work", include_str!("../migrations/0003_work.sql")),
    (4, "access", include_str!("../migrations/0004_access.sql")),
    (5, "append", include_str!("../migrations/0005_append.sql")),
    (6, "pages", include_str!("../migrations/0006_pages.sql")),
    (7, "unclear", include_str!("../migrations/0007_unclear.sql")),
    (8, "proof", include_str!("../migrations/0008_proof.sql")),
    (
        9,
        "retention",
        include_str!("../migrations/0009_retention.sql"),
    ),
    (
        10,
        "lost_streams",
        include_str!("../migrations/0010_lost_streams.sql"),
    ),
    (
        11,
        "agent_session",
        include_str!("../migrations/0011_agent_session.sql"),
    ),
    (12, "remote", include_str!("../migrations/0012_remote.sql")),
    (13, "unseen", include_str!("../migrations/0013_unseen.sql")),
    (
        14,
        "executions",
        include_str!("../migrations/0014_executions.sql"),
    ),
    (
        15,
        "packages",
        include_str!("../migrations/0015_packages.sql"),
    ),
    (
        16,
        "package_sources",
        include_str!("../migrations/0016_package_sources.sql"),
    ),
];

/// Key of the session lock ("bexmigr" in ASCII): one migrator at a time per database.
const LOCK_KEY: i64 = 0x0062_6578_6d69_6772;
/// How long a migrator waits for another one.
const LOCK_WAIT: Duration = Duration::from_secs(300);

/// The schema this release needs.
pub const SCHEMA_VERSION: i32 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// Changes with every migration: names test templates.
pub fn schema_fingerprint() -> String {
    let mut digest = Sha256::new();
    for (_, _, sql) in MIGRATIONS {
        digest.update(sql.as_bytes());
    }
    hex::encode(&digest.finalize()[..8])
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// Versions applied now, in order.
    pub applied: Vec<i32>,
}

/// Why a migration run stopped.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The URL.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The connection or a statement outside a migration.
    #[error("cannot migrate: {operation} failed")]
    Database {
        /// What was attempted.
        operation: &'static str,
        /// The driver's error.
        #[source]
        source: Box<tokio_postgres::Error>,
    },
    /// A migration's own SQL failed; nothing of it was kept.
    #[error("migration {version} ({name}) failed")]
    Migration {
        /// Its number.
        version: i32,
        /// Its name.
        name: &'static str,
        /// The driver's error.
        #[source]
        source: Box<tokio_postgres::Error>,
    },
    /// An applied migration is not the one this release carries.
    #[error("migration {version} was applied with another content than this release carries")]
    ChecksumMismatch {
        /// Its number.
        version: i32,
    },
    /// Another migrator held the lock for too long.
    #[error("another migration holds the lock for more than {0:?}")]
    Locked(Duration),
}

/// Why a binary refuses the database it found.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// Run `bex-api migrate` first.
    #[error(
        "the database schema is version {found}, this release needs {needed}; run `bex-api migrate`"
    )]
    TooOld {
        /// What is there; 0 for an empty database.
        found: i32,
        /// What is needed.
        needed: i32,
    },
    /// Store trouble.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Brings the database of `config` (a direct URL: the lock is a session's) to [`SCHEMA_VERSION`], then applies the
/// grants. A database that is newer is left alone: the previous release runs beside the next one.
///
/// # Errors
/// See [`MigrateError`]; what was applied before the failure stays.
pub async fn migrate(config: &DbConfig) -> Result<Migrated, MigrateError> {
    migrate_up_to(config, SCHEMA_VERSION).await
}

/// The same, but no further than `last`: an earlier release's schema, for what must be shown to survive the way from there. Without the
/// grants, which are this release's.
///
/// # Errors
/// As [`migrate`].
pub async fn migrate_up_to(config: &DbConfig, last: i32) -> Result<Migrated, MigrateError> {
    let (pg, tls) = config.parse()?;
    let (mut client, connection) = pg.connect(tls).await.map_err(failed("connect"))?;
    let driver = tokio::spawn(connection);
    let result = run(&mut client, last).await;
    // closing the connection releases the lock, also after a failure
    drop(client);
    let _ = driver.await;
    result
}

async fn run(client: &mut Client, last: i32) -> Result<Migrated, MigrateError> {
    let take_lock = format!("SELECT pg_advisory_lock({LOCK_KEY})");
    tokio::time::timeout(LOCK_WAIT, client.batch_execute(&take_lock))
        .await
        .map_err(|_| MigrateError::Locked(LOCK_WAIT))?
        .map_err(failed("lock"))?;
    client
        .batch_execute(
            "SET client_min_messages = warning;
             CREATE TABLE IF NOT EXISTS schema_migrations (
                 version    integer PRIMARY KEY,
                 name       text NOT NULL,
                 checksum   text NOT NULL,
                 applied_at timestamptz NOT NULL DEFAULT now())",
        )
        .await
        .map_err(failed("schema_migrations"))?;
    let rows = client
        .query("SELECT version, checksum FROM schema_migrations", &[])
        .await
        .map_err(failed("schema_migrations"))?;
    let known: Vec<(i32, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut applied = Vec::new();
    let wanted = MIGRATIONS.iter().filter(|(version, ..)| *version <= last);
    for (version, name, sql) in wanted.copied() {
        let checksum = hex::encode(Sha256::digest(sql.as_bytes()));
        match known.iter().find(|(v, _)| *v == version) {
            Some((_, found)) if *found == checksum => continue,
            Some(_) => return Err(MigrateError::ChecksumMismatch { version }),
            None => {}
        }
        apply(client, version, name, sql, &checksum)
            .await
            .map_err(|source| MigrateError::Migration {
                version,
                name,
                source: Box::new(source),
            })?;
        info!(version, name, "migration applied");
        applied.push(version);
    }
    let is_newest = known.iter().all(|(version, _)| *version <= SCHEMA_VERSION);
    if is_newest && last == SCHEMA_VERSION {
        crate::roles::apply_grants(client)
            .await
            .map_err(failed("grants"))?;
    }
    Ok(Migrated { applied })
}

async fn apply(
    client: &mut Client,
    version: i32,
    name: &str,
    sql: &str,
    checksum: &str,
) -> Result<(), tokio_postgres::Error> {
    let tx = client.transaction().await?;
    tx.batch_execute(sql).await?;
    tx.execute(
        "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, $2, $3)",
        &[&version, &name, &checksum],
    )
    .await?;
    tx.commit().await
}

fn failed(operation: &'static str) -> impl Fn(tokio_postgres::Error) -> MigrateError {
    move |source| MigrateError::Database {
        operation,
        source: Box::new(source),
    }
}

/// Refuses a schema older than this release.
///
/// # Errors
/// [`SchemaError::TooOld`], also for an empty database.
pub async fn check_schema(db: &Db) -> Result<(), SchemaError> {
    let exists = db
        .query_one(
            "check_schema",
            "SELECT to_regclass('public.schema_migrations') IS NOT NULL AS found",
            &[],
        )
        .await?;
    let found = if crate::sql::get(&exists, "found")? {
        let row = db
            .query_one(
                "check_schema",
                "SELECT COALESCE(max(version), 0) AS found FROM schema_migrations",
                &[],
            )
            .await?;
        crate::sql::get(&row, "found")?
    } else {
        0
    };
    if found < SCHEMA_VERSION {
        return Err(SchemaError::TooOld {
            found,
            needed: SCHEMA_VERSION,
        });
    }
    Ok(())
}
