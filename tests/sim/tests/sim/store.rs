//! The store as a model: contract section 6 over maps, one lock, the verdicts by the store's own `judge`. Every operation is
//! the one of the same name of `bex_store::Db` and answers as it does; [`crate::conformance`] holds the two together.

mod append;
mod completer;
mod dispatch;
mod leases;
mod settle;
mod verbs;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bex_proto::session::TruncationReason;
use bex_proto::{Generation, SessionId, TurnNo, limits};
use bex_store::sandboxes::SandboxRow;
use bex_store::sessions::SessionRow;
use bex_store::turns::TurnRow;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// See the module's text.
#[derive(Debug)]
pub struct Model {
    began: Instant,
    /// Milliseconds by which the store's clock was stepped.
    stepped: AtomicI64,
    state: Mutex<BTreeMap<SessionId, Session>>,
}

/// Everything of one session.
#[derive(Debug)]
pub struct Session {
    pub row: SessionRow,
    pub byte_limit: u64,
    pub part_limit: u64,
    pub turns: BTreeMap<TurnNo, Turn>,
    pub sandboxes: BTreeMap<Generation, Life>,
    pub parts: BTreeMap<(TurnNo, u32), Stored>,
    pub offsets: BTreeMap<(Generation, String), Offset>,
    pub dispatch: Option<Dispatch>,
    pub lease: LeaseRow,
    pub generation: u32,
    /// Counts moves of offsets, to tell which was the last.
    pub moves: u64,
    /// It takes no batch of parts and never will.
    pub refuses: bool,
    /// Every verdict that was ever written.
    pub verdicts: Vec<Written>,
    /// Every phase that was ever terminal.
    pub ends: u32,
}

#[derive(Debug)]
pub struct Turn {
    pub row: TurnRow,
    pub rejudge: bool,
}

#[derive(Debug)]
pub struct Life {
    pub row: SandboxRow,
    pub first_turn: TurnNo,
    /// When it was said to be gone, by the clock that no store can step.
    pub gone: Option<Instant>,
}

#[derive(Debug, Clone)]
pub struct Stored {
    pub seq: i64,
    pub bytes: Bytes,
}

#[derive(Debug)]
pub struct Offset {
    pub turn: TurnNo,
    pub at: u64,
    pub moved: u64,
    pub moved_at: Timestamp,
}

#[derive(Debug)]
pub struct Dispatch {
    pub turn: TurnNo,
    pub fence: i64,
    pub attempts: u32,
    pub until: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub struct LeaseRow {
    pub fence: i64,
    pub until: Option<Timestamp>,
    pub next_due_at: Option<Timestamp>,
    pub woken: bool,
    pub failures: u32,
    pub unclear_since: Option<Timestamp>,
    pub unseen: bool,
}

/// One verdict, and when it was written by the clock that no store can step.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    pub turn: TurnNo,
    pub reason: Option<TruncationReason>,
    pub at: Instant,
}

impl Model {
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            stepped: AtomicI64::new(0),
            state: Mutex::default(),
        }
    }

    /// The store's clock.
    pub fn now(&self) -> Timestamp {
        let epoch = Timestamp::from_second(1_900_000_000).expect("a time");
        let stepped = SignedDuration::from_millis(self.stepped.load(Ordering::Relaxed));
        epoch + self.began.elapsed() + stepped
    }

    /// Steps the store's clock.
    pub fn step_clock(&self, millis: i64) {
        self.stepped.fetch_add(millis, Ordering::Relaxed);
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<SessionId, Session>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at one session.
    pub fn with<T>(&self, session: &SessionId, look: impl FnOnce(&mut Session) -> T) -> Option<T> {
        self.sessions().get_mut(session).map(look)
    }

    /// Every session there is.
    pub fn ids(&self) -> Vec<SessionId> {
        self.sessions().keys().cloned().collect()
    }
}

impl Life {
    fn is_gone(&mut self) {
        self.row.state = bex_store::sandboxes::SandboxState::Gone;
        self.gone.get_or_insert_with(Instant::now);
    }
}

impl Session {
    /// What settle reads: count, end and digest of a turn's stored parts.
    fn stored(&self, turn: TurnNo) -> bex_store::settle::Stored {
        let mut digest = bex_proto::driver::TurnDigest::default();
        let (mut parts, mut end) = (0, 0);
        for ((_, index), part) in self.parts.range((turn, 0)..=(turn, u32::MAX)) {
            digest.add(&part.bytes);
            parts += 1;
            end = index + 1;
        }
        bex_store::settle::Stored {
            parts,
            end,
            sha256: digest.hex(),
        }
    }
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    now + by
}

/// Until when a claim that is made now holds.
fn leased(now: Timestamp) -> Timestamp {
    later(now, limits::LEASE)
}
