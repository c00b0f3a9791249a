//! Live turns: one source, one tail and one tee for each turn that somebody watches, however many watch.
//!
//! A source is begun by the first viewer and lives until the turn's end, with or without viewers. The hub promises that in
//! this process a turn's driver is read by one connection and its parts are appended by one tee; it knows no viewer, and no
//! viewer can slow it.

pub(crate) mod batcher;
pub(crate) mod intake;
pub(crate) mod numbering;
pub(crate) mod source;
pub mod store;
pub mod tail;
pub mod tee;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bex_proto::ticket::KeyRing;
use bex_proto::{Generation, SessionId, TurnNo};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics::HubMetrics;
use crate::sandbox::{TargetRef, Targets};
use store::SpeechStore;
use tail::{SourceEnd, Tail};
use tee::TeeProgress;

/// Whether live parts are stored from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TeeMode {
    /// The rule.
    On,
    /// For measuring the splice alone: the harvest stores everything.
    Off,
}

/// What is spoken: one turn by one sandbox life.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Speech {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnNo,
    /// Who speaks it.
    pub generation: Generation,
}

/// A live turn as viewers see it.
#[derive(Debug)]
pub struct Source {
    /// Its newest parts.
    pub tail: Tail,
    /// What the tee has stored, and how it ended.
    pub tee: watch::Receiver<TeeProgress>,
}

/// What the hub works with.
pub struct HubDeps {
    /// Where parts go.
    pub store: Arc<dyn SpeechStore>,
    /// Where sandboxes are.
    pub targets: Arc<dyn Targets>,
    /// From which drivers' keys are derived.
    pub driver_keys: Arc<KeyRing>,
    /// See [`TeeMode`].
    pub tee: TeeMode,
    /// How long a lost driver is dialled again: [`bex_proto::limits::SOURCE_RETRY`], but in tests.
    pub retry: Duration,
    /// Counts.
    pub metrics: HubMetrics,
}

/// See the module's documentation.
pub struct Hub {
    deps: HubDeps,
    sources: Mutex<HashMap<Speech, Arc<Source>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub")
            .field("sources", &self.sources().len())
            .finish_non_exhaustive()
    }
}

impl Hub {
    /// A hub without sources.
    pub fn new(deps: HubDeps) -> Arc<Self> {
        Arc::new(Self {
            deps,
            sources: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// The source of `turn`, begun now unless somebody else began it. One that was lost is begun again.
    pub fn join(self: &Arc<Self>, target: &TargetRef, turn: TurnNo) -> Arc<Source> {
        let speech = Speech {
            session: target.session.clone(),
            turn,
            generation: target.generation,
        };
        let mut sources = self.sources();
        if let Some(source) = sources.get(&speech)
            && !source.tail.end().is_some_and(SourceEnd::may_be_begun_again)
        {
            return Arc::clone(source);
        }
        let (progress, tee) = watch::channel(TeeProgress::default());
        let source = Arc::new(Source {
            tail: Tail::default(),
            tee,
        });
        sources.insert(speech.clone(), Arc::clone(&source));
        drop(sources);
        let entry = Entry {
            hub: Arc::clone(self),
            speech,
            source: Arc::clone(&source),
        };
        let target = target.clone();
        self.tasks.spawn(async move {
            let Entry {
                hub,
                speech,
                source,
            } = &entry;
            let reading = source::read(&hub.deps, &target, speech, &source.tail, &hub.stop);
            match hub.deps.tee {
                TeeMode::Off => {
                    progress.send_modify(TeeProgress::never);
                    reading.await;
                }
                TeeMode::On => {
                    let tee = tee::run(
                        &source.tail,
                        &*hub.deps.store,
                        speech,
                        &progress,
                        &hub.deps.metrics,
                    );
                    tokio::join!(reading, tee);
                }
            }
        });
        source
    }

    /// Live turns being read now, for metrics.
    pub fn live(&self) -> usize {
        self.sources().len()
    }

    /// Ends every source and waits until every tee has stored what it holds. The caller bounds the wait.
    pub async fn drain(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<Speech, Arc<Source>>> {
        // a map of handles is consistent after any panic
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A source in the hub's map; taken out when its task is over, in whatever way.
struct Entry {
    hub: Arc<Hub>,
    speech: Speech,
    source: Arc<Source>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        // the first end stands; only a task that broke off has none yet
        self.source.tail.finish(SourceEnd::Lost);
        let mut sources = self.hub.sources();
        if sources
            .get(&self.speech)
            .is_some_and(|current| Arc::ptr_eq(current, &self.source))
        {
            sources.remove(&self.speech);
        }
    }
}
