//! The body of a stream, which tells the stream's task what became of its frames.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{Hand, note};

/// A longer frame is given in two, the second a single byte. HTTP/2 queues a frame as soon as there is room for its first byte
/// and then asks for the next, the end included: without the second frame a body could end, and give back what it holds, while a
/// reader that takes nothing keeps the frame in memory.
const WHOLE_FRAME: usize = 1024;

pub(crate) struct Handed<B> {
    body: B,
    /// The end of the frame given last.
    last: Option<Bytes>,
}

impl<B> Handed<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body, last: None }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Handed<B> {
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(last) = self.last.take() {
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        Pin::new(&mut self.body).poll_frame(cx).map_ok(|frame| {
            frame.map_data(|mut bytes| {
                if bytes.len() > WHOLE_FRAME {
                    self.last = Some(bytes.split_off(bytes.len() - 1));
                }
                bytes
            })
        })
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Handed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = self.next(cx);
        note(match polled {
            Poll::Ready(Some(Ok(_))) => Hand::Full,
            Poll::Ready(_) | Poll::Pending => Hand::Empty,
        });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let left = self.last.as_ref().map_or(0, |last| last.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + left);
        }
        hint.set_lower(hint.lower() + left);
        hint
    }
}
