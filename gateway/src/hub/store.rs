//! What the hub asks of the store, small enough to be scripted.

use async_trait::async_trait;
use bex_proto::PartIndex;
use bex_proto::transcript::Part;
use bex_store::transcript::{Append, AppendError, AppendOutcome, Marks};
use bex_store::{Db, StoreError};

use super::Speech;

/// What a batch came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// All of it is in the store now.
    All,
    /// The session's quota refused some: nothing later will be accepted either.
    Quota,
    /// The store takes nothing more of this turn from here.
    Refused,
}

/// The store as sources and tees see it.
#[async_trait]
pub trait SpeechStore: Send + Sync {
    /// The first index of the turn that is not stored.
    ///
    /// # Errors
    /// Store trouble.
    async fn contiguous_end(&self, speech: &Speech) -> Result<PartIndex, StoreError>;

    /// Whether nothing more of the turn is waited for: it is settled, or not there any more.
    ///
    /// # Errors
    /// Store trouble.
    async fn is_settled(&self, speech: &Speech) -> Result<bool, StoreError>;

    /// Appends one batch; repeating it is safe.
    ///
    /// # Errors
    /// Store trouble, or parts that cannot be stored; whether the batch was stored is not known.
    async fn append(&self, speech: &Speech, batch: &[Part]) -> Result<Stored, AppendError>;
}

#[async_trait]
impl SpeechStore for Db {
    async fn contiguous_end(&self, speech: &Speech) -> Result<PartIndex, StoreError> {
        Db::contiguous_end(self, &speech.session, speech.turn).await
    }

    async fn is_settled(&self, speech: &Speech) -> Result<bool, StoreError> {
        let row = self
            .turn_without_prompt(&speech.session, speech.turn)
            .await?;
        Ok(row.is_none_or(|row| row.settled_at.is_some()))
    }

    async fn append(&self, speech: &Speech, batch: &[Part]) -> Result<Stored, AppendError> {
        let outcome = Db::append(
            self,
            Append {
                session: &speech.session,
                turn: speech.turn,
                generation: speech.generation,
                parts: batch,
                marks: Marks::Clean,
                harvest: None,
            },
        )
        .await?;
        Ok(match outcome {
            AppendOutcome::Stored(counts) if counts.refused_quota > 0 => Stored::Quota,
            AppendOutcome::Stored(counts) if counts.refused_declared > 0 => Stored::Refused,
            AppendOutcome::Stored(_) | AppendOutcome::Complete => Stored::All,
            AppendOutcome::WrongGeneration
            | AppendOutcome::UnknownTurn
            | AppendOutcome::OffsetMoved => Stored::Refused,
        })
    }
}
