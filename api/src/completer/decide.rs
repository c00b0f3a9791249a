//! What to do about an open turn, as a pure function of what was seen. The async shell only sees and acts.
//!
//! "Unknown" is never "gone": only a sandbox that was seen to be gone is lost at once; everything unclear has a window of
//! time in which it may become clear again.

use std::time::Duration;

use bex_proto::driver::TurnState;
use bex_store::settle::{Cause, SandboxAfter};

use super::log::Form;

/// What one look at a turn's sandbox showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The sandbox is gone for good.
    Gone,
    /// Status or log could not be read.
    Unreadable,
    /// The gateway could not be asked, and the sandbox was seen to run: nothing is wrong with it.
    Running,
    /// Both were read, the log as far as it goes.
    Read {
        /// What status.json says of the turn.
        driver: Driver,
        /// What the log says of it.
        log: Log,
    },
}

/// status.json, as far as it concerns this turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// Nothing of this turn yet.
    NotBegun,
    /// It is being spoken.
    Speaking,
    /// It was spoken; the driver takes another turn.
    Done,
    /// The driver takes no more turns. In the old form: how its one turn ended.
    Over(TurnState),
}

/// The turn's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// There is none yet.
    Absent,
    /// More of it is there than this round read.
    More,
    /// Read to its end, which is no turn-end.
    ReadOn,
    /// Read to its turn-end.
    Ended,
    /// It ends in the middle of a line that nobody finishes.
    Torn,
    /// It is somebody else's log.
    Foreign,
}

/// What is known beside the look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// How old the driver is.
    pub form: Form,
    /// The turn-end was recorded, now or in an earlier round.
    pub turn_end: bool,
    /// Since cancel was asked for.
    pub canceling: Option<Duration>,
    /// Somebody asked to stop the turn.
    pub stop_requested: bool,
    /// Since the last part, or since the delivery.
    pub silent: Duration,
    /// How long nothing clear was seen.
    pub unclear: Duration,
}

/// How long to wait for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// For a status or log that cannot be read.
    pub unreadable: Duration,
    /// For the next part.
    pub turn_deadline: Duration,
    /// For the harvest of a canceled session.
    pub cancel: Duration,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Look again later.
    Wait(Again),
    /// Ask the driver to stop the turn, look again later.
    Stop,
    /// Ask the driver to stop, give it a moment for its turn-end, then settle.
    StopThenSettle {
        /// Why.
        cause: Cause,
    },
    /// Settle now.
    Settle {
        /// Why it is over.
        cause: Cause,
        /// What the sandbox becomes.
        sandbox: SandboxAfter,
        /// The end of an older driver's turn.
        legacy: Option<TurnState>,
    },
}

/// When to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// There is more to read.
    AtOnce,
    /// All is well.
    NextTick,
    /// Nothing clear was seen: the window runs.
    Unclear,
}

/// The rules, in order.
pub fn decide(seen: Seen, known: &Known, windows: &Windows) -> Action {
    let settle = |cause, sandbox| Action::Settle {
        cause,
        sandbox,
        legacy: None,
    };
    if known.turn_end {
        let sandbox = match seen {
            // what is left of it is removed like any other
            Seen::Gone => SandboxAfter::Stopping,
            Seen::Read {
                driver: Driver::Over(_),
                ..
            } => SandboxAfter::Stopping,
            _ if known.canceling.is_some() => SandboxAfter::Stopping,
            _ => SandboxAfter::Idle,
        };
        return settle(Cause::DriverEnded, sandbox);
    }
    if seen == Seen::Gone {
        return settle(Cause::Lost, SandboxAfter::Stopping);
    }
    if matches!(seen, Seen::Read { log: Log::More, .. })
        && known.canceling.is_none_or(|age| age < windows.cancel)
    {
        return Action::Wait(Again::AtOnce);
    }
    if let Some(age) = known.canceling {
        return cancel(seen, known, age >= windows.cancel);
    }
    if seen == Seen::Running {
        // a gateway that is away loses nobody's turn: what was spoken meanwhile is read when it is back, and only then can be told
        // whether the agent was silent. The sandbox's own life ends this wait
        return Action::Wait(Again::NextTick);
    }
    let (driver, log) = match seen {
        Seen::Read { driver, log } => (driver, log),
        Seen::Gone | Seen::Running | Seen::Unreadable if known.unclear >= windows.unreadable => {
            return settle(Cause::Lost, SandboxAfter::Stopping);
        }
        Seen::Gone | Seen::Running | Seen::Unreadable => return Action::Wait(Again::Unclear),
    };
    if known.form == Form::Legacy {
        return legacy(driver, log, known, windows);
    }
    if is_unclear(driver, log) {
        let never_begun = driver == Driver::NotBegun && log == Log::Absent;
        return match known.unclear >= windows.unreadable {
            false => Action::Wait(Again::Unclear),
            true if never_begun => settle(Cause::Lost, SandboxAfter::Stopping),
            true => settle(Cause::DriverEnded, SandboxAfter::Stopping),
        };
    }
    if known.silent >= windows.turn_deadline {
        return Action::StopThenSettle {
            cause: Cause::Deadline,
        };
    }
    if known.stop_requested {
        Action::Stop
    } else {
        Action::Wait(Again::NextTick)
    }
}

/// Whether a look leaves open what becomes of the turn: its log should be there, be ours, grow or end.
pub fn is_unclear(driver: Driver, log: Log) -> bool {
    match (driver, log) {
        (_, Log::Ended | Log::More) => false,
        (_, Log::Foreign | Log::Torn) => true,
        (Driver::Speaking, Log::ReadOn) => false,
        // a log that grows although the status is behind
        (Driver::NotBegun, Log::ReadOn) => false,
        (Driver::NotBegun | Driver::Speaking, Log::Absent) => true,
        (Driver::Done | Driver::Over(_), Log::Absent | Log::ReadOn) => true,
    }
}

fn cancel(seen: Seen, known: &Known, out_of_time: bool) -> Action {
    let settle = Action::Settle {
        cause: Cause::Canceled,
        sandbox: SandboxAfter::Stopping,
        legacy: None,
    };
    match seen {
        _ if out_of_time => settle,
        Seen::Unreadable | Seen::Running | Seen::Gone => Action::Wait(Again::Unclear),
        // an older driver cannot be stopped; what its log holds was read just now
        Seen::Read { .. } if known.form == Form::Legacy => settle,
        Seen::Read { .. } => Action::StopThenSettle {
            cause: Cause::Canceled,
        },
    }
}

fn legacy(driver: Driver, log: Log, known: &Known, windows: &Windows) -> Action {
    let settle = |cause, state| Action::Settle {
        cause,
        sandbox: SandboxAfter::Stopping,
        legacy: Some(state),
    };
    match (driver, log) {
        (_, Log::Foreign) if known.unclear >= windows.unreadable => Action::Settle {
            cause: Cause::DriverEnded,
            sandbox: SandboxAfter::Stopping,
            legacy: None,
        },
        (_, Log::Foreign) => Action::Wait(Again::Unclear),
        (Driver::Over(state), _) => settle(Cause::DriverEnded, state),
        // stop is deletion after harvest
        _ if known.stop_requested => settle(Cause::DriverEnded, TurnState::Stopped),
        _ if known.silent >= windows.turn_deadline => Action::Settle {
            cause: Cause::Deadline,
            sandbox: SandboxAfter::Stopping,
            legacy: None,
        },
        _ => Action::Wait(Again::NextTick),
    }
}

#[cfg(test)]
mod tests;
