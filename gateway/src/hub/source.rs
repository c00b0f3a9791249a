//! Reading one turn from its driver: dial, number, fill the tail, and dial again when the connection breaks.
//!
//! The driver is always asked for the parts behind what is known: at first the contiguous stored prefix, later what this
//! connection's predecessors gave. A loss is silent for [`bex_proto::limits::SOURCE_RETRY`]; a target that is looked at and found gone
//! ends the source at once, as does a turn that was settled meanwhile; a target that cannot be seen does not.

use std::time::Duration;

use bex_proto::sse::Splitter;
use bex_proto::{Chain, PartIndex};
use bex_telemetry::Span;
use futures::StreamExt;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::numbering::{Form, Numbering, Placed};
use super::tail::{COURTESY, SourceEnd, Tail};
use super::{HubDeps, Speech};
use crate::driver_client::{CallError, DialError, DriverConnection};
use crate::sandbox::{Look, TargetRef};
use bex_store::StoreError;

/// First and longest delay between two dials.
const REDIAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// A stream that lasted this long was no mere answer to a dial.
const STANDS: Duration = REDIAL.1;
/// Silence after which target and turn are looked at: a machine that vanished closes no connection, and a driver may never
/// say that it is through.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// Why one connection came to its end.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the store did not say where the turn's stored prefix ends")]
    Store(#[from] StoreError),
    #[error("the sandbox cannot be dialled now")]
    NotDialable,
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the driver's stream ended without saying that the turn did")]
    NoDone,
}

/// Fills `tail` until the turn's end. Leaves its reason there.
pub(super) async fn read(
    deps: &HubDeps,
    target: &TargetRef,
    speech: &Speech,
    tail: &Tail,
    stop: &CancellationToken,
) {
    let reading = Reading {
        deps,
        target,
        speech,
        tail,
    };
    let span = Span::of(&speech.session);
    let end = tokio::select! {
        end = span.hold(reading.until_end()) => end,
        () = stop.cancelled() => SourceEnd::Drained,
    };
    span.end(
        "source",
        &[("bex.turn", &speech.turn), ("bex.result", &end.as_str())],
    );
    tracing::debug!(session = %speech.session, turn = %speech.turn, ?end, "source ended");
    tail.finish(end);
}

struct Reading<'a> {
    deps: &'a HubDeps,
    target: &'a TargetRef,
    speech: &'a Speech,
    tail: &'a Tail,
}

impl Reading<'_> {
    async fn until_end(&self) -> SourceEnd {
        let mut lost_since: Option<Instant> = None;
        let mut delay = REDIAL.0;
        loop {
            let known = self.tail.next();
            let mut followed = None;
            let broken = match self.one_connection(&mut followed).await {
                Ok(end) => return end,
                Err(broken) => broken,
            };
            if self.is_settled().await {
                return SourceEnd::Gone;
            }
            // an agent may think for longer than a loss lasts: a stream that stood was a source found, also without a part
            let stood = followed.is_some_and(|since: Instant| since.elapsed() >= STANDS);
            if stood || self.tail.next() != known {
                (lost_since, delay) = (None, REDIAL.0);
            }
            let since = *lost_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= self.deps.retry {
                self.note(&broken, "driver's stream lost");
                return SourceEnd::Lost;
            }
            self.note(&broken, "driver's stream broke, dialling again");
            sleep(delay).await;
            self.deps.metrics.reconnects.inc();
            delay = (delay * 2).min(REDIAL.1);
        }
    }

    /// Reads until the turn's end or the connection's; says since when the driver's stream was `followed`.
    async fn one_connection(&self, followed: &mut Option<Instant>) -> Result<SourceEnd, Broken> {
        // the look comes first: whatever an address answers, a sandbox that is gone says nothing more
        let address = match self.deps.targets.look(self.target).await {
            Look::Running { address, .. } => address,
            Look::Gone => return Ok(SourceEnd::Gone),
            // one that leaves is not gone yet
            Look::Unknown | Look::NotYet | Look::Leaving => return Err(Broken::NotDialable),
        };
        let from = self.begin().await?;
        let connection =
            DriverConnection::open(address, self.target, &self.deps.driver_keys).await?;
        let mut stream = connection.stream(self.speech.turn, from).await?;
        *followed = Some(Instant::now());
        let form = if self.target.legacy {
            Form::ByPosition
        } else {
            Form::Numbered
        };
        let mut numbering = Numbering::new(self.speech.turn, form, from);
        let mut splitter = Splitter::new();
        let mut courtesy = COURTESY;
        loop {
            let bytes = tokio::select! {
                bytes = stream.next() => bytes.ok_or(Broken::NoDone)??,
                () = sleep(LOOK_AGAIN) => {
                    if self.is_over().await {
                        return Ok(SourceEnd::Gone);
                    }
                    continue;
                }
            };
            splitter.push(&bytes);
            let mut parts = Vec::new();
            let end = loop {
                match splitter.next_event().map(|event| numbering.place(event)) {
                    Some(Placed::Part(part)) => parts.push(part),
                    Some(Placed::Dropped) => {}
                    Some(Placed::Done) => break Some(SourceEnd::Done),
                    Some(Placed::Unnumbered) => break Some(SourceEnd::Unnumbered),
                    None => break None,
                }
            };
            self.tail.push(parts);
            if let Some(end) = end {
                return Ok(end);
            }
            self.tail.pace(&mut courtesy).await;
        }
    }

    /// Whether a silent driver has nothing more to say.
    async fn is_over(&self) -> bool {
        matches!(self.deps.targets.look(self.target).await, Look::Gone) || self.is_settled().await
    }

    /// Whether the turn was settled without this source. Store trouble is not an answer.
    async fn is_settled(&self) -> bool {
        self.deps
            .store
            .is_settled(self.speech)
            .await
            .unwrap_or(false)
    }

    /// Nothing a person must do: the sandbox may be starting or ending, and the harvest is there.
    fn note(&self, broken: &Broken, what: &'static str) {
        tracing::info!(session = %self.speech.session, turn = %self.speech.turn, error = %Chain(broken), "{what}");
    }

    /// Where to go on; asks the store once.
    async fn begin(&self) -> Result<PartIndex, Broken> {
        if let Some(next) = self.tail.next() {
            return Ok(next);
        }
        let base = self.deps.store.contiguous_end(self.speech).await?;
        self.tail.begin(base);
        Ok(base)
    }
}

#[cfg(test)]
pub(crate) mod tests;
