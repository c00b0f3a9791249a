//! The model as the Completer and the tee see it.

use std::time::Duration;

use async_trait::async_trait;
use bex_api::completer::store::CompleterStore;
use bex_gateway::hub::Speech;
use bex_gateway::hub::store::{SpeechStore, Stored};
use bex_proto::driver::TurnEnd;
use bex_proto::session::Verdict;
use bex_proto::transcript::Part;
use bex_proto::{Generation, PartIndex, SessionId, TurnNo};
use bex_store::StoreError;
use bex_store::leases::{Lease, Round};
use bex_store::sandboxes::{SandboxRow, SandboxState};
use bex_store::sessions::SessionRow;
use bex_store::settle::{Rejudged, Settle, Settled};
use bex_store::transcript::{Append, AppendError, AppendOutcome, Marks};
use bex_store::turns::{RecordedEnd, TurnRow};
use jiff::Timestamp;

use super::Model;

impl Model {
    pub fn living(&self, session: &SessionId) -> Vec<SandboxRow> {
        self.with(session, |session| {
            let rows = session.sandboxes.values().map(|life| life.row.clone());
            rows.filter(|row| row.state != SandboxState::Gone).collect()
        })
        .unwrap_or_default()
    }

    pub fn turn_row(&self, session: &SessionId, turn: TurnNo) -> Option<TurnRow> {
        self.with(session, |session| {
            session.turns.get(&turn).map(|turn| turn.row.clone())
        })
        .flatten()
    }
}

#[async_trait]
impl CompleterStore for Model {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(Model::now(self))
    }
    async fn make_due(&self, session: &SessionId) -> Result<(), StoreError> {
        Model::make_due(self, session);
        Ok(())
    }
    async fn claim_leases(
        &self,
        _: &str,
        limit: u32,
        idle_grace: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        Ok(Model::claim_leases(self, limit, idle_grace))
    }
    async fn renew_lease(&self, lease: &Lease) -> Result<bool, StoreError> {
        Ok(Model::renew_lease(self, lease))
    }
    async fn release_lease(
        &self,
        lease: &Lease,
        next_due: Duration,
        round: Round,
    ) -> Result<bool, StoreError> {
        Ok(Model::release_lease(self, lease, next_due, round))
    }
    async fn session(&self, session: &SessionId) -> Result<Option<SessionRow>, StoreError> {
        Ok(self.with(session, |session| session.row.clone()))
    }
    async fn open_turn(&self, session: &SessionId) -> Result<Option<TurnRow>, StoreError> {
        let open = self.with(session, |session| {
            let mut rows = session.turns.values().map(|turn| &turn.row);
            rows.find(|row| row.verdict == Verdict::Open).cloned()
        });
        Ok(open.flatten())
    }
    async fn turn(&self, session: &SessionId, turn: TurnNo) -> Result<Option<TurnRow>, StoreError> {
        Ok(self.turn_row(session, turn))
    }
    async fn sandbox(
        &self,
        session: &SessionId,
        life: Generation,
    ) -> Result<Option<SandboxRow>, StoreError> {
        let row = self.with(session, |session| {
            session.sandboxes.get(&life).map(|life| life.row.clone())
        });
        Ok(row.flatten())
    }
    async fn living_sandboxes_of(
        &self,
        session: &SessionId,
    ) -> Result<Vec<SandboxRow>, StoreError> {
        Ok(self.living(session))
    }
    async fn living_sandboxes(
        &self,
        after: Option<(&SessionId, Generation)>,
        limit: u32,
    ) -> Result<Vec<SandboxRow>, StoreError> {
        let ids = self.ids();
        let rows = ids.iter().flat_map(|id| self.living(id));
        Ok(rows
            .filter(|row| {
                after.is_none_or(|(id, life)| (&row.session, row.generation) > (id, life))
            })
            .take(limit as usize)
            .collect())
    }
    async fn last_harvest(
        &self,
        session: &SessionId,
        generation: Generation,
        turn: TurnNo,
    ) -> Result<Option<(String, u64)>, StoreError> {
        Ok(Model::last_harvest(self, session, generation, turn))
    }
    async fn harvest_offset(
        &self,
        session: &SessionId,
        generation: Generation,
        log_id: &str,
    ) -> Result<u64, StoreError> {
        Ok(Model::harvest_offset(self, session, generation, log_id))
    }
    async fn harvested_at(
        &self,
        session: &SessionId,
        generation: Generation,
        turn: TurnNo,
    ) -> Result<Option<Timestamp>, StoreError> {
        Ok(Model::harvested_at(self, session, generation, turn))
    }
    async fn append(&self, batch: Append<'_>) -> Result<AppendOutcome, AppendError> {
        Model::append(self, batch)
    }
    async fn record_turn_end(
        &self,
        session: &SessionId,
        generation: Generation,
        end: &TurnEnd,
    ) -> Result<RecordedEnd, StoreError> {
        Ok(Model::record_turn_end(self, session, generation, end))
    }
    async fn contiguous_end(
        &self,
        session: &SessionId,
        turn: TurnNo,
    ) -> Result<PartIndex, StoreError> {
        Ok(Model::contiguous_end(self, session, turn))
    }
    async fn settle(&self, lease: &Lease, settle: &Settle) -> Result<Settled, StoreError> {
        Ok(Model::settle(self, lease, settle))
    }
    async fn turns_to_rejudge(&self, session: &SessionId) -> Result<Vec<TurnNo>, StoreError> {
        Ok(Model::turns_to_rejudge(self, session))
    }
    async fn rejudge(&self, lease: &Lease, turn: TurnNo) -> Result<Rejudged, StoreError> {
        Ok(Model::rejudge(self, lease, turn))
    }
    async fn begin_stopping(&self, lease: &Lease, life: Generation) -> Result<bool, StoreError> {
        Ok(Model::begin_stopping(self, lease, life))
    }
    async fn keep_agent_session(
        &self,
        _: &SessionId,
        _: Generation,
        _: &str,
    ) -> Result<(), StoreError> {
        // nobody is dispatched again here
        Ok(())
    }
    async fn lose_idle(&self, session: &SessionId, life: Generation) -> Result<bool, StoreError> {
        Ok(Model::lose_idle(self, session, life))
    }
    async fn mark_gone(&self, lease: &Lease, life: Generation) -> Result<bool, StoreError> {
        Ok(Model::mark_gone(self, lease, life))
    }
    async fn retry_teardown(
        &self,
        lease: &Lease,
        life: Generation,
        delay: Duration,
    ) -> Result<bool, StoreError> {
        Ok(Model::retry_teardown(self, lease, life, delay))
    }
}

#[async_trait]
impl SpeechStore for Model {
    async fn contiguous_end(&self, speech: &Speech) -> Result<PartIndex, StoreError> {
        Ok(Model::contiguous_end(self, &speech.session, speech.turn))
    }
    async fn is_settled(&self, speech: &Speech) -> Result<bool, StoreError> {
        let row = self.turn_row(&speech.session, speech.turn);
        Ok(row.is_none_or(|row| row.settled_at.is_some()))
    }
    async fn append(&self, speech: &Speech, batch: &[Part]) -> Result<Stored, AppendError> {
        let outcome = Model::append(
            self,
            Append {
                session: &speech.session,
                turn: speech.turn,
                generation: speech.generation,
                parts: batch,
                marks: Marks::Clean,
                harvest: None,
            },
        )?;
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
