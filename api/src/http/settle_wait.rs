//! The turns verb met an open turn. When its driver is already done, only the settle is missing: the verb wakes the
//! Completer and waits for it instead of sending the caller away.

use bex_proto::TurnNo;
use bex_proto::session::Verdict;
use bex_store::sessions::SessionRow;
use bex_store::wake::Channel;
use tokio::time::{Instant, timeout_at};

use super::sandbox_calls::{Activity, target_of};
use super::{Api, ApiError};

/// Whether an open turn settled in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It is settled: try again.
    Settled,
    /// It is still open.
    StillOpen,
}

impl Api {
    /// Waits for the settle of a turn whose driver is done, [`Api::turn_wait`] at most. A turn that is being
    /// spoken is not waited for.
    pub(super) async fn wait_for_settle(
        &self,
        session: &SessionRow,
        turn: TurnNo,
    ) -> Result<Waited, ApiError> {
        let deadline = Instant::now() + self.turn_wait;
        // subscribed before the first look, so that no settle falls between
        let mut notices = self.notices.subscribe();
        let activity = timeout_at(deadline, self.activity(session, turn)).await;
        if activity.unwrap_or(Ok(Activity::Unknown))? != Activity::Done {
            return self.look(session, turn).await;
        }
        self.db.notify(Channel::Wake, &session.id).await?;
        loop {
            if self.look(session, turn).await? == Waited::Settled {
                return Ok(Waited::Settled);
            }
            let heard = notices.heard(Channel::Settled, session.id.as_str());
            if timeout_at(deadline, heard).await.is_err() {
                return self.look(session, turn).await;
            }
        }
    }

    async fn look(&self, session: &SessionRow, turn: TurnNo) -> Result<Waited, ApiError> {
        let row = self.db.turn(&session.id, turn).await?;
        let open = row.is_some_and(|row| row.verdict == Verdict::Open);
        Ok(if open {
            Waited::StillOpen
        } else {
            Waited::Settled
        })
    }

    async fn activity(&self, session: &SessionRow, turn: TurnNo) -> Result<Activity, ApiError> {
        let Some(row) = self.db.turn(&session.id, turn).await? else {
            return Ok(Activity::Done);
        };
        // the harvest met the turn's end already
        if row.driver_state.is_some() || row.verdict != Verdict::Open {
            return Ok(Activity::Done);
        }
        let sandbox = self.db.sandbox(&session.id, row.generation).await?;
        let Some(target) = sandbox
            .as_ref()
            .and_then(|sandbox| target_of(session, sandbox))
        else {
            return Ok(Activity::Unknown);
        };
        if row.delivered_at.is_none() {
            return Ok(Activity::Speaking);
        }
        let known = self
            .db
            .last_harvest(&session.id, row.generation, turn)
            .await?;
        Ok(self
            .sandboxes
            .activity(&target, turn, known.map_or(0, |(_, offset)| offset))
            .await)
    }
}
