//! One frame on its way from a viewer's task to its connection.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bex_proto::limits;
use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::ViewerGone;

/// What is taken at once, so that a slow connection is seen to take something: at 1 kB/s one is taken well within
/// [`limits::WRITE_STALL`].
const PIECE_BYTES: usize = 16 * 1024;

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Clean,
    Broken,
}

/// What the connection is given.
pub(super) enum Taken {
    Piece(Bytes),
    End,
    Broken,
}

#[derive(Debug)]
pub(super) struct Slot(Mutex<State>);

#[derive(Debug)]
struct State {
    /// What is left of the frame.
    frame: Bytes,
    /// When it was put, or its last piece taken.
    moved_at: Instant,
    /// When a piece was taken last.
    taken_at: Instant,
    end: Option<End>,
    gone: Option<ViewerGone>,
    writer: Option<Waker>,
    reader: Option<Waker>,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            frame: Bytes::new(),
            moved_at: Instant::now(),
            taken_at: Instant::now(),
            end: None,
            gone: None,
            writer: None,
            reader: None,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // a state is consistent after any panic
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the frame was taken whole.
    pub(super) async fn room(&self) -> Result<(), ViewerGone> {
        loop {
            let until = self.state().moved_at + limits::WRITE_STALL;
            match timeout_at(until, poll_fn(|cx| self.poll_room(cx))).await {
                Ok(room) => return room,
                // some of it was taken meanwhile
                Err(_) if self.state().moved_at + limits::WRITE_STALL > until => {}
                Err(_) => return Err(ViewerGone::Stalled),
            }
        }
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<(), ViewerGone>> {
        let mut state = self.state();
        if let Some(gone) = state.gone {
            return Poll::Ready(Err(gone));
        }
        if state.frame.is_empty() {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Puts a frame into a slot that has room.
    pub(super) fn put(&self, frame: Bytes) {
        let mut state = self.state();
        state.frame = frame;
        state.moved_at = Instant::now();
        wake(state.reader.take(), state);
    }

    /// Nothing comes behind what was put; the first end holds.
    pub(super) fn end(&self, end: End) {
        let mut state = self.state();
        state.end.get_or_insert(end);
        wake(state.reader.take(), state);
    }

    /// What is left of the frame is dropped, and nothing comes behind it.
    pub(super) fn abort(&self) {
        let mut state = self.state();
        state.frame = Bytes::new();
        state.end = Some(End::Broken);
        wake(state.reader.take(), state);
    }

    pub(super) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Taken> {
        let mut state = self.state();
        if !state.frame.is_empty() {
            let length = state.frame.len().min(PIECE_BYTES);
            let piece = state.frame.split_to(length);
            state.moved_at = Instant::now();
            state.taken_at = state.moved_at;
            if state.frame.is_empty() {
                // the last piece is not to be held by what it was split from
                state.frame = Bytes::new();
                wake(state.writer.take(), state);
            }
            return Poll::Ready(Taken::Piece(piece));
        }
        match state.end {
            Some(End::Clean) => Poll::Ready(Taken::End),
            Some(End::Broken) => Poll::Ready(Taken::Broken),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The connection takes nothing any more.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        // one that waits for the next frame took all there was
        let is_stalled = state.reader.is_none() && state.taken_at.elapsed() >= limits::WRITE_STALL;
        state.gone.get_or_insert(if is_stalled {
            ViewerGone::Stalled
        } else {
            ViewerGone::Left
        });
        state.frame = Bytes::new();
        wake(state.writer.take(), state);
    }

    /// Waits until the connection takes nothing any more, and says why.
    pub(super) async fn left(&self) -> ViewerGone {
        poll_fn(|cx| {
            let mut state = self.state();
            if let Some(gone) = state.gone {
                return Poll::Ready(gone);
            }
            state.writer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// Wakes outside of the lock, since who is woken takes it.
fn wake(waker: Option<Waker>, state: MutexGuard<'_, State>) {
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}
