//! What the exec listener asks the store.

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use bex_proto::ticket::ExecClaims;
use bex_proto::{Generation, SessionId, TurnNo, limits};
use bex_store::StoreError;
use bex_store::pool::Db;
use bex_store::revocations::{Standing, StreamKey};
use bex_store::tickets::Burn;

/// What the sandbox row says beyond the ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRecord {
    /// A driver of the old form.
    pub legacy: bool,
    /// The ring key its driver key was derived from.
    pub driver_kid: String,
}

/// The store, as far as this listener needs it.
#[async_trait]
pub trait ExecRecords: Send + Sync {
    /// Uses up a ticket; `keep` is how long it could still be presented.
    async fn burn(&self, jti: &str, keep: Duration) -> Result<Burn, StoreError>;

    /// Whether a person's ticket is void by now.
    async fn is_revoked(
        &self,
        claims: &ExecClaims,
        session: &SessionId,
    ) -> Result<bool, StoreError>;

    /// One sandbox life's row.
    async fn sandbox(
        &self,
        session: &SessionId,
        generation: Generation,
    ) -> Result<Option<SandboxRecord>, StoreError>;

    /// The prompt of a turn that this generation is to speak.
    async fn prompt(
        &self,
        session: &SessionId,
        turn: TurnNo,
        generation: Generation,
    ) -> Result<Option<String>, StoreError>;
}

#[async_trait]
impl ExecRecords for Db {
    async fn burn(&self, jti: &str, keep: Duration) -> Result<Burn, StoreError> {
        self.burn_nonce(jti, keep).await
    }

    async fn is_revoked(
        &self,
        claims: &ExecClaims,
        session: &SessionId,
    ) -> Result<bool, StoreError> {
        let issued_at = jiff::Timestamp::from_second(claims.iat)
            .map_err(|_| StoreError::Corrupt { what: "issue time" })?;
        let key = StreamKey {
            workspace: claims.ws.clone(),
            subject: claims.sub.clone(),
            session: session.to_string(),
            issued_at,
        };
        Ok(self.standing(&key).await? != Standing::Good)
    }

    async fn sandbox(
        &self,
        session: &SessionId,
        generation: Generation,
    ) -> Result<Option<SandboxRecord>, StoreError> {
        let row = Db::sandbox(self, session, generation).await?;
        Ok(row.map(|row| SandboxRecord {
            legacy: row.legacy,
            driver_kid: row.driver_kid,
        }))
    }

    async fn prompt(
        &self,
        session: &SessionId,
        turn: TurnNo,
        generation: Generation,
    ) -> Result<Option<String>, StoreError> {
        let row = self.turn(session, turn).await?;
        Ok(row
            .filter(|row| row.generation == generation)
            .map(|row| row.prompt))
    }
}

/// Why the store gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordsError {
    #[error("a store operation failed")]
    Store(#[source] StoreError),
    #[error("a store operation took too long")]
    Slow,
}

/// Every question stands before an answer that somebody waits for.
pub(super) async fn bounded<T>(
    question: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, RecordsError> {
    match tokio::time::timeout(limits::ADMISSION_TIMEOUT, question).await {
        Ok(answer) => answer.map_err(RecordsError::Store),
        Err(_) => Err(RecordsError::Slow),
    }
}
