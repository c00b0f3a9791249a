//! What can go wrong below an operation. Expected outcomes ("somebody else did it") are never errors here.

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
        /// The driver's error.
        #[source]
        source: Box<tokio_postgres::Error>,
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
            source: Box::new(source),
        }
    }

    /// The server's SQLSTATE, where it answered one.
    pub fn sqlstate(&self) -> Option<&SqlState> {
        match self {
            Self::Statement { source, .. } => source.code(),
            _ => None,
        }
    }

    /// Whether the same call may succeed later: no connection, a broken one, a time-out, a lock or serialisation conflict.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Pool(_) | Self::Timeout { .. } => true,
            Self::Corrupt { .. } | Self::Missing { .. } => false,
            Self::Statement { source, .. } => source.code().is_none_or(|code| {
                // 08 connection, 40 rollback, 53 resources, 55 lock, 57 operator intervention
                ["08", "40", "53", "55", "57"]
                    .iter()
                    .any(|class| code.code().starts_with(class))
            }),
        }
    }
}

impl From<PoolError> for StoreError {
    fn from(source: PoolError) -> Self {
        Self::Pool(Box::new(source))
    }
}
