//! Machines and their tokens. Only a token's SHA-256 is kept.

use bex_proto::{MachineId, WorkspaceId, limits};
use jiff::Timestamp;
use tokio_postgres::Row;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{float8, get, int8, text, time, word};
use crate::wake::Channel;

/// One machine.
#[derive(Debug, Clone)]
pub struct MachineRow {
    /// Its id.
    pub id: MachineId,
    /// The owner.
    pub workspace: WorkspaceId,
    /// For people.
    pub name: String,
    /// Who registered it.
    pub created_by: String,
    /// When.
    pub created_at: Timestamp,
    /// Its last call, to about ten seconds.
    pub last_seen_at: Option<Timestamp>,
    /// What it says of itself, JSON.
    pub detail: Option<String>,
    /// Since when its tokens are void.
    pub revoked_at: Option<Timestamp>,
}

/// A machine to register.
#[derive(Debug, Clone)]
pub struct NewMachine<'a> {
    /// A fresh id.
    pub id: &'a MachineId,
    /// The owner.
    pub workspace: &'a WorkspaceId,
    /// For people.
    pub name: &'a str,
    /// Who registers it.
    pub created_by: &'a str,
    /// Lower-case hexadecimal SHA-256 of its first token.
    pub token_sha256: &'a str,
}

/// How precise `last_seen_at` is: a busy machine does not write with every call.
const SEEN_EVERY_SECONDS: f64 = 10.0;

const COLUMNS: &str = "m.id, m.workspace_id, m.name, m.created_by, m.created_at, m.last_seen_at, m.detail, m.revoked_at";

impl MachineRow {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: word(row, "id")?,
            workspace: word(row, "workspace_id")?,
            name: get(row, "name")?,
            created_by: get(row, "created_by")?,
            created_at: get(row, "created_at")?,
            last_seen_at: get(row, "last_seen_at")?,
            detail: get(row, "detail")?,
            revoked_at: get(row, "revoked_at")?,
        })
    }
}

impl Db {
    /// Registers a machine with its first token.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn create_machine(&self, new: &NewMachine<'_>) -> Result<MachineRow, StoreError> {
        let sql = format!(
            "WITH made AS (INSERT INTO machines (id, workspace_id, name, created_by) VALUES ($1, $2, $3, $4) RETURNING *),
                  token AS (INSERT INTO machine_tokens (sha256, machine_id) SELECT $5, id FROM made)
             SELECT {COLUMNS} FROM made m"
        );
        let row = self
            .query_one(
                "create_machine",
                &sql,
                &[
                    text(&new.id.as_str()),
                    text(&new.workspace.as_str()),
                    text(&new.name),
                    text(&new.created_by),
                    text(&new.token_sha256),
                ],
            )
            .await?;
        MachineRow::read(&row)
    }

    /// The machine a token belongs to, where both are good. A token whose former one was replaced makes that one void: the machine has it.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn machine_of_token(&self, sha256: &str) -> Result<Option<MachineRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM machine_tokens t JOIN machines m ON m.id = t.machine_id
              WHERE t.sha256 = $1 AND m.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())"
        );
        let row = self
            .query_opt("machine_of_token", &sql, &[text(&sha256)])
            .await?;
        row.as_ref().map(MachineRow::read).transpose()
    }

    /// One machine, revoked or not.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn machine(&self, id: &MachineId) -> Result<Option<MachineRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM machines m WHERE m.id = $1");
        let row = self
            .query_opt("machine", &sql, &[text(&id.as_str())])
            .await?;
        row.as_ref().map(MachineRow::read).transpose()
    }

    /// A page of a workspace's machines, newest first.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn machines(
        &self,
        workspace: &WorkspaceId,
        after: Option<(Timestamp, &MachineId)>,
        limit: u32,
    ) -> Result<Vec<MachineRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM machines m WHERE m.workspace_id = $1
                AND ($2 IS NULL OR (m.created_at, m.id) < ($2, $3))
              ORDER BY m.created_at DESC, m.id DESC LIMIT $4"
        );
        let (at, id) = (after.map(|(at, _)| at), after.map(|(_, id)| id.as_str()));
        let rows = self
            .query(
                "machines",
                &sql,
                &[
                    text(&workspace.as_str()),
                    time(&at),
                    text(&id),
                    int8(&i64::from(limit)),
                ],
            )
            .await?;
        rows.iter().map(MachineRow::read).collect()
    }

    /// A machine was heard: at most one write in ten seconds, but always when it says something of itself.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn machine_seen(
        &self,
        id: &MachineId,
        detail: Option<&str>,
    ) -> Result<(), StoreError> {
        self.execute(
            "machine_seen",
            "UPDATE machines SET last_seen_at = now(), detail = COALESCE($2, detail)
              WHERE id = $1 AND ($2 IS NOT NULL OR last_seen_at IS NULL
                 OR last_seen_at < now() - $3 * interval '1 second')",
            &[
                text(&id.as_str()),
                text(&detail),
                float8(&SEEN_EVERY_SECONDS),
            ],
        )
        .await
        .map(drop)
    }

    /// Gives a machine another token; the former ones are good for [`limits::MACHINE_TOKEN_GRACE`] more. `false`: there is no such machine, or
    /// it was revoked.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn rotate_machine_token(
        &self,
        id: &MachineId,
        token_sha256: &str,
    ) -> Result<bool, StoreError> {
        let grace = limits::MACHINE_TOKEN_GRACE.as_secs_f64();
        let made = self
            .execute(
                "rotate_machine_token",
                "WITH living AS (SELECT id FROM machines WHERE id = $1 AND revoked_at IS NULL FOR UPDATE),
                      former AS (UPDATE machine_tokens t
                                    SET expires_at = LEAST(t.expires_at, now() + $3 * interval '1 second')
                                   FROM living l WHERE t.machine_id = l.id),
                      stale AS (DELETE FROM machine_tokens WHERE machine_id = $1 AND expires_at < now())
                 INSERT INTO machine_tokens (sha256, machine_id) SELECT $2, id FROM living",
                &[text(&id.as_str()), text(&token_sha256), float8(&grace)],
            )
            .await?;
        Ok(made == 1)
    }

    /// Makes a machine's tokens void for good, and tells whoever holds a call of it. `false`: it was so already, or there is none.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn revoke_machine(&self, id: &MachineId) -> Result<bool, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let revoked = tx
            .execute(
                "revoke_machine",
                "UPDATE machines SET revoked_at = now() WHERE id = $1 AND revoked_at IS NULL",
                &[text(&id.as_str())],
            )
            .await?;
        tx.notify(Channel::Machine, id.as_str()).await?;
        tx.commit().await?;
        Ok(revoked == 1)
    }
}
