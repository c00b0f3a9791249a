//! The ways in which a stream ends without a true end.

use std::time::Duration;

use tokio::time::timeout;

use super::body::{Out, ViewerGone};

/// How long a viewer whose access ended may take what it was given before: a revocation counts within a second.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Why a stream ends without a true end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The viewer left or its connection is stalled.
    Gone(ViewerGone),
    /// The driver could not be read for too long.
    SourceLost,
    /// The store could not be read for too long.
    Store,
    /// The sandbox did not come up in time.
    NoSandbox,
    /// Access was revoked or the session was deleted.
    Revoked,
    /// This process is shutting down.
    Drained,
    /// The stream is as old as it may get.
    Ceiling,
}

impl From<ViewerGone> for Stop {
    fn from(gone: ViewerGone) -> Self {
        Self::Gone(gone)
    }
}

impl Stop {
    /// What the viewer is told, where it can still be told.
    fn text(self) -> Option<&'static str> {
        match self {
            Self::Gone(_) => None,
            Self::SourceLost => Some("the agent's sandbox does not answer"),
            Self::Store => Some("the transcript cannot be read now"),
            Self::NoSandbox => Some("the agent's sandbox is not ready yet"),
            Self::Revoked => Some("access was revoked"),
            Self::Drained => Some("the server is restarting"),
            Self::Ceiling => Some("the stream is too old"),
        }
    }

    /// The audit row's word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Gone(ViewerGone::Left) => "left",
            Self::Gone(ViewerGone::Stalled) => "stalled",
            Self::SourceLost => "source_lost",
            Self::Store => "store",
            Self::NoSandbox => "no_sandbox",
            Self::Revoked => "revoked",
            Self::Drained => "drained",
            Self::Ceiling => "ceiling",
        }
    }

    /// Tells what ended the stream, by the event that `words` makes of it, and closes, without `[DONE]`. Who may not read on is not waited for:
    /// what it has not taken by then it does not get. Gives the end as it came to be.
    pub(crate) async fn tell(self, out: &mut Out, words: impl FnOnce(&str) -> String) -> Self {
        let Some(text) = self.text() else { return self };
        out.event(words(text).as_bytes());
        if !matches!(self, Self::Revoked | Self::Ceiling) {
            return self.close(out).await;
        }
        let closed = timeout(LAST_WORDS, self.close(out)).await;
        closed.unwrap_or_else(|_| {
            out.abort();
            self
        })
    }

    async fn close(self, out: &mut Out) -> Self {
        match out.close().await {
            Ok(()) => self,
            Err(gone) => Self::Gone(gone),
        }
    }
}
