//! Since when nothing clear was seen of a turn. Kept in memory: when another replica takes over, the window begins again,
//! which errs on the side of waiting.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bex_proto::{SessionId, TurnNo};
use tokio::time::Instant;

/// An entry this old is of a session that another replica took over.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// One clock per session.
#[derive(Debug, Default)]
pub struct Clocks {
    since: Mutex<HashMap<SessionId, (TurnNo, Instant)>>,
}

impl Clocks {
    /// How long the turn is unclear; the clock starts when it did not run.
    pub fn unclear(&self, session: &SessionId, turn: TurnNo) -> Duration {
        let now = Instant::now();
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.retain(|_, (_, began)| now.duration_since(*began) < FORGET_AFTER);
        let entry = since.entry(session.clone()).or_insert((turn, now));
        if entry.0 != turn {
            *entry = (turn, now);
        }
        now.duration_since(entry.1)
    }

    /// Something clear was seen.
    pub fn clear(&self, session: &SessionId) {
        self.since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_runs_per_turn_until_something_clear_is_seen() {
        let (clocks, session) = (Clocks::default(), SessionId::random());
        assert_eq!(clocks.unclear(&session, TurnNo(1)), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(clocks.unclear(&session, TurnNo(1)), Duration::from_secs(7));
        assert_eq!(clocks.unclear(&session, TurnNo(2)), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(7)).await;
        clocks.clear(&session);
        assert_eq!(clocks.unclear(&session, TurnNo(2)), Duration::ZERO);
    }
}
