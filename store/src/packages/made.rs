//! Which packages were made, and when the first of each was.

use bex_proto::WorkspaceId;
use bex_proto::package::{PackageId, PackageKind};
use jiff::Timestamp;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{float8, get, int8, text, time};

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

/// Rows of one sweep.
const SWEEP_BATCH: i64 = 10_000;

impl Db {
    /// Records that a package was made, or asked for again, and says when its first was made; `now` where this is it.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn renew_package(
        &self,
        key: &PackageKey,
        now: Timestamp,
    ) -> Result<Timestamp, StoreError> {
        let row = self
            .query_one(
                "renew_package",
                "INSERT INTO packages (workspace_id, kind, id, package_id, generated_at) VALUES ($1, $2, $3, $4, $5)
                 ON CONFLICT (workspace_id, kind, id, package_id) DO UPDATE SET renewed_at = now()
                 RETURNING generated_at",
                &[
                    text(&key.workspace.as_str()),
                    text(&key.kind.as_str()),
                    text(&key.id),
                    text(&key.package.as_str()),
                    time(&now),
                ],
            )
            .await?;
        get(&row, "generated_at")
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
