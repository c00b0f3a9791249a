//! The life of turns: one at a time, in rising order, each begun once.
//!
//! ```text
//!   idle ──begin(n > last)──▶ running n ──agent ends, stop, terminate──▶ log ended ──▶ status ──▶ idle (or refusing)
//! ```
//!
//! The order at the end is what others rely on: credential files are overwritten, then the log's last line, then the status, then the next turn may begin, then readers
//! see the end.

mod memory;
mod progress;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bex_proto::driver::{DriverState, LEGACY_LOG_FILE, TurnState, log_file};
use bex_proto::ids::TurnNo;
use futures::FutureExt;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, error, info, warn};

use crate::agent::{self, Agent, Outcome, Prompt, StopSignal};
use crate::bounds::TERMINATE_TIMEOUT;
use crate::memory::Usage;
use crate::profile::Profile;
use crate::recover::Recovered;
use crate::scrub;
use crate::sink::{LogForm, Tail, TurnLog, TurnSink};
use crate::status::{Report, StatusFile};

/// All turns of one sandbox life.
pub struct Turns {
    profile: Arc<Profile>,
    status: StatusFile,
    state: Mutex<State>,
    /// The newest turn that was begun.
    begun: watch::Sender<Option<TurnNo>>,
    agent: tokio::sync::Mutex<Box<dyn Agent>>,
    tasks: TaskTracker,
    /// The sandbox was told to end.
    terminating: CancellationToken,
}

#[derive(Default)]
struct State {
    spoken: BTreeMap<TurnNo, Arc<Tail>>,
    running: Option<Running>,
    /// Why no more turns are taken.
    refuses: Option<&'static str>,
}

struct Running {
    turn: TurnNo,
    stop: StopSignal,
    /// The memory for which the agent was ended.
    over: Option<Usage>,
}

/// What became of a turn that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// It runs now.
    Started,
    /// It was begun before; nothing happened.
    Before,
}

/// Why a turn is not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another one runs.
    #[error("another turn is running")]
    Busy,
    /// A later one was begun already.
    #[error("a later turn was begun already")]
    Older,
    /// This driver takes no more turns.
    #[error("this driver takes no more turns")]
    Failed,
}

/// Where a turn can be read.
pub enum Source {
    /// It was begun.
    Spoken(Arc<Tail>),
    /// It may begin.
    Awaited,
    /// It will never be spoken here.
    Never,
}

impl Turns {
    /// Begins with what an earlier life of this process left.
    pub fn new(profile: Arc<Profile>, recovered: Recovered) -> Arc<Self> {
        let last = recovered.spoken.last_key_value().map(|(turn, _)| *turn);
        let turns = Self {
            status: StatusFile::new(&profile),
            agent: tokio::sync::Mutex::new(agent::of(&profile)),
            profile,
            state: Mutex::new(State {
                spoken: recovered.spoken,
                running: None,
                refuses: recovered.refuses,
            }),
            begun: watch::Sender::new(last),
            tasks: TaskTracker::new(),
            terminating: CancellationToken::new(),
        };
        let state = match recovered.refuses {
            Some(_) => DriverState::Failed,
            None => DriverState::Idle,
        };
        // a driver of the old form has no status until its turn runs
        if turns.profile.legacy.is_none() || recovered.refuses.is_some() {
            let report = Report {
                turn: last,
                error: recovered.error,
                ..Report::default()
            };
            turns.status.write(state, &report);
        }
        Arc::new(turns)
    }

    /// Begins a turn; the same number again changes nothing.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn begin(self: &Arc<Self>, prompt: Prompt) -> Result<Begun, Refused> {
        let turn = prompt.turn;
        let mut state = self.lock();
        match state.spoken.last_key_value() {
            Some((last, _)) if *last == turn => return Ok(Begun::Before),
            Some((last, _)) if *last > turn => return Err(Refused::Older),
            _ => {}
        }
        if state.running.is_some() {
            return Err(Refused::Busy);
        }
        if state.refuses.is_some() {
            return Err(Refused::Failed);
        }
        let (path, form) = match self.profile.legacy {
            Some(_) => (self.profile.dir.join(LEGACY_LOG_FILE), LogForm::Old),
            None => (
                self.profile.dir.join(log_file(turn)),
                LogForm::Numbered(self.profile.generation),
            ),
        };
        let log = match TurnLog::begin(&path, form, turn) {
            Ok(log) => log,
            Err(cause) => {
                error!(%turn, error = %cause, "turn's log cannot be begun");
                state.refuses = Some("the turn's log cannot be written");
                self.write_idle(&state, Report::default());
                return Err(Refused::Failed);
            }
        };
        if let Some((_, previous)) = state.spoken.last_key_value() {
            previous.forget();
        }
        let tail = Arc::new(Tail::new(path));
        let stop = StopSignal {
            asked: CancellationToken::new(),
            now: self.terminating.child_token(),
        };
        state.spoken.insert(turn, Arc::clone(&tail));
        state.running = Some(Running {
            turn,
            stop: stop.clone(),
            over: None,
        });
        self.status.write(
            DriverState::Running,
            &Report {
                turn: Some(turn),
                ..Report::default()
            },
        );
        drop(state);
        self.begun.send_replace(Some(turn));
        info!(%turn, "turn begins");
        let sink = TurnSink::new(
            turn,
            self.profile.secrets.clone(),
            self.profile.redactor.clone(),
            log,
            Arc::clone(&tail),
        );
        self.tasks.spawn(
            Arc::clone(self)
                .speak(prompt, sink, tail, stop)
                .in_current_span(),
        );
        Ok(Begun::Started)
    }

    async fn speak(
        self: Arc<Self>,
        prompt: Prompt,
        mut sink: TurnSink,
        tail: Arc<Tail>,
        stop: StopSignal,
    ) {
        let turn = prompt.turn;
        let mut agent = self.agent.lock().await;
        // a fault in an agent's code must not leave the turn without its end
        let spoken = AssertUnwindSafe(agent.speak(prompt, &mut sink, stop.clone())).catch_unwind();
        let told = progress::told(tail.watch(), |at| self.write_speaking(turn, at));
        let outcome = tokio::select! {
            biased;
            spoken = spoken => spoken,
            never = told => match never {},
        };
        let outcome = outcome.unwrap_or_else(|_| {
            Outcome::Failed("the driver had a fault while the agent spoke".into())
        });
        scrub::run(&self.profile).await;
        let over = self.lock().running.as_ref().and_then(|r| r.over);
        let (state, error) = match (outcome, over) {
            (Outcome::Succeeded, _) => (TurnState::Succeeded, None),
            (Outcome::Stopped | Outcome::Failed(_), Some(usage)) => {
                (TurnState::Failed, Some(usage.told()))
            }
            (Outcome::Stopped, None) if self.terminating.is_cancelled() => (
                TurnState::Failed,
                Some("the sandbox was told to end".to_owned()),
            ),
            (Outcome::Stopped, None) => (TurnState::Stopped, None),
            (Outcome::Failed(text), None) => (TurnState::Failed, Some(text)),
        };
        if let Some(text) = &error {
            sink.say_error(text);
        }
        let ended = sink.end(state, &self.terminating).await;
        info!(%turn, parts = ended.end.parts, bytes = ended.end.bytes, state = state.as_str(), "turn ended");
        let report = Report {
            turn: Some(turn),
            error,
            agent_session: agent.session(),
            log_has_holes: ended.log_has_holes,
            last_part_at: None,
        };
        let mut shared = self.lock();
        if !ended.kept {
            shared.refuses = Some("the turn's end could not be logged");
        }
        if self.profile.legacy.is_some() {
            self.write_legacy_end(state, &report);
        } else {
            self.write_idle(&shared, report);
        }
        shared.running = None;
        drop(shared);
        tail.end();
    }

    /// Stops a turn. `false` when this driver never began it. A turn that ended stays as it is.
    pub fn stop(&self, turn: TurnNo) -> bool {
        let state = self.lock();
        match &state.running {
            Some(running) if running.turn == turn => {
                info!(%turn, "turn is to stop");
                running.stop.asked.cancel();
                true
            }
            _ => state.spoken.contains_key(&turn),
        }
    }

    /// Takes no more turns and ends what runs, turn-end included.
    pub async fn terminate(&self) {
        {
            let mut state = self.lock();
            state.refuses = Some("the sandbox was told to end");
            if state.running.is_none() && self.profile.legacy.is_none() {
                self.write_idle(&state, Report::default());
            }
            self.terminating.cancel();
        }
        self.tasks.close();
        let ending = async {
            self.tasks.wait().await;
            self.agent.lock().await.close().await;
        };
        if timeout(TERMINATE_TIMEOUT, ending).await.is_err() {
            warn!("the agent did not end in time");
        }
    }

    /// Where to read a turn.
    pub fn source(&self, turn: TurnNo) -> Source {
        let state = self.lock();
        if let Some(tail) = state.spoken.get(&turn) {
            return Source::Spoken(Arc::clone(tail));
        }
        let is_past = state
            .spoken
            .last_key_value()
            .is_some_and(|(last, _)| *last > turn);
        if is_past || state.refuses.is_some() {
            Source::Never
        } else {
            Source::Awaited
        }
    }

    /// The only turn of a driver of the old form.
    pub fn only(&self) -> Option<Arc<Tail>> {
        self.lock().spoken.values().next().map(Arc::clone)
    }

    /// To wait for turns to begin with.
    pub fn watch(&self) -> watch::Receiver<Option<TurnNo>> {
        self.begun.subscribe()
    }

    /// A full log does not show that the turn goes on: the status does.
    fn write_speaking(&self, turn: TurnNo, at: Timestamp) {
        if self.profile.legacy.is_some() {
            return;
        }
        let report = Report {
            turn: Some(turn),
            last_part_at: Some(at),
            ..Report::default()
        };
        self.status.write(DriverState::Running, &report);
    }

    fn write_idle(&self, state: &State, mut report: Report) {
        report.turn = report
            .turn
            .or_else(|| state.spoken.last_key_value().map(|(turn, _)| *turn));
        match state.refuses {
            Some(why) => {
                report.error.get_or_insert_with(|| why.to_owned());
                self.status.write(DriverState::Failed, &report);
            }
            None => self.status.write(DriverState::Idle, &report),
        }
    }

    fn write_legacy_end(&self, state: TurnState, report: &Report) {
        let state = match state {
            TurnState::Succeeded => DriverState::Succeeded,
            TurnState::Failed | TurnState::Stopped => DriverState::Failed,
        };
        self.status.write(state, report);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // every update of the state is whole before anything in it can panic
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
