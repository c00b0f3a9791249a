//! Showing one turn: pulled from store and tail until it has no more, then what its end is told with.

use std::sync::Arc;
use std::time::Duration;

use bex_proto::ids::PartId;
use bex_proto::session::Verdict;
use bex_proto::ui_stream::{Place, live_marker};
use bex_proto::{Generation, PartIndex, TurnNo};
use bex_store::turns::TurnRow;
use bex_store::wake::Channel;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Opened, Stop, Viewer};
use crate::attach::events;
use crate::attach::plan::Scope;
use crate::attach::pull::{Do, Ending, Known, Pull};
use crate::hub::Source;
use crate::hub::tail::{SourceEnd, TailRead};
use crate::hub::tee::TeeProgress;

mod looks;
mod waits;

/// Parts taken from the tail at once.
const TAIL_RUN: usize = 256;
/// First and longest delay between two looks at the store for a hole that is being harvested.
const HOLE_LOOK: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// Whether a turn's prompt is still to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prompt {
    Show,
    /// The viewer goes on in the middle of the turn.
    Known,
}

/// Where the stream goes after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnEnded {
    /// Another turn follows.
    Next(PartId),
    /// That was the last.
    Last,
}

/// The turn being shown.
struct Showing {
    row: TurnRow,
    known: Known,
    place: Place,
    /// It was open when its showing began.
    began_open: bool,
    /// A range was told to be missing.
    told_gap: bool,
    live: Option<Live>,
}

/// A source joined.
struct Live {
    generation: Generation,
    source: Arc<Source>,
    changed: watch::Receiver<()>,
    tee: watch::Receiver<TeeProgress>,
    marked: bool,
}

impl Live {
    /// Whether nothing more is spoken.
    fn has_ended(&self) -> bool {
        self.source.tail.end().is_some()
    }
}

impl Showing {
    fn turn(&self) -> TurnNo {
        self.row.turn
    }
}

impl Viewer {
    /// Shows one turn from `at` on.
    pub(super) async fn turn(&mut self, at: PartId, prompt: Prompt) -> Result<TurnEnded, Stop> {
        self.seat.take_change();
        let (row, known) = self.look_at(at.turn, prompt).await?;
        if prompt == Prompt::Show {
            self.out.event(events::user_prompt(&row).as_bytes());
        }
        let place = if at.turn < self.newest {
            Place::Earlier
        } else {
            Place::Last
        };
        let began_open = row.settled_at.is_none();
        let mut showing = Showing {
            row,
            known,
            place,
            began_open,
            told_gap: false,
            live: None,
        };
        // it was said, and would be kept as long as the turn is shown
        showing.row.prompt = String::new();
        if began_open {
            if self.scope == Scope::Turn && showing.row.delivery_started_at.is_none() {
                self.announce(Channel::Dispatch).await?;
            }
            self.join(&mut showing).await?;
        }
        let ending = self.pull_to_end(&mut showing, Pull::new(at.index)).await?;
        self.end_of_turn(&showing, ending).await
    }

    async fn pull_to_end(&mut self, showing: &mut Showing, mut pull: Pull) -> Result<Ending, Stop> {
        let mut hole: Option<(PartIndex, Duration)> = None;
        let mut settle_waited = false;
        loop {
            if self.seat.take_change() {
                self.look_again(showing).await?;
            }
            match self.step(showing, &mut pull).await? {
                Do::Send(parts) => {
                    for part in parts {
                        if self.has(part.id) {
                            self.pass_over(&part);
                        } else {
                            self.end_silence().await?;
                            let place = self.place_of(showing, &part).await?;
                            self.show(&part, place);
                            self.send_if_full().await?;
                        }
                    }
                }
                Do::ReadStore => {}
                Do::Skip { from, to, reason } => {
                    // a viewer whose cursor is behind the range was told before
                    if self.has(PartId {
                        turn: showing.turn(),
                        index: to,
                    }) {
                        self.forget_open();
                    } else {
                        self.end_silence().await?;
                        self.unfold(showing.turn());
                        self.close_open();
                        showing.told_gap = true;
                        let event = events::incomplete_range(showing.turn(), reason, from, to);
                        self.out.event(event.as_bytes());
                    }
                }
                Do::Wait => self.wait(showing).await?,
                Do::Hole { until } => {
                    self.unfold(showing.turn());
                    let delay = match hole {
                        Some((at, delay)) if at == pull.at() => (delay * 2).min(HOLE_LOOK.1),
                        _ => {
                            self.announce(Channel::Wake).await?;
                            HOLE_LOOK.0
                        }
                    };
                    hole = Some((pull.at(), delay));
                    self.wait_for_store(showing, until.min(Instant::now() + delay))
                        .await?;
                    self.look_again(showing).await?;
                }
                Do::TurnEnd(Ending::Source(SourceEnd::Drained)) => return Err(Stop::Drained),
                Do::TurnEnd(Ending::Source(end)) => {
                    if self.is_spoken_elsewhere(showing).await? {
                        continue;
                    }
                    if end == SourceEnd::Lost {
                        if showing.known.settled.is_open() {
                            return Err(Stop::SourceLost);
                        }
                        continue;
                    }
                    if settle_waited {
                        return Ok(Ending::Source(end));
                    }
                    settle_waited = true;
                    self.wait_for_settle(showing).await?;
                }
                Do::TurnEnd(ending) => {
                    // settled before the tee was through, or before the source knew: what is still stored may heal the turn
                    let incomplete = showing.row.verdict != Verdict::Complete;
                    let live = showing.live.as_ref();
                    if !settle_waited && live.is_some_and(|live| incomplete || live.has_ended()) {
                        settle_waited = true;
                        self.wait_for_settle(showing).await?;
                        continue;
                    }
                    return Ok(ending);
                }
            }
        }
    }

    /// Looks into the tail, and into the store when the tail says so.
    async fn step(&mut self, showing: &mut Showing, pull: &mut Pull) -> Result<Do, Stop> {
        let known = showing.known;
        let step = match &mut showing.live {
            Some(live) if live.source.tail.next().is_some() || live.source.tail.end().is_some() => {
                live.changed.borrow_and_update();
                let read = live.source.tail.read_along(pull.at(), TAIL_RUN);
                let here = matches!(
                    read,
                    TailRead::Parts(_) | TailRead::Jump { .. } | TailRead::Wait
                );
                if here && !live.marked {
                    live.marked = true;
                    let turn = showing.row.turn;
                    self.unfold(turn);
                    self.compact = None;
                    self.out.event(live_marker(self.out.cursor()).as_bytes());
                }
                pull.on_tail(read, &known)
            }
            _ => pull.without_tail(),
        };
        if !matches!(step, Do::ReadStore) {
            return Ok(step);
        }
        let read = self
            .read_stored(PartId {
                turn: showing.turn(),
                index: pull.at(),
            })
            .await?;
        Ok(pull.on_store(read, &known, Instant::now()))
    }

    /// Verdict, what is missing, and what follows.
    async fn end_of_turn(&mut self, showing: &Showing, ending: Ending) -> Result<TurnEnded, Stop> {
        let row = &showing.row;
        self.end_silence().await?;
        self.unfold(row.turn);
        if showing.began_open {
            let healed = showing.told_gap && row.verdict == Verdict::Complete;
            self.out.event(events::turn_verdict(row, healed).as_bytes());
        }
        match std::mem::take(&mut self.opened) {
            Opened::Here => self.end_message(),
            // a viewer that kept its state and was sent nothing more of this turn had its ends before; a second end is an error to it
            Opened::Before => self.forget_message(),
        }
        if let Some(reason) = row.reason.filter(|_| row.verdict == Verdict::Truncated) {
            self.out
                .event(events::incomplete_turn(row, reason).as_bytes());
        }
        let goes_on = ending == Ending::Settled && self.goes_on_behind(showing);
        Ok(if goes_on && self.has_turn_behind(row.turn).await? {
            TurnEnded::Next(PartId::first_of(row.turn.next()))
        } else {
            TurnEnded::Last
        })
    }

    /// Whether a next turn is shown too. A stream does not tail from one live turn into the next: a page's own POST would show that
    /// one too.
    fn goes_on_behind(&self, showing: &Showing) -> bool {
        self.scope == Scope::Conversation && !showing.began_open
    }

    async fn has_turn_behind(&mut self, turn: TurnNo) -> Result<bool, Stop> {
        if turn >= self.newest {
            let current = self
                .ask(|db, session| async move { db.session(&session).await })
                .await?;
            self.newest = current.ok_or(Stop::Revoked)?.turns;
        }
        Ok(turn < self.newest)
    }
}
