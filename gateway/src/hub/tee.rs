//! The tee: a reader of the tail that stores what it reads.
//!
//! Nobody waits for it. When it cannot keep up it stops for its turn and the harvest stores the rest; after a failed append it
//! stores nothing later, so that a hole is never hidden behind newer parts of the same writer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bex_proto::transcript::Part;
use bex_proto::{Chain, limits};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::Speech;
use super::batcher::Batch;
use super::intake::{Intake, Supply};
use super::store::{SpeechStore, Stored};
use super::tail::Tail;
use crate::metrics::{Appended, HubMetrics};

/// How a tee came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TeeEnd {
    /// Everything the source gave is in the store.
    Flushed,
    /// The session's quota is used up.
    Quota,
    /// An append failed, took too long, or was refused.
    Failed,
    /// There was no room for the next part for [`limits::TEE_STALL`].
    Stalled,
    /// The tail evicted parts that were not taken yet.
    Overtaken,
    /// There is no tee.
    Off,
}

impl TeeEnd {
    /// The metric's label.
    fn as_str(self) -> &'static str {
        match self {
            Self::Flushed => "flushed",
            Self::Quota => "quota",
            Self::Failed => "failed",
            Self::Stalled => "stalled",
            Self::Overtaken => "overtaken",
            Self::Off => "off",
        }
    }
}

/// How far a tee has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TeeProgress {
    /// Appends that succeeded.
    pub appends: u64,
    /// How it ended, if it did.
    pub end: Option<TeeEnd>,
}

impl TeeProgress {
    /// No tee will come.
    pub(super) fn never(&mut self) {
        self.end = Some(TeeEnd::Off);
    }
}

/// Stores a turn's parts from its tail until its end, the tail's or its own.
pub async fn run(
    tail: &Tail,
    store: &dyn SpeechStore,
    speech: &Speech,
    progress: &watch::Sender<TeeProgress>,
    metrics: &HubMetrics,
) {
    let end = Tee {
        tail,
        store,
        speech,
        progress,
        metrics,
        intake: Intake::default(),
    }
    .run()
    .await;
    match end {
        // what failed was said where it did
        TeeEnd::Flushed | TeeEnd::Failed => {}
        TeeEnd::Quota => {
            tracing::info!(session = %speech.session, turn = %speech.turn, "tee stopped at the session's quota")
        }
        _ => {
            tracing::warn!(session = %speech.session, turn = %speech.turn, ?end, "tee stopped, the harvest stores the rest")
        }
    }
    metrics.tee_ended(end.as_str());
    progress.send_modify(|progress| progress.end = Some(end));
}

type Appending<'a> = Pin<Box<dyn Future<Output = Result<Appended, TeeEnd>> + Send + 'a>>;

struct Tee<'a> {
    tail: &'a Tail,
    store: &'a dyn SpeechStore,
    speech: &'a Speech,
    progress: &'a watch::Sender<TeeProgress>,
    metrics: &'a HubMetrics,
    intake: Intake,
}

impl Tee<'_> {
    async fn run(&mut self) -> TeeEnd {
        let mut changed = self.tail.watch();
        let mut appending: Option<Appending<'_>> = None;
        let mut stalled_since: Option<Instant> = None;
        loop {
            changed.borrow_and_update();
            let before = self.intake.at();
            let supply = self.intake.take(self.tail, Instant::now());
            if let Some(batch) = self.intake.next_batch() {
                appending = Some(append(self.store, self.speech, batch));
            }
            if let Some(end) = self.intake.end(supply) {
                return end;
            }
            if supply != Supply::NoRoom || self.intake.at() != before {
                stalled_since = None;
            }
            if supply == Supply::NoRoom {
                stalled_since.get_or_insert_with(Instant::now);
            }
            tokio::select! {
                biased;
                answer = maybe(appending.as_mut()) => {
                    appending = None;
                    match answer {
                        Ok(stored) => self.metrics.stored(stored),
                        Err(end) => return end,
                    }
                    self.intake.appended();
                    self.progress.send_modify(|progress| progress.appends += 1);
                }
                () = at(self.intake.due()) => self.intake.flush(),
                () = at(stalled_since.map(|since| since + limits::TEE_STALL)) => return TeeEnd::Stalled,
                _ = changed.changed(), if supply == Supply::Waiting => {}
            }
        }
    }
}

/// One append with its own deadline, whatever happens to who asked for the stream.
fn append<'a>(store: &'a dyn SpeechStore, speech: &'a Speech, batch: Batch) -> Appending<'a> {
    Box::pin(async move {
        let parts: Vec<Part> = batch.into_iter().map(Arc::unwrap_or_clone).collect();
        match timeout(limits::TEE_APPEND_TIMEOUT, store.append(speech, &parts)).await {
            Ok(Ok(Stored::All)) => Ok(Appended {
                parts: parts.len() as u64,
                bytes: parts.iter().map(|part| part.bytes.len() as u64).sum(),
            }),
            Ok(Ok(Stored::Quota)) => Err(TeeEnd::Quota),
            Ok(Ok(Stored::Refused)) => {
                tracing::warn!(session = %speech.session, turn = %speech.turn, "tee append was refused, the harvest stores the rest");
                Err(TeeEnd::Failed)
            }
            Ok(Err(error)) => {
                tracing::warn!(session = %speech.session, turn = %speech.turn, error = %Chain(&error), "tee append failed, the harvest stores the rest");
                Err(TeeEnd::Failed)
            }
            Err(_) => {
                tracing::warn!(session = %speech.session, turn = %speech.turn, "tee append took too long, the harvest stores the rest");
                Err(TeeEnd::Failed)
            }
        }
    })
}

/// Waits for a future that may not be there.
async fn maybe<F: Future + Unpin>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::poll_fn(|_| Poll::Pending).await,
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
