//! From a writer to a response's body, through a short queue: the writer waits for the reader.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::Stream;
use tokio::sync::mpsc;

use super::ExportFault;

/// A piece of the body is sent when it has this many bytes; one line more is bounded by a part.
const PIECE_BYTES: usize = 64 * 1024;
/// Pieces that wait for the reader.
const QUEUE: usize = 2;

/// Where an export is written to.
pub(super) struct Sink {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    buffer: BytesMut,
}

/// What the reader reads. It ends with an error when the export broke.
pub struct ExportBody(mpsc::Receiver<io::Result<Bytes>>);

pub(super) fn pair() -> (Sink, ExportBody) {
    let (pieces, body) = mpsc::channel(QUEUE);
    let sink = Sink {
        pieces,
        buffer: BytesMut::new(),
    };
    (sink, ExportBody(body))
}

impl Stream for ExportBody {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}

impl Sink {
    /// Adds text; waits for the reader when enough is there.
    pub(super) async fn write(&mut self, text: &str) -> Result<(), ExportFault> {
        self.buffer.extend_from_slice(text.as_bytes());
        if self.buffer.len() < PIECE_BYTES {
            return Ok(());
        }
        self.flush().await
    }

    /// Sends what is there.
    pub(super) async fn flush(&mut self) -> Result<(), ExportFault> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = self.buffer.split().freeze();
        self.pieces
            .send(Ok(piece))
            .await
            .map_err(|_| ExportFault::Unread)
    }

    /// Ends the body so that its reader sees that it is not whole.
    pub(super) async fn broken(self) {
        let error = io::Error::other("the export broke");
        // a reader that is gone needs no end
        let _ = self.pieces.send(Err(error)).await;
    }
}
