//! The bytes of a driver's stream, and the socket they come from.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use http_body::Body;
use hyper::body::Incoming;

use super::{CallError, SocketTask};

/// A driver's event stream as it arrives: pieces of at most [`super::READ_BUFFER_BYTES`], cut anywhere. Nothing is read ahead of the
/// consumer but what the socket's buffers hold. Dropping it closes the connection.
pub struct DriverStream {
    body: Incoming,
    _socket: SocketTask,
}

impl DriverStream {
    pub(super) fn new(body: Incoming, socket: SocketTask) -> Self {
        Self {
            body,
            _socket: socket,
        }
    }
}

impl std::fmt::Debug for DriverStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DriverStream")
    }
}

impl Stream for DriverStream {
    type Item = Result<Bytes, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(broken)) => return Poll::Ready(Some(Err(CallError::Transport(broken)))),
                // trailers are no bytes
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
            }
        }
    }
}
