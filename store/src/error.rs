//! What can go wrong below an operation. Expected outcomes ("somebody else did it") are never errors here.

use std::error::Error;
use std::fmt;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

/// Store trouble. None of the texts carries a parameter value.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No connection within the pool's limits.
    #[error("no database connection")]
    Pool(#[source] Box<PoolError>),
    /// The server refused a statement or the connection broke.
    #[error("database operation {operation} failed")]
    Statement {
        /// The named operation.
        operation: &'static str,
        /// What the server or the connection said.
        source: ServerFault,
    },
    /// A statement took longer than [`crate::pool::STATEMENT_TIMEOUT`]; its connection was discarded.
    #[error("database operation {operation} timed out")]
    Timeout {
        /// The named operation.
        operation: &'static str,
    },
    /// A row holds something this release does not understand.
    #[error("a row holds an invalid {what}")]
    Corrupt {
        /// Which column or word.
        what: &'static str,
    },
    /// The operation needs a row that is not there.
    #[error("no such {what}")]
    Missing {
        /// What was looked for.
        what: &'static str,
    },
}

impl StoreError {
    pub(crate) fn statement(operation: &'static str) -> impl Fn(tokio_postgres::Error) -> Self {
        move |source| Self::Statement {
            operation,
            source: ServerFault(Box::new(source)),
        }
    }

    /// The server's SQLSTATE, where it answered one.
    pub fn sqlstate(&self) -> Option<&SqlState> {
        match self {
            Self::Statement { source, .. } => source.0.code(),
            _ => None,
        }
    }

    /// Whether the same call may succeed later: no connection, a broken one, a time-out, a lock or serialisation conflict.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Pool(_) | Self::Timeout { .. } => true,
            Self::Corrupt { .. } | Self::Missing { .. } => false,
            Self::Statement { source, .. } => source.0.code().is_none_or(|code| {
                // 08 connection, 40 rollback, 53 resources, 55 lock, 57 operator intervention
                ["08", "40", "53", "55", "57"]
                    .iter()
                    .any(|class| code.code().starts_with(class))
            }),
        }
    }
}

/// What the server or the connection said, without any value of a row: the detail of an answer may quote one, and so does the
/// message where a value itself is refused.
pub struct ServerFault(Box<tokio_postgres::Error>);

/// SQLSTATE class of values that are refused.
const DATA_EXCEPTION: &str = "22";

impl fmt::Display for ServerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(answer) = self.0.as_db_error() else {
            return self.0.fmt(f);
        };
        let code = answer.code().code();
        if code.starts_with(DATA_EXCEPTION) {
            write!(f, "SQLSTATE {code}")
        } else {
            write!(f, "SQLSTATE {code}: {}", answer.message())
        }
    }
}

impl fmt::Debug for ServerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for ServerFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // a server's answer is its own cause, and the source would print its detail
        match self.0.as_db_error() {
            Some(_) => None,
            None => self.0.source(),
        }
    }
}

impl From<PoolError> for StoreError {
    fn from(source: PoolError) -> Self {
        Self::Pool(Box::new(source))
    }
}
