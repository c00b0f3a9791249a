//! One viewer of a remote session, from its first byte to its last, in a task of its own.

use std::collections::VecDeque;
use std::sync::Arc;

use bex_proto::{Chain, RemoteSessionId, limits, sse};
use bex_store::audit::StreamAuditId;
use bex_store::remote::{DurableTurn, LogRow, Look};
use bex_store::{Db, StoreError};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, sleep_until};

use super::follow::{Follow, STORE_AGAIN, TURNS};
use super::frames;
use super::place::{Known, KnownTurn, Place, Step};
use super::tail::{Shown, TailEnd, Then};
use crate::attach::body::Out;
use crate::attach::replay::ReplayBudget;
use crate::attach::stop::Stop;
use crate::attach::viewer::Ends;

/// Indexes of a viewer's first page, so that it is soon there.
const FIRST_RANGE: u32 = 256;
/// What a page may hold: an event may be over its bound by one.
const PAGE_BYTES: usize = limits::REMOTE_PAGE_BYTES + limits::REMOTE_LINE_BYTES;

/// What a viewer works with.
pub(crate) struct Viewer {
    db: Db,
    session: RemoteSessionId,
    follow: Arc<Follow>,
    budget: ReplayBudget,
    out: Out,
    place: Place,
    /// The last event it has: where it resumes.
    cursor: Option<u64>,
    /// Indexes of the next page.
    range: u32,
    /// Turns read and not told.
    turns: VecDeque<DurableTurn>,
    begun_at: Instant,
}

/// A page that is being sent.
struct Page {
    look: Look,
    events: VecDeque<LogRow>,
    /// Given back with the page.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Viewer {
    /// A viewer at `place`, with everything up to `cursor`.
    pub(crate) fn new(
        (db, budget): (Db, ReplayBudget),
        (session, follow): (RemoteSessionId, Arc<Follow>),
        (place, cursor): (Place, Option<u64>),
        mut out: Out,
    ) -> Self {
        out.beats_with(frames::KEEPALIVE);
        Self {
            db,
            session,
            follow,
            budget,
            out,
            place,
            cursor,
            range: FIRST_RANGE,
            turns: VecDeque::new(),
            begun_at: Instant::now(),
        }
    }

    /// Serves the stream and closes its audit row; gives the row's word.
    pub(crate) async fn run(mut self, ends: Ends, audit: StreamAuditId) -> &'static str {
        let ceiling = self.begun_at + limits::STREAM_CEILING;
        let ended = tokio::select! {
            ended = self.serve() => ended,
            () = ends.revoked.cancelled() => Err(Stop::Revoked),
            () = ends.drain.cancelled() => Err(Stop::Drained),
            () = sleep_until(ceiling) => Err(Stop::Ceiling),
        };
        let word = match ended {
            Ok(()) => "done",
            Err(stop) => {
                let cursor = self.cursor;
                let told = stop.tell(&mut self.out, |text| frames::resume(text, cursor));
                told.await.as_str()
            }
        };
        let (events, bytes) = self.out.counts();
        let (db, session) = (self.db.clone(), self.session.clone());
        // the body ends with its writing end; the audit row is nobody's reason to wait
        drop(self);
        if let Err(error) = Box::pin(db.close_stream_audit(audit, word, events, bytes)).await {
            tracing::warn!(%session, error = %Chain(&error), "audit row of a stream stays open");
        }
        tracing::debug!(%session, result = word, events, bytes, "stream of a remote session ended");
        word
    }

    async fn serve(&mut self) -> Result<(), Stop> {
        self.out.open();
        self.out.flush().await?;
        let follow = Arc::clone(&self.follow);
        let mut changed = follow.tail.watch();
        let mut shown = Vec::new();
        loop {
            changed.borrow_and_update();
            let then = follow.tail.read(&mut self.place, &mut shown);
            shown.drain(..).for_each(|shown| self.show(&shown));
            match then {
                Then::More => self.flush_full().await?,
                Then::Wait => {
                    // it lives as long as its viewers
                    let _ = self.out.quietly(changed.changed()).await?;
                }
                Then::Behind => self.read_on().await?,
                Then::Ended(TailEnd::Gone) => return Err(Stop::Revoked),
                Then::Ended(TailEnd::Store) => return Err(Stop::Store),
                Then::Done => break,
            }
        }
        self.out.event(sse::DONE.as_bytes());
        self.out.close().await?;
        Ok(())
    }

    fn show(&mut self, shown: &Shown) {
        match shown.event {
            Some(index) => {
                self.out.framed_part(&shown.frame);
                self.cursor = Some(index);
            }
            None => self.out.framed(&shown.frame),
        }
    }

    async fn flush_full(&mut self) -> Result<(), Stop> {
        if self.out.is_full() {
            self.out.flush().await?;
        }
        Ok(())
    }

    /// Shows one page of the store.
    async fn read_on(&mut self) -> Result<(), Stop> {
        let mut page = self.page().await?;
        loop {
            if !self.has_turn() && self.place.turn < page.look.standing.turn_count {
                let from = self.place.turn;
                let turns = self.ask(move |db, session| async move {
                    db.durable_turns(&session, from, TURNS).await
                });
                self.turns = turns.await?.into();
            }
            let turn = self.turns.front().map(|turn| KnownTurn {
                number: turn.number,
                last: turn.last,
            });
            let step = self.place.step(&Known {
                standing: page.look.standing,
                purged: page.look.standing.first_index,
                covered: page.look.covered,
                event: page.events.front().map(|row| row.index),
                turn,
            });
            match step {
                Step::Event(index) => {
                    if let Some(row) = page.events.pop_front() {
                        self.out.framed_part(&frames::event(&row));
                    }
                    self.cursor = Some(index);
                }
                Step::Gap(from, to, absence) => self.out.framed(&frames::gap(from, to, absence)),
                Step::Turn(_) => {
                    if let Some(turn) = self.turns.pop_front() {
                        self.out.framed(&frames::turn(&turn.id));
                    }
                }
                Step::Import(_) => drop(self.turns.pop_front()),
                // where the session stands is told by the tail alone, so that two who know are never of different minds
                Step::Read | Step::State(_) | Step::Wait | Step::Done => return Ok(()),
            }
            self.place.take(step);
            self.flush_full().await?;
        }
    }

    /// Whether a turn is at hand that was not told here or by the tail.
    fn has_turn(&mut self) -> bool {
        while self
            .turns
            .pop_front_if(|turn| turn.number < self.place.turn)
            .is_some()
        {}
        !self.turns.is_empty()
    }

    /// Reads the page at the viewer's place. May wait for memory.
    async fn page(&mut self) -> Result<Page, Stop> {
        let budget = self.budget.clone();
        let mut permit = self.out.quietly(budget.take(PAGE_BYTES)).await?;
        let (from, range) = (self.place.next, self.range);
        let look = self.ask(move |db, session| async move {
            db.look_at_remote(&session, Some(from), range).await
        });
        // a session that is gone ends as one that is closed to the viewer
        let mut look = look.await?.ok_or(Stop::Revoked)?;
        self.range = limits::REMOTE_PAGE_EVENTS;
        let events = VecDeque::from(std::mem::take(&mut look.events));
        let bytes: usize = events
            .iter()
            .map(|row| row.data.len() + frames::FRAMING)
            .sum();
        Ok(Page {
            look,
            events,
            _permit: permit.split(ReplayBudget::permits(bytes)),
        })
    }

    /// Asks the store until it answers, [`limits::SOURCE_RETRY`] at most, with heartbeats.
    async fn ask<T, F>(&mut self, question: impl Fn(Db, RemoteSessionId) -> F) -> Result<T, Stop>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let until = Instant::now() + limits::SOURCE_RETRY;
        loop {
            let asking = Box::pin(question(self.db.clone(), self.session.clone()));
            let error = match self.out.quietly(asking).await? {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if !error.is_transient() || Instant::now() >= until {
                tracing::warn!(session = %self.session, error = %Chain(&error), "a stream cannot read the store");
                return Err(Stop::Store);
            }
            self.out.quietly(sleep(STORE_AGAIN)).await?;
        }
    }
}
