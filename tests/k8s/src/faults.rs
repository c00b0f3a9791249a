//! How a cluster can be told to misbehave.

use std::time::Duration;

/// How an exec's connection ends before its process does. The process goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The socket ends: no status, no CLOSE.
    Eof,
    /// `{"status":"Success"}` and CLOSE, as after a restart of the runtime.
    FalseSuccess,
    /// CLOSE 1000 without a status.
    Close,
}

/// How an exec stops speaking without ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// Pings are answered, nothing else comes.
    Answering,
    /// Nothing comes at all, no pong either: a peer that is gone behind a living connection. The client's leaving is still noticed.
    Dead,
}

/// How a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 403 without a body: an unknown subprotocol.
    EmptyForbidden,
    /// 403 as a subject without `create` gets it from 1.35 on: no reason behind the colon.
    GetOnly,
    /// 403 with a full reason.
    Forbidden,
    /// 404: the pod went between two calls.
    NotFound,
    /// 400: the pod has no such container.
    WrongContainer,
    /// 401: the token expired.
    Unauthorized,
    /// 429 with Retry-After.
    TooManyRequests,
    /// 500: the node's kubelet does not listen.
    KubeletDown,
    /// 503, plain text.
    Unavailable,
    /// No answer; the connection stays open.
    Hang,
}

/// What happens to one exec, frame by frame. Without any call: what a healthy cluster does.
#[derive(Debug, Clone, Default)]
pub struct ExecPlan {
    pub(crate) refusal: Option<Refusal>,
    pub(crate) sizes: Vec<usize>,
    pub(crate) noise: usize,
    pub(crate) cut: Option<(u64, Cut)>,
    pub(crate) stall: Option<(u64, Stall)>,
    pub(crate) end: End,
    pub(crate) idle: Option<Duration>,
    pub(crate) no_pongs: bool,
    pub(crate) fragments: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum End {
    #[default]
    Proper,
    StatusEarly {
        held: usize,
    },
    NoStatus,
    NeverClosed,
    SaysSuccess,
}

impl ExecPlan {
    /// A healthy exec.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refused before anything is upgraded.
    #[must_use]
    pub fn refuse(mut self, refusal: Refusal) -> Self {
        self.refusal = Some(refusal);
        self
    }

    /// Standard output in frames of exactly these payload sizes, in turn; the last one has what is left.
    #[must_use]
    pub fn sizes(mut self, sizes: &[usize]) -> Self {
        self.sizes = sizes.to_vec();
        self
    }

    /// So many bytes of standard error behind every frame of standard output.
    #[must_use]
    pub fn noise(mut self, bytes: usize) -> Self {
        self.noise = bytes;
        self
    }

    /// Ends the connection when so many bytes of standard output were sent.
    #[must_use]
    pub fn cut_after(mut self, bytes: u64, how: Cut) -> Self {
        self.cut = Some((bytes, how));
        self
    }

    /// Stops speaking when so many bytes of standard output were sent.
    #[must_use]
    pub fn stall_after(mut self, bytes: u64, how: Stall) -> Self {
        self.stall = Some((bytes, how));
        self
    }

    /// The status comes before the last `held` bytes of standard output.
    #[must_use]
    pub fn status_before(mut self, held: usize) -> Self {
        self.end = End::StatusEarly { held };
        self
    }

    /// CLOSE at the end, but no status.
    #[must_use]
    pub fn no_status(mut self) -> Self {
        self.end = End::NoStatus;
        self
    }

    /// The status comes, but neither CLOSE nor the socket's end.
    #[must_use]
    pub fn never_closed(mut self) -> Self {
        self.end = End::NeverClosed;
        self
    }

    /// The status is Success whatever the process's exit code was.
    #[must_use]
    pub fn says_success(mut self) -> Self {
        self.end = End::SaysSuccess;
        self
    }

    /// Cuts the socket when no data frame came from either side for so long; pings do not count, an empty message does.
    #[must_use]
    pub fn idle_cut(mut self, idle: Duration) -> Self {
        self.idle = Some(idle);
        self
    }

    /// Pings are not answered.
    #[must_use]
    pub fn no_pongs(mut self) -> Self {
        self.no_pongs = true;
        self
    }

    /// Every message in two WebSocket frames, which no server does, but which the protocol allows.
    #[must_use]
    pub fn fragments(mut self) -> Self {
        self.fragments = true;
        self
    }
}
