//! The streams of HTTP/2. One whose reader takes nothing ends, and with it its answer's body: hyper asks a body for nothing
//! while the reader's window is shut, so the body itself would never hear of it.
//!
//! Only the stream is reset: its connection may carry many others for an edge proxy. HTTP/1 has no such tasks; there the socket
//! itself stalls.

mod body;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bex_proto::limits;
use hyper::rt::Executor;
use tokio::time::{Sleep, sleep};

use crate::Meter;
pub(crate) use body::Handed;

/// How long one frame may wait for its reader. Above a heartbeat and [`limits::WRITE_STALL`], so that a viewer gives its reader
/// up first and its audit row says so.
pub(crate) const PATIENCE: Duration = limits::WRITE_STALL.saturating_mul(2);

/// What the body did while its stream's task ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hand {
    /// It was not asked.
    Unasked,
    /// It gave a frame, which is not taken yet: it was not asked again.
    Full,
    /// What it gave was taken, and it has no more now.
    Empty,
}

tokio::task_local! {
    static HAND: Cell<Hand>;
}

/// Said by an answer's body whenever it is asked. Means nothing outside of a stream's task.
fn note(hand: Hand) {
    let _ = HAND.try_with(|noted| noted.set(hand));
}

/// Runs streams and counts those that stalled.
#[derive(Debug, Clone)]
pub(crate) struct Streams<M> {
    meter: M,
}

impl<M> Streams<M> {
    pub(crate) fn new(meter: M) -> Self {
        Self { meter }
    }
}

impl<M, F> Executor<F> for Streams<M>
where
    M: Meter,
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let meter = self.meter.clone();
        tokio::spawn(async move {
            if run(stream).await == End::Stalled {
                meter.stalled();
            }
        });
    }
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Whole,
    Stalled,
}

async fn run(stream: impl Future<Output = ()>) -> End {
    let mut stream = pin!(stream);
    let mut waiting: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        let (done, hand) = HAND.sync_scope(Cell::new(Hand::Unasked), || {
            (stream.as_mut().poll(cx), HAND.with(Cell::get))
        });
        if done.is_ready() {
            return Poll::Ready(End::Whole);
        }
        match hand {
            Hand::Unasked => {}
            Hand::Full => waiting = Some(Box::pin(sleep(PATIENCE))),
            Hand::Empty => waiting = None,
        }
        match &mut waiting {
            Some(sleep) => sleep.as_mut().poll(cx).map(|()| End::Stalled),
            None => Poll::Pending,
        }
    })
    .await
}
