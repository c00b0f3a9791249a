//! The body of a stream: whole events, coalesced while they come faster than they go, sent at once otherwise.
//!
//! There is at most one frame between the viewer's task and its connection, which takes it in pieces. A connection that takes
//! nothing for [`limits::WRITE_STALL`] ends its viewer, and ends it as broken: only a true end closes the body cleanly.

mod slot;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bex_proto::ids::PartId;
use bex_proto::limits;
use bex_proto::sse;
use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame};
use tokio::time::{Instant, sleep_until};

use slot::{Slot, Taken};

/// Bytes that are collected before they are sent, when there is more at once.
const FRAME_BYTES: usize = 64 * 1024;
/// An event's lines beside its data, at most.
const EVENT_FRAMING: usize = 64;

/// The viewer is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ViewerGone {
    /// It closed its connection.
    #[error("the viewer left")]
    Left,
    /// Its connection took nothing for too long.
    #[error("the viewer's connection is stalled")]
    Stalled,
}

/// The writing end.
#[derive(Debug)]
pub struct Out {
    slot: Arc<Slot>,
    buffer: BytesMut,
    /// The last frame was sent because it was full.
    frame_was_full: bool,
    last_sent: Instant,
    /// What a quiet stream says.
    beat: &'static str,
    cursor: Option<PartId>,
    parts: u64,
    bytes: u64,
}

/// The reading end, for the server.
#[derive(Debug)]
pub struct StreamBody<G> {
    slot: Arc<Slot>,
    /// Lives exactly as long as the body.
    _guard: G,
}

/// A body and its writing end. `guard` is dropped with the body.
pub fn stream<G>(guard: G) -> (Out, StreamBody<G>) {
    let slot = Arc::new(Slot::new());
    let out = Out {
        slot: Arc::clone(&slot),
        buffer: BytesMut::new(),
        frame_was_full: false,
        last_sent: Instant::now(),
        beat: sse::KEEP_ALIVE,
        cursor: None,
        parts: 0,
        bytes: 0,
    };
    (
        out,
        StreamBody {
            slot,
            _guard: guard,
        },
    )
}

impl Drop for Out {
    fn drop(&mut self) {
        self.slot.end(slot::End::Broken);
    }
}

impl<G> Drop for StreamBody<G> {
    fn drop(&mut self) {
        self.slot.leave();
    }
}

impl Out {
    /// Says this instead of a comment whenever it is quiet.
    pub fn beats_with(&mut self, beat: &'static str) {
        self.beat = beat;
    }

    /// Writes the comment that opens a stream.
    pub fn open(&mut self) {
        self.buffer.put_slice(sse::STREAM_OPEN.as_bytes());
    }

    /// Tells the viewer its cursor without an event.
    pub fn cursor_only(&mut self, id: PartId) {
        sse::write_cursor(&mut self.buffer, id);
        self.cursor = Some(id);
    }

    /// One event of a stored part, the last one of it.
    pub fn part(&mut self, id: PartId, data: &[u8]) {
        if self.buffer.capacity() == 0 && self.frame_was_full {
            // one that fills its frames does so again, and growing them would copy every byte twice
            self.buffer
                .reserve(FRAME_BYTES + data.len() + EVENT_FRAMING);
        }
        sse::write_event(&mut self.buffer, Some(id), data);
        self.cursor = Some(id);
        self.parts += 1;
    }

    /// One event the plane wrote itself.
    pub fn event(&mut self, data: &[u8]) {
        sse::write_event(&mut self.buffer, None, data);
    }

    /// Whole events of the wire, made elsewhere.
    pub fn framed(&mut self, frame: &[u8]) {
        self.buffer.put_slice(frame);
    }

    /// The same, of something that is stored.
    pub fn framed_part(&mut self, frame: &[u8]) {
        self.framed(frame);
        self.parts += 1;
    }

    /// The last part the viewer was given: where it resumes.
    pub fn cursor(&self) -> Option<PartId> {
        self.cursor
    }

    /// Parts and bytes given so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.parts, self.bytes + self.buffer.len() as u64)
    }

    /// Whether enough was collected to be sent though more may follow at once.
    pub fn is_full(&self) -> bool {
        self.buffer.len() >= FRAME_BYTES
    }

    /// Sends what was collected, once the frame before was taken. When the caller gives up half-way nothing is lost: it goes with
    /// the next flush.
    ///
    /// # Errors
    /// See [`ViewerGone`].
    pub async fn flush(&mut self) -> Result<(), ViewerGone> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.slot.room().await?;
        // a fresh buffer: an idle viewer keeps no memory
        let frame = std::mem::take(&mut self.buffer).freeze();
        self.bytes += frame.len() as u64;
        self.frame_was_full = frame.len() >= FRAME_BYTES;
        self.slot.put(frame);
        self.last_sent = Instant::now();
        Ok(())
    }

    /// Waits for `what`, with a comment after every quiet [`limits::HEARTBEAT`]. Sends what was collected first.
    ///
    /// # Errors
    /// See [`ViewerGone`]; `what` is given up then.
    pub async fn quietly<T>(&mut self, what: impl Future<Output = T>) -> Result<T, ViewerGone> {
        let mut what = std::pin::pin!(what);
        loop {
            // what is ready at once needs no frame of its own; and it is not kept waiting by a slow connection, since it may hold
            // a database connection or a share of the replay budget
            tokio::select! {
                biased;
                done = what.as_mut() => return Ok(done),
                sent = self.flush() => sent?,
            }
            let beat = self.last_sent + limits::HEARTBEAT;
            tokio::select! {
                done = what.as_mut() => return Ok(done),
                () = sleep_until(beat) => self.buffer.put_slice(self.beat.as_bytes()),
                gone = self.slot.left() => return Err(gone),
            }
        }
    }

    /// Ends the body as broken; what was not taken is not given any more.
    pub fn abort(&mut self) {
        self.buffer.clear();
        self.slot.abort();
    }

    /// Ends the body cleanly, after everything collected.
    ///
    /// # Errors
    /// See [`ViewerGone`].
    pub async fn close(&mut self) -> Result<(), ViewerGone> {
        self.flush().await?;
        self.slot.end(slot::End::Clean);
        Ok(())
    }
}

impl<G: Unpin> Body for StreamBody<G> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match ready!(self.slot.poll_take(cx)) {
            Taken::Piece(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            Taken::End => Poll::Ready(None),
            Taken::Broken => Poll::Ready(Some(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the stream broke off",
            )))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;
    use tokio::time::timeout;

    use super::*;

    async fn next(body: &mut StreamBody<()>) -> String {
        let frame = body.frame().await.expect("a frame").expect("data");
        String::from_utf8(frame.into_data().expect("data").to_vec()).expect("text")
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_coalesced_and_end_cleanly_only_when_closed() {
        let (mut out, mut body) = stream(());
        out.open();
        out.part(PartId::new(1, 0), b"{}");
        out.event(b"{\"a\":1}");
        out.close().await.expect("there");
        drop(out);
        assert_eq!(
            next(&mut body).await,
            ": stream-open\n\nid: 1.0\ndata: {}\n\ndata: {\"a\":1}\n\n"
        );
        assert!(body.frame().await.is_none());

        let (mut out, mut body) = stream(());
        out.event(b"{}");
        out.flush().await.expect("there");
        drop(out);
        assert_eq!(next(&mut body).await, "data: {}\n\n");
        assert!(
            body.frame().await.expect("an end").is_err(),
            "not a clean end"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_viewer_that_takes_nothing_is_given_up() {
        let (mut out, _body) = stream(());
        out.event(b"{}");
        out.flush().await.expect("one frame fits");
        out.event(b"{}");
        let before = Instant::now();
        assert_eq!(out.flush().await, Err(ViewerGone::Stalled));
        assert_eq!(before.elapsed(), limits::WRITE_STALL);
    }

    #[tokio::test(start_paused = true)]
    async fn a_viewer_that_takes_little_is_not() {
        let (mut out, mut body) = stream(());
        let slow = tokio::spawn(async move {
            let mut read = 0;
            while let Some(frame) = body.frame().await {
                read += frame.expect("data").into_data().expect("data").len();
                tokio::time::sleep(limits::WRITE_STALL - Duration::from_secs(1)).await;
            }
            read
        });
        let event = vec![b'x'; 2 * FRAME_BYTES];
        for _ in 0..2 {
            out.event(&event);
            out.flush().await.expect("it takes some");
        }
        out.close().await.expect("there");
        let (_, sent) = out.counts();
        drop(out);
        assert_eq!(slow.await.expect("no panic") as u64, sent);
    }

    #[tokio::test(start_paused = true)]
    async fn quiet_time_is_filled_with_comments_between_events() {
        let (mut out, mut body) = stream(());
        out.event(b"{}");
        let quiet = tokio::spawn(async move {
            let waited = out
                .quietly(tokio::time::sleep(
                    limits::HEARTBEAT * 2 + limits::HEARTBEAT / 2,
                ))
                .await;
            out.event(b"{}");
            out.close().await.expect("there");
            waited
        });
        let mut seen = Vec::new();
        while let Some(frame) = body.frame().await {
            seen.push(
                String::from_utf8(frame.expect("data").into_data().expect("data").to_vec())
                    .expect("text"),
            );
        }
        assert_eq!(
            seen,
            [
                "data: {}\n\n",
                ": keep-alive\n\n",
                ": keep-alive\n\n",
                "data: {}\n\n"
            ]
        );
        assert_eq!(quiet.await.expect("no panic"), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_waited_for_goes_on_while_nothing_is_taken() {
        let (mut out, _body) = stream(());
        out.event(b"1");
        out.flush().await.expect("one frame fits");
        out.event(b"2");
        let before = Instant::now();
        let query = tokio::time::sleep(Duration::from_secs(1));
        assert_eq!(out.quietly(query).await, Ok(()));
        assert_eq!(before.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_aborted_body_gives_nothing_more() {
        let (mut out, mut body) = stream(());
        out.event(b"1");
        out.flush().await.expect("one frame fits");
        out.event(b"2");
        out.abort();
        assert!(body.frame().await.expect("an end").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_viewer_that_leaves_is_noticed_while_it_is_quiet() {
        let (mut out, body) = stream(());
        drop(body);
        assert_eq!(
            out.quietly(std::future::pending::<()>()).await,
            Err(ViewerGone::Left)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_gives_up_on_a_stalled_socket_says_so() {
        for (waited, gone) in [
            (limits::WRITE_STALL, ViewerGone::Stalled),
            (limits::WRITE_STALL / 2, ViewerGone::Left),
        ] {
            let (mut out, mut body) = stream(());
            out.event(b"1");
            out.flush().await.expect("one frame fits");
            assert_eq!(next(&mut body).await, "data: 1\n\n");
            // it is being written, and nobody reads
            tokio::time::sleep(waited).await;
            drop(body);
            assert_eq!(out.quietly(std::future::pending::<()>()).await, Err(gone));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupted_flush_loses_nothing() {
        let (mut out, mut body) = stream(());
        out.event(b"1");
        out.flush().await.expect("one frame fits");
        out.event(b"2");
        assert!(timeout(limits::WRITE_STALL / 2, out.flush()).await.is_err());
        assert_eq!(next(&mut body).await, "data: 1\n\n");
        out.close().await.expect("there");
        assert_eq!(next(&mut body).await, "data: 2\n\n");
    }
}
