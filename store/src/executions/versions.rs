//! Versions of configuration as they ran. A version never changes.

use bex_proto::WorkspaceId;
use bex_proto::execution::ConfigKind;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::pages::Page;
use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, int8, text, time, word};

/// What has versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigKey {
    /// What it is.
    pub kind: ConfigKind,
    /// Its id within the workspace; of models, their scope.
    pub id: String,
}

/// One version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigVersion {
    /// Of what.
    pub key: ConfigKey,
    /// Its name.
    pub version: String,
    /// JSON; `None` in lists.
    pub body: Option<String>,
    /// Of the body's bytes.
    pub sha256: String,
    /// When it was recorded first.
    pub recorded_at: Timestamp,
    /// By whom.
    pub recorded_by: String,
}

/// Where a list ended: the next page begins behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionCursor {
    /// Of the last item.
    pub recorded_at: Timestamp,
    /// Of the last item.
    pub version: String,
}

/// What became of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionRecorded {
    /// It is new.
    New(Box<ConfigVersion>),
    /// The same was recorded before.
    Known(Box<ConfigVersion>),
    /// The version has another body.
    Conflict,
    /// The workspace is being deleted.
    WorkspaceDeleting,
}

impl ConfigVersion {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            key: ConfigKey {
                kind: word(row, "kind")?,
                id: get(row, "id")?,
            },
            version: get(row, "version")?,
            body: get(row, "body")?,
            sha256: get(row, "sha256")?,
            recorded_at: get(row, "recorded_at")?,
            recorded_by: get(row, "recorded_by")?,
        })
    }
}

/// Creates the row, or says that it was seen again. No row: it has another body.
const RECORD: &str = "
    INSERT INTO config_versions AS c (workspace_id, kind, id, version, body, sha256, recorded_by)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (workspace_id, kind, id, version) DO UPDATE SET seen_at = now() WHERE c.sha256 = excluded.sha256
    RETURNING c.kind, c.id, c.version, NULL AS body, c.sha256, c.recorded_at, c.recorded_by, c.xmax = 0 AS is_new";

const READ: &str = "
    SELECT kind, id, version, body, sha256, recorded_at, recorded_by FROM config_versions
     WHERE workspace_id = $1 AND kind = $2 AND id = $3 AND version = $4";

const LIST: &str = "
    SELECT q.*, NULL AS body, count(*) OVER () AS found
      FROM (SELECT kind, id, version, sha256, recorded_at, recorded_by FROM config_versions
             WHERE workspace_id = $1 AND kind = $2 AND id = $3 AND ($4 IS NULL OR (recorded_at, version) < ($4, $5))
             ORDER BY recorded_at DESC, version DESC LIMIT $6) q
     ORDER BY q.recorded_at DESC, q.version DESC";

impl Db {
    /// Records a version with its JSON body. The answer has no body.
    ///
    /// # Errors
    /// Store trouble; nothing was recorded then.
    pub async fn record_version(
        &self,
        workspace: &WorkspaceId,
        key: &ConfigKey,
        version: &str,
        (body, sha256): (&str, &str),
        subject: &str,
    ) -> Result<VersionRecorded, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        if !tx.may_record(workspace).await? {
            return Ok(VersionRecorded::WorkspaceDeleting);
        }
        let row = tx
            .query_opt(
                "record_version",
                RECORD,
                &[
                    text(&workspace.as_str()),
                    text(&key.kind.as_str()),
                    text(&key.id),
                    text(&version),
                    text(&body),
                    text(&sha256),
                    text(&subject),
                ],
            )
            .await?;
        let Some(row) = row else {
            return Ok(VersionRecorded::Conflict);
        };
        let recorded = Box::new(ConfigVersion::read(&row)?);
        let is_new = get(&row, "is_new")?;
        tx.commit().await?;
        Ok(if is_new {
            VersionRecorded::New(recorded)
        } else {
            VersionRecorded::Known(recorded)
        })
    }

    /// One version with its body.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn config_version(
        &self,
        workspace: &WorkspaceId,
        key: &ConfigKey,
        version: &str,
    ) -> Result<Option<ConfigVersion>, StoreError> {
        self.query_opt(
            "config_version",
            READ,
            &[
                text(&workspace.as_str()),
                text(&key.kind.as_str()),
                text(&key.id),
                text(&version),
            ],
        )
        .await?
        .as_ref()
        .map(ConfigVersion::read)
        .transpose()
    }

    /// Versions without bodies, those that were recorded last first; at most `limit`.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn config_versions(
        &self,
        workspace: &WorkspaceId,
        key: &ConfigKey,
        after: Option<&VersionCursor>,
        limit: u32,
    ) -> Result<Page<ConfigVersion>, StoreError> {
        let rows = self
            .query(
                "config_versions",
                LIST,
                &[
                    text(&workspace.as_str()),
                    text(&key.kind.as_str()),
                    text(&key.id),
                    time(&after.map(|cursor| cursor.recorded_at)),
                    text(&after.map(|cursor| cursor.version.as_str())),
                    int8(&(i64::from(limit) + 1)),
                ],
            )
            .await?;
        Page::read(&rows, limit, ConfigVersion::read)
    }
}
