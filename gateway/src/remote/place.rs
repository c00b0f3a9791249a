//! What a viewer is shown next. Without time, tasks or bytes.
//!
//! A viewer has a [`Place`]: the next event and the next turn it was not told. Where what is known of the session is taken from, the store or
//! the tail, makes no difference: [`Place::step`] gives each event once and in order, a gap exactly where events are missing, a turn after its
//! last event as soon as it is durable, and the end after everything.

use bex_proto::remote::RemoteState;
use bex_store::remote::Standing;

/// What a viewer was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The next event.
    pub next: u64,
    /// The number of the next turn.
    pub turn: u64,
    /// The state it was told.
    pub state: Option<RemoteState>,
}

/// What is known of a session beside a place.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Where the session stands.
    pub standing: Standing,
    /// Events below were removed, and cannot be had here either.
    pub purged: u64,
    /// Of the events from the place on, which are there is known below this.
    pub covered: u64,
    /// The first of those that are.
    pub event: Option<u64>,
    /// The first turn that was not told and is at hand.
    pub turn: Option<KnownTurn>,
}

/// A turn that became durable.
#[derive(Debug, Clone, Copy)]
pub struct KnownTurn {
    /// Its number.
    pub number: u64,
    /// Its last event; an import has none.
    pub last: Option<u64>,
}

/// Why events are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// They never came.
    Missing,
    /// They are kept no longer.
    Purged,
}

impl Absence {
    /// The word of the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Purged => "purged",
        }
    }
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// This event, which is at hand.
    Event(u64),
    /// These events are not there, first and last.
    Gap(u64, u64, Absence),
    /// The turn of this number, which is at hand, is durable.
    Turn(u64),
    /// The turn of this number was no part of the log: nothing is said of it.
    Import(u64),
    /// The session stands so.
    State(RemoteState),
    /// There is more than what is at hand.
    Read,
    /// There is nothing more yet.
    Wait,
    /// There will be nothing more.
    Done,
}

impl Place {
    /// Decides. The place stays where it is until the step is taken.
    pub fn step(&self, known: &Known) -> Step {
        let Known {
            standing, covered, ..
        } = *known;
        match known.turn {
            Some(KnownTurn { number, last: None }) => return Step::Import(number),
            Some(KnownTurn {
                number,
                last: Some(last),
            }) if last < self.next => return Step::Turn(number),
            Some(_) => {}
            // it may belong before the next event
            None if self.turn < standing.turn_count => return Step::Read,
            None => {}
        }
        if self.next < covered {
            return match known.event {
                _ if self.next < known.purged => {
                    Step::Gap(self.next, known.purged - 1, Absence::Purged)
                }
                Some(event) if event == self.next => Step::Event(event),
                event => {
                    let behind = event.unwrap_or(covered).min(covered);
                    Step::Gap(self.next, behind - 1, Absence::Missing)
                }
            };
        }
        if self.next < standing.next_index {
            return Step::Read;
        }
        if self.state != Some(standing.state) {
            return Step::State(standing.state);
        }
        if standing.is_final() {
            Step::Done
        } else {
            Step::Wait
        }
    }

    /// The viewer was shown it.
    pub fn take(&mut self, step: Step) {
        match step {
            Step::Event(index) => self.next = index + 1,
            Step::Gap(_, to, _) => self.next = to + 1,
            Step::Turn(number) | Step::Import(number) => self.turn = number + 1,
            Step::State(state) => self.state = Some(state),
            Step::Read | Step::Wait | Step::Done => {}
        }
    }
}

#[cfg(test)]
mod tests;
