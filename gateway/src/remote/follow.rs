//! One look at a watched session for all who watch it here: begun with the first viewer, ended with the last.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bex_proto::{Chain, RemoteSessionId, limits};
use bex_store::remote::DurableTurn;
use bex_store::{Db, StoreError};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::tail::{Tail, TailEnd};
use crate::attach::rooms::{Rooms, Seat};

/// Delay between two attempts to reach the store.
pub(super) const STORE_AGAIN: Duration = Duration::from_millis(500);
/// Turns read at once.
pub(super) const TURNS: u32 = 1000;

/// Every session that is watched here.
#[derive(Debug)]
pub struct Follows {
    db: Db,
    rooms: Arc<Rooms>,
    sessions: Mutex<HashMap<RemoteSessionId, Weak<Follow>>>,
}

/// A watched session; its viewers hold it.
#[derive(Debug)]
pub struct Follow {
    /// What was seen.
    pub(super) tail: Arc<Tail>,
    follows: Arc<Follows>,
    session: RemoteSessionId,
    _task: AbortOnDropHandle<()>,
}

impl Follows {
    /// Nothing is watched yet. Sessions are looked at when their `rooms` are woken, too.
    pub fn new(db: Db, rooms: Arc<Rooms>) -> Arc<Self> {
        Arc::new(Self {
            db,
            rooms,
            sessions: Mutex::default(),
        })
    }

    /// Watches a session, with those who do already.
    pub fn follow(self: &Arc<Self>, session: &RemoteSessionId) -> Arc<Follow> {
        let mut sessions = self.sessions();
        let running = sessions.get(session).and_then(Weak::upgrade);
        if let Some(follow) = &running
            && !follow.tail.has_ended()
        {
            return Arc::clone(follow);
        }
        let tail = Arc::new(Tail::default());
        let looking = Looking {
            db: self.db.clone(),
            session: session.clone(),
            tail: Arc::clone(&tail),
        };
        // from before the first look on
        let seat = self.rooms.enter(session.as_str());
        let follow = Arc::new(Follow {
            tail,
            follows: Arc::clone(self),
            session: session.clone(),
            _task: AbortOnDropHandle::new(tokio::spawn(looking.run(seat))),
        });
        sessions.insert(session.clone(), Arc::downgrade(&follow));
        // the one that ended may be nobody's by now, and its end takes the lock
        drop(sessions);
        drop(running);
        follow
    }

    /// Sessions that are watched, for metrics.
    pub fn count(&self) -> usize {
        self.sessions().len()
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<RemoteSessionId, Weak<Follow>>> {
        // a map of references is consistent after any panic
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let mut sessions = self.follows.sessions();
        // another one may be in its place
        if sessions
            .get(&self.session)
            .is_some_and(|follow| follow.strong_count() == 0)
        {
            sessions.remove(&self.session);
        }
    }
}

/// The task that looks.
struct Looking {
    db: Db,
    session: RemoteSessionId,
    tail: Arc<Tail>,
}

/// What a look came to.
#[derive(Debug, PartialEq, Eq)]
enum Looked {
    /// There is more.
    Partly,
    /// That was all, for now.
    Wholly,
    /// There is no such session.
    Gone,
}

impl Drop for Looking {
    fn drop(&mut self) {
        // whoever still reads must not wait for what nobody looks at; the first end holds
        self.tail.finish(TailEnd::Store);
    }
}

impl Looking {
    async fn run(self, mut seat: Seat) {
        let mut well = Instant::now();
        loop {
            // what changes from now on is looked at again
            seat.take_change();
            match self.look().await {
                Ok(Looked::Partly) => well = Instant::now(),
                Ok(Looked::Wholly) => {
                    // a notice may be lost
                    let _ = timeout(limits::REMOTE_LOOK, seat.changed()).await;
                    well = Instant::now();
                }
                Ok(Looked::Gone) => return self.tail.finish(TailEnd::Gone),
                Err(error) => {
                    if !error.is_transient() || well.elapsed() >= limits::SOURCE_RETRY {
                        let session = &self.session;
                        tracing::warn!(%session, error = %Chain(&error), "a remote session cannot be read");
                        return self.tail.finish(TailEnd::Store);
                    }
                    sleep(STORE_AGAIN).await;
                }
            }
        }
    }

    async fn look(&self) -> Result<Looked, StoreError> {
        let from = self.tail.next();
        let range = limits::REMOTE_PAGE_EVENTS;
        let Some(look) = self.db.look_at_remote(&self.session, from, range).await? else {
            return Ok(Looked::Gone);
        };
        let turns = match self.tail.next_turn(&look.standing) {
            Some(turn) => self.db.durable_turns(&self.session, turn, TURNS).await?,
            None => Vec::<DurableTurn>::new(),
        };
        self.tail.push(&look, &turns);
        let is_whole = look.covered >= look.standing.next_index
            && self.tail.next_turn(&look.standing).is_none();
        Ok(if is_whole {
            Looked::Wholly
        } else {
            Looked::Partly
        })
    }
}
