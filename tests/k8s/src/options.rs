//! What a cluster is like.

use std::path::PathBuf;
use std::time::Duration;

/// The release whose answers are given; each is a recorded set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// 1.36: the kubelet translates v5; exec needs `get` and `create`.
    V1_36,
    /// 1.35: the API server translates v5; exec needs `get` and `create`.
    V1_35,
    /// 1.30 to 1.34: the API server translates v5; `get` is enough.
    V1_34,
    /// 1.29 and before: no v5; `get` is enough.
    V1_29,
}

impl Style {
    pub(crate) fn has_v5(self) -> bool {
        self != Self::V1_29
    }

    /// Whether a WebSocket exec is also authorized as `create`.
    pub(crate) fn needs_create(self) -> bool {
        matches!(self, Self::V1_36 | Self::V1_35)
    }

    /// Whether the API server ends the v5 WebSocket, so that what the kubelet refuses comes after the 101.
    pub(crate) fn translates(self) -> bool {
        matches!(self, Self::V1_35 | Self::V1_34)
    }
}

/// How the API server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// http.
    Plain,
    /// https with a certificate authority of its own, named in the kubeconfig.
    Tls,
}

/// See the fields.
#[derive(Debug, Clone)]
pub struct Options {
    /// The release.
    pub style: Style,
    /// How the API server is reached.
    pub transport: Transport,
    /// How long a pod's status lags behind what happened on the node when its deadline is reached.
    pub status_lag: Duration,
    /// How long a crashed container waits before it is started again (restartPolicy Always and OnFailure).
    pub back_off: Duration,
    /// A v4 exec without a data frame for this long is cut; pings do not count.
    pub stream_idle: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            style: Style::V1_36,
            transport: Transport::Plain,
            status_lag: Duration::from_secs(3),
            back_off: Duration::from_secs(10),
            stream_idle: Duration::from_secs(4 * 3600),
        }
    }
}

/// What is known under an image's name.
#[derive(Debug, Clone)]
pub struct Image {
    pub(crate) main: Main,
    pub(crate) files: Vec<(String, PathBuf)>,
}

#[derive(Debug, Clone)]
pub(crate) enum Main {
    Pause,
    Program(PathBuf),
    Missing(&'static str),
}

impl Image {
    /// Runs nothing and lives until it is stopped, unless the container names a command.
    pub fn pause() -> Self {
        Self {
            main: Main::Pause,
            files: Vec::new(),
        }
    }

    /// Runs `program` unless the container names another command.
    pub fn program(program: impl Into<PathBuf>) -> Self {
        Self {
            main: Main::Program(program.into()),
            files: Vec::new(),
        }
    }

    /// Cannot be had: `reason` as the container's waiting reason, `ErrImagePull` for instance.
    pub fn missing(reason: &'static str) -> Self {
        Self {
            main: Main::Missing(reason),
            files: Vec::new(),
        }
    }

    /// A file of the image and where it is on this machine.
    #[must_use]
    pub fn file(mut self, inside: impl Into<String>, outside: impl Into<PathBuf>) -> Self {
        self.files.push((inside.into(), outside.into()));
        self
    }
}
