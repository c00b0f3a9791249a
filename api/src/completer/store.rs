//! What the Completer asks of the store: every call it makes, and none besides. A trait, so that its real code also runs over
//! a model of the store that crashes, forgets and repeats as a test tells it.

use std::time::Duration;

use async_trait::async_trait;
use bex_proto::driver::TurnEnd;
use bex_proto::{Generation, PartIndex, SessionId, TurnNo};
use bex_store::leases::{Lease, Round};
use bex_store::sandboxes::SandboxRow;
use bex_store::sessions::SessionRow;
use bex_store::settle::{Rejudged, Settle, Settled};
use bex_store::transcript::{Append, AppendError, AppendOutcome};
use bex_store::turns::{RecordedEnd, TurnRow};
use bex_store::{Db, StoreError};
use jiff::Timestamp;

/// States each call once, and makes it [`Db`]'s own of the same name.
macro_rules! completer_store {
    ($( $(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty; )*) => {
        /// The store as the Completer sees it. Each call is the one of the same name of [`Db`], whose documentation holds for
        /// every implementation.
        #[async_trait]
        pub trait CompleterStore: Send + Sync {
            $( $(#[$doc])* async fn $name(&self, $($arg: $type),*) -> $answer; )*
        }

        #[async_trait]
        impl CompleterStore for Db {
            $( async fn $name(&self, $($arg: $type),*) -> $answer { Db::$name(self, $($arg),*).await } )*
        }
    };
}

completer_store! {
    /// The clock of all ages.
    fn now() -> Result<Timestamp, StoreError>;
    /// Due now, also while it is being worked on.
    fn make_due(session: &SessionId) -> Result<(), StoreError>;
    /// Due sessions, each for one claimer.
    fn claim_leases(owner: &str, limit: u32, idle_grace: Duration) -> Result<Vec<Lease>, StoreError>;
    /// False when the claim was lost.
    fn renew_lease(lease: &Lease) -> Result<bool, StoreError>;
    /// False when the claim was lost.
    fn release_lease(lease: &Lease, next_due: Duration, round: Round) -> Result<bool, StoreError>;
    /// One session.
    fn session(session: &SessionId) -> Result<Option<SessionRow>, StoreError>;
    /// Its open turn.
    fn open_turn(session: &SessionId) -> Result<Option<TurnRow>, StoreError>;
    /// One turn.
    fn turn(session: &SessionId, turn: TurnNo) -> Result<Option<TurnRow>, StoreError>;
    /// One sandbox life.
    fn sandbox(session: &SessionId, life: Generation) -> Result<Option<SandboxRow>, StoreError>;
    /// The session's lives that are not gone.
    fn living_sandboxes_of(session: &SessionId) -> Result<Vec<SandboxRow>, StoreError>;
    /// All lives that are not gone, by pages.
    fn living_sandboxes(after: Option<(&SessionId, Generation)>, limit: u32) -> Result<Vec<SandboxRow>, StoreError>;
    /// The log read last, and how far.
    fn last_harvest(session: &SessionId, generation: Generation, turn: TurnNo) -> Result<Option<(String, u64)>, StoreError>;
    /// How far that log was read.
    fn harvest_offset(session: &SessionId, generation: Generation, log_id: &str) -> Result<u64, StoreError>;
    /// When something new was last read of a turn's log.
    fn harvested_at(session: &SessionId, generation: Generation, turn: TurnNo) -> Result<Option<Timestamp>, StoreError>;
    /// Parts and the log's move, in one transaction.
    fn append(batch: Append<'_>) -> Result<AppendOutcome, AppendError>;
    /// Kept as soon as it was met.
    fn record_turn_end(session: &SessionId, generation: Generation, end: &TurnEnd) -> Result<RecordedEnd, StoreError>;
    /// The agent's own session, for the next generation's.
    fn keep_agent_session(session: &SessionId, generation: Generation, name: &str) -> Result<(), StoreError>;
    /// Where the stored prefix ends.
    fn contiguous_end(session: &SessionId, turn: TurnNo) -> Result<PartIndex, StoreError>;
    /// Verdict, phase and sandbox, in one transaction.
    fn settle(lease: &Lease, settle: &Settle) -> Result<Settled, StoreError>;
    /// Truncated turns that received parts.
    fn turns_to_rejudge(session: &SessionId) -> Result<Vec<TurnNo>, StoreError>;
    /// A second look at one of them.
    fn rejudge(lease: &Lease, turn: TurnNo) -> Result<Rejudged, StoreError>;
    /// The compare-and-set before a removal.
    fn begin_stopping(lease: &Lease, life: Generation) -> Result<bool, StoreError>;
    /// Of an idle one that was seen to be gone.
    fn lose_idle(session: &SessionId, life: Generation) -> Result<bool, StoreError>;
    /// Only of what was seen to be gone.
    fn mark_gone(lease: &Lease, life: Generation) -> Result<bool, StoreError>;
    /// Another removal, later.
    fn retry_teardown(lease: &Lease, life: Generation, delay: Duration) -> Result<bool, StoreError>;
}
