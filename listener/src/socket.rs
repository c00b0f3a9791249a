//! A socket whose writes must make progress, and whose progress is counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bex_proto::limits;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::activity::Activity;

/// A write that stays pending for [`limits::WRITE_STALL`] fails. A connection with nothing to write never stalls.
pub(crate) struct Watched<S> {
    socket: S,
    activity: Arc<Activity>,
    waiting: Option<Pin<Box<Sleep>>>,
}

/// Marks the error of a stalled write.
#[derive(Debug, thiserror::Error)]
#[error("a write made no progress for too long")]
struct Stalled;

/// Whether a stalled write stands at the root of `error`.
pub(crate) fn stalled(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        let within = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        error.is::<Stalled>() || within.is_some_and(|error| error.is::<Stalled>())
    })
}

impl<S> Watched<S> {
    pub(crate) fn new(socket: S, activity: Arc<Activity>) -> Self {
        Self {
            socket,
            activity,
            waiting: None,
        }
    }

    pub(crate) fn into_inner(self) -> S {
        self.socket
    }

    fn judge(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            self.waiting = None;
            if let Ok(bytes) = written {
                self.activity.took(bytes);
            }
            return Poll::Ready(written);
        }
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(sleep(limits::WRITE_STALL)));
        waiting
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, Stalled)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, slices);
        self.judge(cx, written)
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
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_write_without_progress_fails() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut watched = Watched::new(ours, Arc::default());
        let slow_reader = async {
            for _ in 0..8 {
                tokio::time::sleep(limits::WRITE_STALL - Duration::from_secs(1)).await;
                theirs.read_u8().await.expect("a byte");
            }
            theirs
        };
        let (written, theirs) = tokio::join!(watched.write_all(b"12345678"), slow_reader);
        written.expect("a slow reader is no stall");
        watched.write_all(b"1234").await.expect("fills the pipe");
        let error = watched.write_all(b"5").await.expect_err("nobody reads");
        assert!(stalled(&error));
        assert!(!stalled(&io::Error::from(io::ErrorKind::TimedOut)));
        drop(theirs);
    }
}
