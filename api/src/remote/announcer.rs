//! Tells every process that a session has new events, a few milliseconds' worth at a time: a notice a report would make every commit wait
//! for every other.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bex_proto::{Chain, RemoteSessionId};
use bex_store::Db;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How long sessions are gathered for one notice: a viewer's p99 is 20 ms.
const GATHER: Duration = Duration::from_millis(4);

/// Where new events are announced. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Announcer {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// At most as many as there are open reports.
    sessions: Mutex<BTreeSet<String>>,
    some: Notify,
}

impl Announcer {
    /// This session has new events.
    pub fn announce(&self, session: &RemoteSessionId) {
        self.lock().insert(session.as_str().to_owned());
        self.shared.some.notify_one();
    }

    /// Tells until cancelled. A notice that fails is not repeated: viewers look for themselves every few seconds.
    pub async fn run(self, db: Db, cancel: CancellationToken) {
        while cancel
            .run_until_cancelled(self.shared.some.notified())
            .await
            .is_some()
        {
            sleep(GATHER).await;
            let sessions: Vec<String> = std::mem::take(&mut *self.lock()).into_iter().collect();
            if sessions.is_empty() {
                continue;
            }
            if let Err(error) = db.notify_remote(&sessions).await {
                tracing::warn!(error = %Chain(&error), "new events were not announced");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.shared
            .sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
