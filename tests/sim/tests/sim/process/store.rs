//! A process's calls of the store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bex_api::completer::store::CompleterStore;
use bex_gateway::hub::Speech;
use bex_gateway::hub::store::{SpeechStore, Stored};
use bex_proto::driver::TurnEnd;
use bex_proto::transcript::Part;
use bex_proto::{Generation, PartIndex, SessionId, TurnNo};
use bex_store::StoreError;
use bex_store::leases::{Lease, Round};
use bex_store::sandboxes::SandboxRow;
use bex_store::sessions::SessionRow;
use bex_store::settle::{Rejudged, Settle, Settled};
use bex_store::transcript::{Append, AppendError, AppendOutcome, HarvestStep, Marks};
use bex_store::turns::{RecordedEnd, TurnRow};
use futures::FutureExt;
use jiff::Timestamp;

use super::{Peer, Process};

/// A Completer's.
#[derive(Clone)]
pub struct Calls {
    pub process: Arc<Process>,
    pub store: Arc<dyn CompleterStore>,
}

/// A gateway's.
#[derive(Clone)]
pub struct Tees {
    pub process: Arc<Process>,
    pub store: Arc<dyn SpeechStore>,
}

fn timed_out(operation: &'static str) -> StoreError {
    StoreError::Timeout { operation }
}

/// Makes a call with arguments of its own, so that it can outlive its caller.
macro_rules! call {
    ($self:ident, $name:ident($($arg:ident),*)) => {{
        let store = Arc::clone(&$self.store);
        $self.process.call(
            Peer::Store,
            stringify!($name),
            move || {
                let store = Arc::clone(&store);
                $( let $arg = $arg.clone(); )*
                async move { store.$name($( $arg.lend() ),*).await }.boxed()
            },
            || Err(timed_out(stringify!($name)).into()),
        ).await
    }};
}

/// What an owned argument is lent as.
trait Lend {
    type As<'a>
    where
        Self: 'a;
    fn lend(&self) -> Self::As<'_>;
}

macro_rules! lent {
    (as reference: $($type:ty),*) => {
        $( impl Lend for $type { type As<'a> = &'a Self; fn lend(&self) -> &Self { self } } )*
    };
    (as copy: $($type:ty),*) => {
        $( impl Lend for $type { type As<'a> = Self; fn lend(&self) -> Self { *self } } )*
    };
}

lent!(as reference: SessionId, Lease, TurnEnd, Settle, Speech);
lent!(as copy: Generation, TurnNo, Duration, Round, u32);

impl Lend for String {
    type As<'a> = &'a str;
    fn lend(&self) -> &str {
        self
    }
}

impl Lend for Vec<Part> {
    type As<'a> = &'a [Part];
    fn lend(&self) -> &[Part] {
        self
    }
}

impl Lend for Option<(SessionId, Generation)> {
    type As<'a> = Option<(&'a SessionId, Generation)>;
    fn lend(&self) -> Self::As<'_> {
        self.as_ref().map(|(session, life)| (session, *life))
    }
}

/// A batch that outlives its caller.
#[derive(Clone)]
struct OwnedBatch {
    session: SessionId,
    turn: TurnNo,
    generation: Generation,
    parts: Vec<Part>,
    marks: Marks,
    harvest: Option<(String, u64, u64)>,
}

impl From<Append<'_>> for OwnedBatch {
    fn from(batch: Append<'_>) -> Self {
        let own = |step: HarvestStep<'_>| (step.log_id.to_owned(), step.from, step.to);
        Self {
            session: batch.session.clone(),
            turn: batch.turn,
            generation: batch.generation,
            parts: batch.parts.to_vec(),
            marks: batch.marks,
            harvest: batch.harvest.map(own),
        }
    }
}

impl Lend for OwnedBatch {
    type As<'a> = Append<'a>;
    fn lend(&self) -> Append<'_> {
        let step = self.harvest.as_ref();
        Append {
            session: &self.session,
            turn: self.turn,
            generation: self.generation,
            parts: &self.parts,
            marks: self.marks,
            harvest: step.map(|(log_id, from, to)| HarvestStep {
                log_id,
                from: *from,
                to: *to,
            }),
        }
    }
}

#[async_trait]
impl CompleterStore for Calls {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        call!(self, now())
    }
    async fn make_due(&self, session: &SessionId) -> Result<(), StoreError> {
        let session = session.clone();
        call!(self, make_due(session))
    }
    async fn claim_leases(
        &self,
        owner: &str,
        limit: u32,
        idle_grace: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        let owner = owner.to_owned();
        call!(self, claim_leases(owner, limit, idle_grace))
    }
    async fn renew_lease(&self, lease: &Lease) -> Result<bool, StoreError> {
        let lease = lease.clone();
        call!(self, renew_lease(lease))
    }
    async fn release_lease(
        &self,
        lease: &Lease,
        next_due: Duration,
        round: Round,
    ) -> Result<bool, StoreError> {
        let lease = lease.clone();
        call!(self, release_lease(lease, next_due, round))
    }
    async fn session(&self, session: &SessionId) -> Result<Option<SessionRow>, StoreError> {
        let session = session.clone();
        call!(self, session(session))
    }
    async fn open_turn(&self, session: &SessionId) -> Result<Option<TurnRow>, StoreError> {
        let session = session.clone();
        call!(self, open_turn(session))
    }
    async fn turn(&self, session: &SessionId, turn: TurnNo) -> Result<Option<TurnRow>, StoreError> {
        let session = session.clone();
        call!(self, turn(session, turn))
    }
    async fn sandbox(
        &self,
        session: &SessionId,
        life: Generation,
    ) -> Result<Option<SandboxRow>, StoreError> {
        let session = session.clone();
        call!(self, sandbox(session, life))
    }
    async fn living_sandboxes_of(
        &self,
        session: &SessionId,
    ) -> Result<Vec<SandboxRow>, StoreError> {
        let session = session.clone();
        call!(self, living_sandboxes_of(session))
    }
    async fn living_sandboxes(
        &self,
        after: Option<(&SessionId, Generation)>,
        limit: u32,
    ) -> Result<Vec<SandboxRow>, StoreError> {
        let after = after.map(|(session, life)| (session.clone(), life));
        call!(self, living_sandboxes(after, limit))
    }
    async fn last_harvest(
        &self,
        session: &SessionId,
        generation: Generation,
        turn: TurnNo,
    ) -> Result<Option<(String, u64)>, StoreError> {
        let session = session.clone();
        call!(self, last_harvest(session, generation, turn))
    }
    async fn harvest_offset(
        &self,
        session: &SessionId,
        generation: Generation,
        log_id: &str,
    ) -> Result<u64, StoreError> {
        let (session, log_id) = (session.clone(), log_id.to_owned());
        call!(self, harvest_offset(session, generation, log_id))
    }
    async fn harvested_at(
        &self,
        session: &SessionId,
        generation: Generation,
        turn: TurnNo,
    ) -> Result<Option<Timestamp>, StoreError> {
        let session = session.clone();
        call!(self, harvested_at(session, generation, turn))
    }
    async fn append(&self, batch: Append<'_>) -> Result<AppendOutcome, AppendError> {
        let batch = OwnedBatch::from(batch);
        call!(self, append(batch))
    }
    async fn record_turn_end(
        &self,
        session: &SessionId,
        generation: Generation,
        end: &TurnEnd,
    ) -> Result<RecordedEnd, StoreError> {
        let (session, end) = (session.clone(), end.clone());
        call!(self, record_turn_end(session, generation, end))
    }
    async fn contiguous_end(
        &self,
        session: &SessionId,
        turn: TurnNo,
    ) -> Result<PartIndex, StoreError> {
        let session = session.clone();
        call!(self, contiguous_end(session, turn))
    }
    async fn settle(&self, lease: &Lease, settle: &Settle) -> Result<Settled, StoreError> {
        let (lease, settle) = (lease.clone(), settle.clone());
        call!(self, settle(lease, settle))
    }
    async fn turns_to_rejudge(&self, session: &SessionId) -> Result<Vec<TurnNo>, StoreError> {
        let session = session.clone();
        call!(self, turns_to_rejudge(session))
    }
    async fn rejudge(&self, lease: &Lease, turn: TurnNo) -> Result<Rejudged, StoreError> {
        let lease = lease.clone();
        call!(self, rejudge(lease, turn))
    }
    async fn begin_stopping(&self, lease: &Lease, life: Generation) -> Result<bool, StoreError> {
        let lease = lease.clone();
        call!(self, begin_stopping(lease, life))
    }
    async fn keep_agent_session(
        &self,
        session: &SessionId,
        generation: Generation,
        name: &str,
    ) -> Result<(), StoreError> {
        let (session, name) = (session.clone(), name.to_owned());
        call!(self, keep_agent_session(session, generation, name))
    }
    async fn lose_idle(&self, session: &SessionId, life: Generation) -> Result<bool, StoreError> {
        let session = session.clone();
        call!(self, lose_idle(session, life))
    }
    async fn mark_gone(&self, lease: &Lease, life: Generation) -> Result<bool, StoreError> {
        let lease = lease.clone();
        call!(self, mark_gone(lease, life))
    }
    async fn retry_teardown(
        &self,
        lease: &Lease,
        life: Generation,
        delay: Duration,
    ) -> Result<bool, StoreError> {
        let lease = lease.clone();
        call!(self, retry_teardown(lease, life, delay))
    }
}

#[async_trait]
impl SpeechStore for Tees {
    async fn contiguous_end(&self, speech: &Speech) -> Result<PartIndex, StoreError> {
        let speech = speech.clone();
        call!(self, contiguous_end(speech))
    }
    async fn is_settled(&self, speech: &Speech) -> Result<bool, StoreError> {
        let speech = speech.clone();
        call!(self, is_settled(speech))
    }
    async fn append(&self, speech: &Speech, batch: &[Part]) -> Result<Stored, AppendError> {
        let (speech, batch) = (speech.clone(), batch.to_vec());
        call!(self, append(speech, batch))
    }
}
