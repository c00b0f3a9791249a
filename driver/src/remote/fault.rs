//! Why a reporter ends before its command's end is told. What passes by itself is no fault: it is tried again for ever.

use std::io;

use http::StatusCode;

use super::arguments::ConfigFault;

/// After a second signal; the command goes on.
pub const INTERRUPTED: u8 = 130;

/// See the module's text.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The arguments cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigFault),
    /// The state directory is another session's.
    #[error("the state directory belongs to session {0}")]
    OtherSession(String),
    /// It is another reporter's.
    #[error("another reporter works with this state directory")]
    Busy,
    /// What stands in the state directory does not fit what the service has.
    #[error("the service wants event {wanted}, and the state directory begins with {first}")]
    StateLost {
        /// What it wants.
        wanted: u64,
        /// What there is.
        first: u64,
    },
    /// A file of the state directory is not what was written.
    #[error("{0} cannot be read")]
    Corrupt(&'static str),
    /// The system says no.
    #[error("a file of the state directory or a process")]
    Io(#[from] io::Error),
    /// The token is none, or no longer.
    #[error("the service refuses the token")]
    Unauthenticated,
    /// This machine has no such session.
    #[error("this machine has no such session")]
    NotFound,
    /// The session has ended.
    #[error("the session has ended")]
    SessionEnded,
    /// The service has something else under an index.
    #[error("another event was reported under index {0}")]
    EventConflict(u64),
    /// The session's log is full. Known to the sender only.
    #[error("the session's log is full")]
    LogFull,
    /// An event before is missing. Known to the sender only.
    #[error("event {0} is missing")]
    TooFar(u64),
    /// Any other answer that does not change by asking again.
    #[error("the service answers {status} {code}")]
    Refused {
        /// Its status.
        status: StatusCode,
        /// Its code.
        code: String,
    },
    /// A person ends the reporter.
    #[error("interrupted")]
    Interrupted,
}

impl Fault {
    /// The process's exit code, by sysexits where one fits.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::OtherSession(_) => 64,
            Self::EventConflict(_) | Self::StateLost { .. } | Self::Corrupt(_) => 65,
            Self::NotFound | Self::SessionEnded | Self::LogFull => 69,
            Self::TooFar(_) | Self::Refused { .. } => 70,
            Self::Io(_) => 74,
            Self::Busy => 75,
            Self::Unauthenticated => 77,
            Self::Interrupted => INTERRUPTED,
        }
    }

    /// One word for programs that read the log.
    pub fn code(&self) -> &str {
        match self {
            Self::Config(_) => "config",
            Self::OtherSession(_) => "other_session",
            Self::Busy => "busy",
            Self::StateLost { .. } => "state_lost",
            Self::Corrupt(_) => "corrupt",
            Self::Io(_) => "io",
            Self::Unauthenticated => "unauthenticated",
            Self::NotFound => "not_found",
            Self::SessionEnded => "session_ended",
            Self::EventConflict(_) => "event_conflict",
            Self::LogFull => "log_full",
            Self::TooFar(_) => "event_too_far",
            Self::Refused { code, .. } => code,
            Self::Interrupted => "interrupted",
        }
    }

    /// What a person does about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Config(_) => "cannot begin",
            Self::OtherSession(_) => "cannot begin: give each session a state directory of its own",
            Self::Busy => "cannot begin",
            Self::Unauthenticated => {
                "ends, the command goes on: give the reporter a good token and start it again"
            }
            Self::NotFound => "ends: is the session this machine's?",
            Self::EventConflict(_) | Self::StateLost { .. } => {
                "ends, the command goes on: somebody else reported to this session"
            }
            Self::Corrupt(_)
            | Self::Io(_)
            | Self::SessionEnded
            | Self::LogFull
            | Self::TooFar(_)
            | Self::Refused { .. }
            | Self::Interrupted => "ends; started again with the same state directory, it goes on",
        }
    }
}
