//! Which packages were made, when the first of each was, and which are to go because what they tell of was deleted.

use bex_proto::WorkspaceId;
use bex_proto::package::{PackageId, PackageKind};
use jiff::Timestamp;

use crate::error::StoreError;
use crate::pool::{Db, Tx};
use crate::sql::{float8, get, int8, text, texts, time, word};

/// A package's name: whose, of what, and of which content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageKey {
    /// Whose.
    pub workspace: WorkspaceId,
    /// Of what kind of thing.
    pub kind: PackageKind,
    /// Of which.
    pub id: String,
    /// With which content.
    pub package: PackageId,
}

/// What became of a package that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// Its first was made then.
    Since(Timestamp),
    /// Something it tells of was deleted meanwhile: it must not be stored.
    SourceGone,
}

/// Rows of one sweep.
const SWEEP_BATCH: i64 = 10_000;
/// Seconds from a deletion to the removal of objects: longer than an upload that had begun before takes.
const REMOVE_AFTER: i64 = 60;
/// Seconds until a removal that failed is tried again.
const REMOVE_AGAIN: i64 = 600;
/// Objects of one batch of removals.
const REMOVE_BATCH: i64 = 100;

impl Db {
    /// Records that a package was made, or asked for again, and says when its first was made; `now` where this is it. `sources` are the
    /// sessions and the execution that it tells of. None of them is deleted before this is recorded.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn renew_package(
        &self,
        key: &PackageKey,
        sources: &[String],
        now: Timestamp,
    ) -> Result<Renewed, StoreError> {
        let workspace = key.workspace.as_str();
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let mut there = 0;
        for table in ["sessions", "remote_sessions", "executions"] {
            let sql = format!(
                "SELECT 1 FROM {table} WHERE workspace_id = $1 AND id = ANY ($2) ORDER BY id FOR KEY SHARE"
            );
            let params = [text(&workspace), texts(&sources)];
            there += tx.query("renew_package", &sql, &params).await?.len();
        }
        if there < sources.len() {
            return Ok(Renewed::SourceGone);
        }
        let row = tx
            .query_one(
                "renew_package",
                "INSERT INTO packages (workspace_id, kind, id, package_id, generated_at, sources) VALUES ($1, $2, $3, $4, $5, $6)
                 ON CONFLICT (workspace_id, kind, id, package_id) DO UPDATE SET renewed_at = now(), sources = EXCLUDED.sources, remove_at = NULL
                 RETURNING generated_at",
                &[
                    text(&workspace),
                    text(&key.kind.as_str()),
                    text(&key.id),
                    text(&key.package.as_str()),
                    time(&now),
                    texts(&sources),
                ],
            )
            .await?;
        let first = get(&row, "generated_at")?;
        tx.commit().await?;
        Ok(Renewed::Since(first))
    }

    /// Packages whose objects are to be removed now: one batch, those that wait longest first.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn packages_to_remove(&self) -> Result<Vec<PackageKey>, StoreError> {
        let rows = self
            .query(
                "packages_to_remove",
                "SELECT workspace_id, kind, id, package_id FROM packages WHERE remove_at <= now() ORDER BY remove_at LIMIT $1",
                &[int8(&REMOVE_BATCH)],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(PackageKey {
                    workspace: word(row, "workspace_id")?,
                    kind: word(row, "kind")?,
                    id: get(row, "id")?,
                    package: word(row, "package_id")?,
                })
            })
            .collect()
    }

    /// Forgets a package whose object is removed, unless it was made again.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn forget_package(&self, key: &PackageKey) -> Result<(), StoreError> {
        self.execute(
            "forget_package",
            "DELETE FROM packages WHERE workspace_id = $1 AND kind = $2 AND id = $3 AND package_id = $4 AND remove_at <= now()",
            &[
                text(&key.workspace.as_str()),
                text(&key.kind.as_str()),
                text(&key.id),
                text(&key.package.as_str()),
            ],
        )
        .await
        .map(drop)
    }

    /// Puts off the removal of a package's object that failed, so that it stands behind all others.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn put_off_package(&self, key: &PackageKey) -> Result<(), StoreError> {
        self.execute(
            "put_off_package",
            "UPDATE packages SET remove_at = now() + $5 * interval '1 second'
              WHERE workspace_id = $1 AND kind = $2 AND id = $3 AND package_id = $4 AND remove_at <= now()",
            &[
                text(&key.workspace.as_str()),
                text(&key.kind.as_str()),
                text(&key.id),
                text(&key.package.as_str()),
                int8(&REMOVE_AGAIN),
            ],
        )
        .await
        .map(drop)
    }

    /// Forgets a batch of packages that nobody asked for in `days`; returns how many.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn sweep_packages(&self, days: u32) -> Result<u64, StoreError> {
        self.execute(
            "sweep_packages",
            "DELETE FROM packages WHERE ctid IN (SELECT ctid FROM packages
                WHERE renewed_at < now() - $1 * interval '1 day' ORDER BY renewed_at LIMIT $2)
                AND renewed_at < now() - $1 * interval '1 day'",
            &[float8(&f64::from(days)), int8(&SWEEP_BATCH)],
        )
        .await
    }
}

impl Tx<'_> {
    /// Packages that tell of `source` are to be removed soon. The caller has deleted it in this transaction, and so waited for whoever
    /// records one.
    pub(crate) async fn remove_packages_of(
        &self,
        workspace: &str,
        source: &str,
    ) -> Result<(), StoreError> {
        self.execute(
            "remove_packages_of",
            "UPDATE packages SET remove_at = now() + $3 * interval '1 second'
              WHERE workspace_id = $1 AND sources @> ARRAY[$2]",
            &[text(&workspace), text(&source), int8(&REMOVE_AFTER)],
        )
        .await
        .map(drop)
    }
}
