//! The tee: a reader of the tail that stores what it reads.
//!
//! Nobody waits for it. When it cannot keep up it stops for its turn and the harvest stores the rest; after a failed append it
//! stores nothing later, so that a hole is never hidden behind newer parts of the same writer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bex_proto::PartIndex;
use bex_proto::limits;
use bex_proto::transcript::Part;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::Speech;
use super::batcher::{Batch, Batcher};
use super::store::{SpeechStore, Stored};
use super::tail::{Tail, TailRead};

/// Parts pulled from the tail at once.
const PULL_PARTS: usize = limits::TEE_BATCH_PARTS;

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
) {
    let end = Tee {
        tail,
        store,
        speech,
        progress,
        batcher: Batcher::default(),
        at: None,
    }
    .run()
    .await;
    match end {
        TeeEnd::Flushed => {}
        TeeEnd::Quota => {
            tracing::info!(session = %speech.session, turn = %speech.turn, "tee stopped at the session's quota")
        }
        _ => {
            tracing::warn!(session = %speech.session, turn = %speech.turn, ?end, "tee stopped, the harvest stores the rest")
        }
    }
    progress.send_modify(|progress| progress.end = Some(end));
}

type Appending<'a> = Pin<Box<dyn Future<Output = Result<(), TeeEnd>> + Send + 'a>>;

struct Tee<'a> {
    tail: &'a Tail,
    store: &'a dyn SpeechStore,
    speech: &'a Speech,
    progress: &'a watch::Sender<TeeProgress>,
    batcher: Batcher,
    /// The next index to take; `None` until the source has begun.
    at: Option<PartIndex>,
}

/// What the tail still has for the tee.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Supply {
    /// Nothing now.
    Waiting,
    /// More than there is room for.
    NoRoom,
    /// Nothing ever again.
    Ended,
    /// It lost parts that were not taken.
    Overtaken,
}

impl Tee<'_> {
    async fn run(&mut self) -> TeeEnd {
        let mut changed = self.tail.watch();
        let mut appending: Option<Appending<'_>> = None;
        let mut stalled_since: Option<Instant> = None;
        loop {
            changed.borrow_and_update();
            let before = self.at;
            let supply = self.take();
            if matches!(supply, Supply::Ended | Supply::Overtaken) {
                self.batcher.flush();
            }
            if let Some(batch) = self.batcher.next_batch() {
                appending = Some(append(self.store, self.speech, batch));
            }
            if self.batcher.is_idle() {
                match supply {
                    Supply::Ended => return TeeEnd::Flushed,
                    Supply::Overtaken => return TeeEnd::Overtaken,
                    Supply::Waiting | Supply::NoRoom => {}
                }
            }
            if supply != Supply::NoRoom || self.at != before {
                stalled_since = None;
            }
            if supply == Supply::NoRoom {
                stalled_since.get_or_insert_with(Instant::now);
            }
            tokio::select! {
                answer = maybe(appending.as_mut()) => {
                    appending = None;
                    if let Err(end) = answer {
                        return end;
                    }
                    self.batcher.appended();
                    self.progress.send_modify(|progress| progress.appends += 1);
                }
                _ = changed.changed(), if supply == Supply::Waiting => {}
                () = at(self.batcher.due()) => self.batcher.flush(),
                () = at(stalled_since.map(|since| since + limits::TEE_STALL)) => return TeeEnd::Stalled,
            }
        }
    }

    /// Takes from the tail what there is room for.
    fn take(&mut self) -> Supply {
        let Some(mut at) = self.at.or_else(|| self.tail.base()) else {
            return if self.tail.end().is_some() {
                Supply::Ended
            } else {
                Supply::Waiting
            };
        };
        let supply = loop {
            match self.tail.read(at, PULL_PARTS) {
                TailRead::Parts(parts) => {
                    let mut room = true;
                    for part in parts {
                        room = self.batcher.has_room(&part);
                        if !room {
                            break;
                        }
                        at = part.id.index.next();
                        self.batcher.take(part, Instant::now());
                    }
                    if !room {
                        break Supply::NoRoom;
                    }
                }
                TailRead::Jump { to } => at = to,
                TailRead::Behind { .. } => break Supply::Overtaken,
                TailRead::Wait => break Supply::Waiting,
                TailRead::Ended(_) => break Supply::Ended,
            }
        };
        self.at = Some(at);
        supply
    }
}

/// One append with its own deadline, whatever happens to who asked for the stream.
fn append<'a>(store: &'a dyn SpeechStore, speech: &'a Speech, batch: Batch) -> Appending<'a> {
    Box::pin(async move {
        let parts: Vec<Part> = batch.into_iter().map(Arc::unwrap_or_clone).collect();
        match timeout(limits::TEE_APPEND_TIMEOUT, store.append(speech, &parts)).await {
            Ok(Ok(Stored::All)) => Ok(()),
            Ok(Ok(Stored::Quota)) => Err(TeeEnd::Quota),
            Ok(Ok(Stored::Refused)) => Err(TeeEnd::Failed),
            Ok(Err(error)) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(session = %speech.session, turn = %speech.turn, error, "tee append failed");
                Err(TeeEnd::Failed)
            }
            Err(_) => {
                tracing::warn!(session = %speech.session, turn = %speech.turn, "tee append took too long");
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
