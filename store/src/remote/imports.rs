//! Programs' own records, handed in: kept as they came, their rows written by the builder.

use std::collections::HashMap;

use bex_proto::RemoteSessionId;
use tokio_postgres::Row;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, int8, large, text, texts};

/// A record to keep.
#[derive(Debug, Clone)]
pub struct Import<'a> {
    /// The session.
    pub session: &'a RemoteSessionId,
    /// Of the lines.
    pub sha256: &'a str,
    /// It.
    pub lines: &'a str,
    /// Who hands it in.
    pub subject: &'a str,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imported {
    /// Kept; its rows are to be written.
    Kept,
    /// The same one was handed in before.
    Known,
    /// The session's log takes no more.
    Full,
    /// There is no such session.
    NotFound,
}

/// A record whose rows are not written.
#[derive(Debug, Clone)]
pub struct StoredImport {
    /// Which.
    pub sha256: String,
    /// It.
    pub lines: String,
    /// Its rows stand behind so many of the log; `None` until a builder has read what was there when it came.
    pub after_built: Option<u64>,
}

/// In the place of a number that is not known yet.
const UNPLACED: i64 = -1;

impl Db {
    /// Keeps a record.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn keep_import(&self, import: &Import<'_>) -> Result<Imported, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        tx.keep_remote(import.session).await?;
        let head = tx
            .query_opt(
                "keep_import",
                "SELECT bytes, byte_limit FROM remote_heads WHERE session_id = $1 FOR UPDATE",
                &[text(&import.session.as_str())],
            )
            .await?;
        let Some(head) = head else {
            return Ok(Imported::NotFound);
        };
        let length = i64::try_from(import.lines.len()).unwrap_or(i64::MAX);
        let known = tx
            .query_opt(
                "keep_import",
                "SELECT 1 FROM remote_imports WHERE session_id = $1 AND sha256 = $2",
                &[text(&import.session.as_str()), text(&import.sha256)],
            )
            .await?;
        if known.is_some() {
            return Ok(Imported::Known);
        }
        if get::<i64>(&head, "bytes")?.saturating_add(length) > get::<i64>(&head, "byte_limit")? {
            return Ok(Imported::Full);
        }
        tx.execute(
            "keep_import",
            "INSERT INTO remote_imports (session_id, sha256, lines, after_built, created_by) VALUES ($1, $2, $3, $4, $5)",
            &[
                text(&import.session.as_str()),
                text(&import.sha256),
                text(&import.lines),
                int8(&UNPLACED),
                text(&import.subject),
            ],
        )
        .await?;
        // its bytes count as read: the backlog is the log's
        tx.execute(
            "keep_import",
            "UPDATE remote_heads SET imports_waiting = imports_waiting + 1, again = true, revision = revision + 1,
                    bytes = bytes + $2, seen_bytes = seen_bytes + $2 WHERE session_id = $1",
            &[text(&import.session.as_str()), int8(&length)],
        )
        .await?;
        tx.commit().await?;
        Ok(Imported::Kept)
    }

    /// The oldest record whose rows are not written.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn waiting_import(
        &self,
        session: &RemoteSessionId,
    ) -> Result<Option<StoredImport>, StoreError> {
        let row = self
            .query_opt(
                "waiting_import",
                "SELECT sha256, lines, after_built FROM remote_imports WHERE session_id = $1 AND NOT applied
                  ORDER BY ordinal LIMIT 1",
                &[text(&session.as_str())],
            )
            .await?;
        row.map(|row| {
            Ok(StoredImport {
                sha256: get(&row, "sha256")?,
                lines: get(&row, "lines")?,
                after_built: match get::<i64>(&row, "after_built")? {
                    UNPLACED => None,
                    _ => Some(large(&row, "after_built")?),
                },
            })
        })
        .transpose()
    }

    /// Says once and for ever behind how many rows of the log a record's stand. `false`: the head moved from `revision`, or the place is known.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn place_import(
        &self,
        session: &RemoteSessionId,
        revision: u64,
        sha256: &str,
        after_built: u64,
    ) -> Result<bool, StoreError> {
        let placed = self
            .execute(
                "place_import",
                "WITH head AS (
                     UPDATE remote_heads SET revision = revision + 1 WHERE session_id = $1 AND revision = $2 RETURNING 1)
                 UPDATE remote_imports SET after_built = $4
                  WHERE session_id = $1 AND sha256 = $3 AND after_built = $5 AND EXISTS (SELECT 1 FROM head)",
                &[
                    text(&session.as_str()),
                    int8(&super::log::signed(revision)),
                    text(&sha256),
                    int8(&super::log::signed(after_built)),
                    int8(&UNPLACED),
                ],
            )
            .await?;
        Ok(placed > 0)
    }

    /// How many user rows below `position` say exactly each of these; what none says is absent.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn user_rows_saying(
        &self,
        session: &RemoteSessionId,
        contents: &[&str],
        below: u64,
    ) -> Result<HashMap<String, u64>, StoreError> {
        let rows = self
            .query(
                "user_rows_saying",
                "SELECT content AS said, count(*) AS rows FROM messages
                  WHERE session_id = $1 AND role = 'user' AND content = ANY ($2) AND position < $3 GROUP BY content",
                &[
                    text(&session.as_str()),
                    texts(&contents),
                    int8(&super::log::signed(below)),
                ],
            )
            .await?;
        counts(&rows)
    }

    /// How many turns of this session said exactly each of these, by their digests; what none said is absent.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn turns_saying(
        &self,
        session: &RemoteSessionId,
        text_sha256: &[&str],
    ) -> Result<HashMap<String, u64>, StoreError> {
        let rows = self
            .query(
                "turns_saying",
                "SELECT text_sha256 AS said, count(*) AS rows FROM remote_turns
                  WHERE session_id = $1 AND text_sha256 = ANY ($2) GROUP BY text_sha256",
                &[text(&session.as_str()), texts(&text_sha256)],
            )
            .await?;
        counts(&rows)
    }
}

fn counts(rows: &[Row]) -> Result<HashMap<String, u64>, StoreError> {
    rows.iter()
        .map(|row| Ok((get(row, "said")?, large(row, "rows")?)))
        .collect()
}
