//! Why there is no package.

use std::collections::BTreeSet;

use bex_store::StoreError;

use super::objects::ObjectFault;

/// Why there is no package.
#[derive(Debug, thiserror::Error)]
pub enum PackageFault {
    /// There is nothing of this id for the caller.
    #[error("there is no such thing")]
    NotFound,
    /// A row of another workspace was met.
    #[error("a row of {table} is another workspace's")]
    Foreign {
        /// Where.
        table: String,
    },
    /// Several of the caller's workspaces have it.
    #[error("several workspaces have it")]
    Ambiguous,
    /// As many are being built as may be.
    #[error("as many packages are built as may be")]
    Busy,
    /// The workspace asked too often.
    #[error("the workspace asked too often")]
    TooOften {
        /// Until one more is allowed.
        seconds: u32,
    },
    /// It would be larger than a package may be.
    #[error("the package is too large")]
    TooLarge,
    /// It took longer than it may.
    #[error("the package took too long")]
    TooSlow,
    /// The gate found something in it.
    #[error("the gate refused it: {}", .0.iter().cloned().collect::<Vec<_>>().join(", "))]
    Gate(BTreeSet<String>),
    /// Store trouble.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The spool file could not be written or read.
    #[error("the spool file failed")]
    Spool(#[source] std::io::Error),
    /// The object store failed.
    #[error(transparent)]
    Object(#[from] ObjectFault),
    /// A step of the build ended without an answer.
    #[error("a step of the build was lost")]
    Lost(#[from] tokio::task::JoinError),
}

impl PackageFault {
    /// A word for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Ambiguous => "ambiguous",
            Self::Foreign { .. } => "foreign_row",
            Self::Busy => "busy",
            Self::TooOften { .. } => "too_often",
            Self::TooLarge => "too_large",
            Self::TooSlow => "too_slow",
            Self::Gate(_) => "gate_refused",
            Self::Store(_) => "store_failed",
            Self::Spool(_) | Self::Lost(_) => "failed",
            Self::Object(_) => "object_store_failed",
        }
    }

    /// Every word.
    pub const WORDS: [&'static str; 11] = [
        "not_found",
        "ambiguous",
        "foreign_row",
        "busy",
        "too_often",
        "too_large",
        "too_slow",
        "gate_refused",
        "store_failed",
        "failed",
        "object_store_failed",
    ];
}
