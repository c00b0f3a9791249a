//! Idempotency keys: same key and body, same answer; another body is a conflict. Claimed in the transaction that
//! creates, so a repeated request either finds what the first made or nothing at all.

use bex_proto::{SessionId, TurnNo, WorkspaceId, limits};
use tokio_postgres::Row;

use crate::error::StoreError;
use crate::pool::{Db, Tx};
use crate::sql::{float8, get, int4, int8, seconds, text, turn, turn_no, word};

/// A caller's key for one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// What it is a key for: the verb, and the session for verbs on one.
    pub scope: String,
    /// The header; at most [`limits::IDEMPOTENCY_KEY_BYTES`].
    pub key: String,
    /// Lower-case hexadecimal SHA-256 of the body.
    pub body_sha256: String,
}

/// Keys of one sweep.
const SWEEP_BATCH: i64 = 10_000;

/// What a key is known for.
pub(crate) enum Known {
    New,
    Same { session: SessionId, turn: TurnNo },
    OtherBody,
}

/// What a key is known for, where the answer is one id.
pub(crate) enum KnownAnswer {
    New,
    Same(String),
    OtherBody,
}

impl Tx<'_> {
    /// Claims the key for an answer that is one id, or says what it was used for.
    pub(crate) async fn claim_answer(
        &self,
        workspace: &WorkspaceId,
        idempotency: &Idempotency,
        answer: &str,
    ) -> Result<KnownAnswer, StoreError> {
        Ok(match self.claim(workspace, idempotency, answer, 0).await? {
            None => KnownAnswer::New,
            Some(row) if get::<&str>(&row, "body_sha256")? != idempotency.body_sha256 => {
                KnownAnswer::OtherBody
            }
            Some(row) => KnownAnswer::Same(get(&row, "session_id")?),
        })
    }

    /// Claims the key or says what it was used for. A concurrent claim of the same key waits for its transaction.
    pub(crate) async fn claim_key(
        &self,
        workspace: &WorkspaceId,
        idempotency: &Idempotency,
        session: &SessionId,
        number: TurnNo,
    ) -> Result<Known, StoreError> {
        let claimed = self
            .claim(workspace, idempotency, session.as_str(), turn_no(number))
            .await?;
        let Some(row) = claimed else {
            return Ok(Known::New);
        };
        if get::<&str>(&row, "body_sha256")? != idempotency.body_sha256 {
            return Ok(Known::OtherBody);
        }
        Ok(Known::Same {
            session: word(&row, "session_id")?,
            turn: turn(&row, "turn")?,
        })
    }

    /// The row of a key that was claimed before.
    async fn claim(
        &self,
        workspace: &WorkspaceId,
        idempotency: &Idempotency,
        answer: &str,
        number: i32,
    ) -> Result<Option<Row>, StoreError> {
        let claimed = self
            .execute(
                "claim_key",
                "INSERT INTO idempotency_keys (workspace_id, scope, key, body_sha256, session_id, turn)
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (workspace_id, scope, key) DO NOTHING",
                &[
                    text(&workspace.as_str()),
                    text(&idempotency.scope),
                    text(&idempotency.key),
                    text(&idempotency.body_sha256),
                    text(&answer),
                    int4(&number),
                ],
            )
            .await?;
        if claimed == 1 {
            return Ok(None);
        }
        self.query_one(
            "claim_key",
            "SELECT body_sha256, session_id, turn FROM idempotency_keys
              WHERE workspace_id = $1 AND scope = $2 AND key = $3",
            &[
                text(&workspace.as_str()),
                text(&idempotency.scope),
                text(&idempotency.key),
            ],
        )
        .await
        .map(Some)
    }
}

impl Db {
    /// Forgets keys older than [`limits::IDEMPOTENCY_TTL`], one bounded batch; returns how many.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn sweep_idempotency_keys(&self) -> Result<u64, StoreError> {
        self.execute(
            "sweep_idempotency_keys",
            "DELETE FROM idempotency_keys WHERE (workspace_id, scope, key) IN
               (SELECT workspace_id, scope, key FROM idempotency_keys
                 WHERE created_at < now() - $1 * interval '1 second' ORDER BY created_at LIMIT $2)",
            &[
                float8(&seconds(limits::IDEMPOTENCY_TTL)),
                int8(&SWEEP_BATCH),
            ],
        )
        .await
    }
}
