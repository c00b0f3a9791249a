//! A socket whose writes must make progress.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A write that stays pending for longer than the limit fails. A connection with nothing to write never stalls.
pub(super) struct StallGuard<S> {
    socket: S,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

/// Marks the error of a stalled write.
#[derive(Debug, thiserror::Error)]
#[error("a write made no progress for too long")]
struct Stalled;

/// Whether a stalled write stands at the root of `error`.
pub(super) fn caused(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if error.is::<Stalled>() || inner.is_some_and(|e| e.is::<Stalled>()) {
            return true;
        }
        cause = error.source();
    }
    false
}

impl<S> StallGuard<S> {
    pub(super) fn new(socket: S, limit: Duration) -> Self {
        Self {
            socket,
            limit,
            waiting: None,
        }
    }

    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        progress: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.waiting = None;
            return progress;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        match waiting.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, Stalled))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.watch(cx, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.socket).poll_write_vectored(cx, slices);
        self.watch(cx, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_write_without_progress_fails() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut guarded = StallGuard::new(ours, Duration::from_secs(30));
        // slow, but always some progress: a byte every 20 s
        let slow_reader = async {
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                theirs.read_u8().await.expect("a byte");
            }
            theirs
        };
        let (written, theirs) = tokio::join!(guarded.write_all(b"12345678"), slow_reader);
        written.expect("a slow reader is no stall");
        guarded.write_all(b"1234").await.expect("fills the buffer");
        let stalled = guarded.write_all(b"5").await.expect_err("nobody reads");
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
        assert!(caused(&stalled));
        assert!(!caused(&io::Error::from(io::ErrorKind::TimedOut)));
        drop(theirs);
    }
}
