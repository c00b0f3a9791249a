//! Who looks at which session, and when: a report wakes its session at once, a loop finds what a process that died left behind. Of one session
//! there is one look at a time in one process, and how many there are at once is bounded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bex_proto::remote::RemoteState;
use bex_proto::{Chain, RemoteSessionId};
use bex_store::remote::{Decided, Ending, RemoteSessionRow};
use bex_store::{Db, StoreError};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics::{RemoteMetrics, TickResult};

use super::pass::{Looked, Standing, look};

/// Looks at once: the store has 16 connections for everything.
const PARALLEL: usize = 4;
/// What builders may hold in memory between looks; beyond, one that rests is read again from its cursor, and one that looks keeps its place.
const HELD_BYTES: usize = 64 * 1024 * 1024;
/// Builders that are kept between looks.
const HELD: usize = 1000;
/// Between two looks at a session whose reports do not stop: each look writes the row that every report needs.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// How often sessions with a gap or an end to come are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Events that nobody has read for this long belong to a process that died.
const UNREAD: Duration = Duration::from_secs(3);
/// Sessions of one page of that.
const PAGE: u32 = 200;
/// Failures of one session in a row; then it waits for the sweep.
const FAILURES: u32 = 3;

/// The builders of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Builders {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    db: Db,
    metrics: RemoteMetrics,
    places: Semaphore,
    sessions: Mutex<HashMap<RemoteSessionId, Work>>,
    tasks: TaskTracker,
    cancel: CancellationToken,
}

/// One session's work.
#[derive(Debug)]
enum Work {
    /// Somebody looks, or waits for a place to; `again`: something came meanwhile.
    Looking { again: bool, bytes: usize },
    /// Nobody does; where the builder stands.
    Resting(Box<Standing>),
}

impl Builders {
    /// Builders that end with `cancel`.
    pub fn new(db: Db, metrics: RemoteMetrics, cancel: CancellationToken) -> Self {
        Self {
            shared: Arc::new(Shared {
                db,
                metrics,
                places: Semaphore::new(PARALLEL),
                sessions: Mutex::default(),
                tasks: TaskTracker::new(),
                cancel,
            }),
        }
    }

    /// Something of this session changed: it is looked at.
    pub fn wake(&self, session: &RemoteSessionId) {
        if let Some(standing) = self.shared.begin(session) {
            let shared = Arc::clone(&self.shared);
            // boxed: a builder's state is large, and most sessions rest
            let work = Box::pin(shared.work(session.clone(), standing));
            self.shared.tasks.spawn(work);
        }
    }

    /// Looks for what needs time to pass, or was left behind, until cancelled.
    pub async fn run(self) {
        let cancel = self.shared.cancel.clone();
        let mut every = interval(SWEEP);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while cancel.run_until_cancelled(every.tick()).await.is_some() {
            if let Some(Err(error)) = cancel.run_until_cancelled(self.sweep()).await {
                tracing::warn!(error = %Chain(&error), "remote sessions were not looked after");
            }
        }
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        let db = &self.shared.db;
        for session in db.left_remote_sessions(PAGE, UNREAD).await? {
            self.wake(&session);
        }
        let mut after = None;
        loop {
            let page = db
                .live_remote_sessions(after.as_ref(), PAGE, UNREAD)
                .await?;
            for row in &page {
                match self.give_up(row).await {
                    Ok(()) => {}
                    Err(error) if error.is_transient() => return Err(error),
                    // one session's trouble keeps no other waiting
                    Err(error) => {
                        tracing::warn!(session = %row.id, error = %Chain(&error), "a gap was not decided");
                    }
                }
                self.wake(&row.id);
            }
            match page.last() {
                Some(last) if page.len() == PAGE as usize => after = Some(last.id.clone()),
                _ => return Ok(()),
            }
        }
    }

    /// Gives up what was waited for long enough; of a session that ends these may be many. One with too many ends.
    async fn give_up(&self, row: &RemoteSessionRow) -> Result<(), StoreError> {
        let db = &self.shared.db;
        if row.head.next_index >= row.ending_index.unwrap_or(0).max(row.head.high_index) {
            return Ok(());
        }
        loop {
            match db.decide_gap(&row.id).await? {
                Decided::GivenUp(_) => {}
                Decided::Waiting => return Ok(()),
                Decided::TooMany => break,
            }
        }
        let ending = Ending {
            as_: RemoteState::Error,
            events: Some(row.head.next_index),
            error: Some("too many events never arrived"),
        };
        db.end_remote_session(&row.id, ending).await.map(drop)
    }
}

impl Shared {
    /// Marks a session as being looked at, unless somebody does.
    fn begin(&self, session: &RemoteSessionId) -> Option<Option<Standing>> {
        let mut sessions = self.lock();
        if let Some(Work::Looking { again, .. }) = sessions.get_mut(session) {
            *again = true;
            return None;
        }
        let standing = match sessions.remove(session) {
            Some(Work::Resting(standing)) => Some(*standing),
            _ => None,
        };
        let looking = Work::Looking {
            again: false,
            bytes: standing.as_ref().map_or(0, Standing::bytes),
        };
        sessions.insert(session.clone(), looking);
        Some(standing)
    }

    /// Looks until there is nothing more.
    async fn work(self: Arc<Self>, session: RemoteSessionId, mut standing: Option<Standing>) {
        let mut failures = 0;
        let mut place = None;
        loop {
            let begun = place.take();
            let at = standing.take();
            let once = async {
                let place = match begun {
                    Some(place) => place,
                    None => self.place().await,
                };
                (look(&self.db, &session, at).await, place)
            };
            let (looked, held) = self.cancel.run_until_cancelled(once).await.unzip();
            if let Some(looked) = &looked {
                self.metrics.looked(match looked {
                    Ok(_) => TickResult::Ok,
                    Err(_) => TickResult::Error,
                });
            }
            if let Some(Ok(_)) = looked {
                failures = 0;
            }
            match looked {
                Some(Ok(Looked::Again(at))) => {
                    // others may wait with what they hold; where that is too much, whoever has begun gets to its end
                    if self.note(&session, at.as_ref()) > HELD_BYTES {
                        place = held;
                    }
                    standing = at;
                }
                Some(Ok(Looked::Done(at))) => match self.rest(&session, Some(at)) {
                    Some(at) => {
                        drop(held);
                        standing = at;
                        let pause = sleep(LOOK_PAUSE);
                        let _ = self.cancel.run_until_cancelled(pause).await;
                    }
                    None => return,
                },
                Some(Err(error)) if failures < FAILURES => {
                    failures += 1;
                    tracing::warn!(%session, error = %Chain(&error), "a remote session was not read");
                }
                // the sweep comes back to it
                Some(Err(error)) => {
                    tracing::error!(%session, error = %Chain(&error), "a remote session is not read for now");
                    self.lock().remove(&session);
                    return;
                }
                Some(Ok(Looked::Gone)) | None => {
                    self.lock().remove(&session);
                    return;
                }
            }
        }
    }

    async fn place(&self) -> SemaphorePermit<'_> {
        self.places
            .acquire()
            .await
            .expect("the semaphore is never closed")
    }

    /// What all builders hold, now that this one holds so much.
    fn note(&self, session: &RemoteSessionId, standing: Option<&Standing>) -> usize {
        let mut sessions = self.lock();
        if let Some(Work::Looking { bytes, .. }) = sessions.get_mut(session) {
            *bytes = standing.map_or(0, Standing::bytes);
        }
        sessions.values().map(Work::bytes).sum()
    }

    /// Puts the builder away, or hands it back because something came meanwhile.
    fn rest(
        &self,
        session: &RemoteSessionId,
        standing: Option<Standing>,
    ) -> Option<Option<Standing>> {
        let mut sessions = self.lock();
        if let Some(Work::Looking { again, bytes }) = sessions.get_mut(session)
            && std::mem::take(again)
        {
            *bytes = standing.as_ref().map_or(0, Standing::bytes);
            return Some(standing);
        }
        sessions.remove(session);
        if let Some(standing) = standing {
            let mut held: usize = sessions.values().map(Work::bytes).sum();
            held += standing.bytes();
            sessions.insert(session.clone(), Work::Resting(Box::new(standing)));
            // whichever goes is read again from its cursor when something comes: the one with the least to read
            while held > HELD_BYTES || sessions.len() > HELD {
                let resting = sessions.iter().filter_map(|(id, work)| match work {
                    Work::Resting(standing) => Some((standing.unread(), id)),
                    Work::Looking { .. } => None,
                });
                let Some(id) = resting.min().map(|(_, id)| id.clone()) else {
                    break;
                };
                held -= sessions.remove(&id).map_or(0, |work| work.bytes());
            }
            self.metrics.held(sessions.len(), held);
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RemoteSessionId, Work>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    fn bytes(&self) -> usize {
        match self {
            Self::Looking { bytes, .. } => *bytes,
            Self::Resting(standing) => standing.bytes(),
        }
    }
}
