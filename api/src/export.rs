//! A session as a file: exported, checked offline, taken in again.
//!
//! `jsonl` is lossless. Every line ends with the digest of what stands before it in the line, so that a damaged line is named; the
//! last line holds the digest of all lines and, where the deployment has keys, a signature over it. Between them stand the turns,
//! each with its parts' stored bytes verbatim, and the chain of signed statements ([`crate::proof`]). `markdown` and `ui-messages`
//! are for people and for pages; they are not taken in again.
//!
//! An export is read turn by turn and page by page, with no transaction and no connection held between pages.

mod import;
mod jsonl;
mod line;
mod markdown;
mod messages;
mod parts;
mod sink;
mod ui_messages;
mod verify;

use std::sync::Arc;

use bex_store::Db;
use bex_store::sessions::SessionRow;
use tokio::sync::Semaphore;

use crate::metrics::{ExportResult, KeepingMetrics};
use crate::proof::ProofRing;

pub use import::{ImportFault, import};
pub use sink::ExportBody;
pub use verify::{Checked, Complaint, VerifyFault, verify};

/// Exports of one process at once; one more is refused. Each holds a few pages; one of the forms for people and pages holds a turn, put
/// together: what a session's quota lets one turn have, 64 MiB and 200 000 parts, each part's record included.
const EXPORTS: usize = 4;

/// The forms of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Lossless, line by line.
    Jsonl,
    /// For people.
    Markdown,
    /// The AI SDK's messages.
    UiMessages,
}

impl Format {
    /// Reads its word.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "jsonl" => Some(Self::Jsonl),
            "markdown" => Some(Self::Markdown),
            "ui-messages" => Some(Self::UiMessages),
            _ => None,
        }
    }

    /// Media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Jsonl => "application/x-ndjson",
            Self::Markdown => "text/markdown; charset=utf-8",
            Self::UiMessages => "application/json",
        }
    }

    /// Ending of a file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Markdown => "md",
            Self::UiMessages => "json",
        }
    }
}

/// Why an export broke. Its reader sees the connection end early.
#[derive(Debug, thiserror::Error)]
pub enum ExportFault {
    /// Store trouble.
    #[error(transparent)]
    Store(#[from] bex_store::StoreError),
    /// The session was deleted while it was read.
    #[error("the session is gone")]
    Gone,
    /// Nobody reads it any more.
    #[error("the reader is gone")]
    Unread,
}

/// Makes exports.
#[derive(Debug, Clone)]
pub struct Exporter {
    db: Db,
    ring: Option<Arc<ProofRing>>,
    places: Arc<Semaphore>,
    metrics: KeepingMetrics,
}

impl Exporter {
    /// An exporter; without a ring its exports are not signed.
    pub fn new(db: Db, ring: Option<Arc<ProofRing>>, metrics: KeepingMetrics) -> Self {
        Self {
            db,
            ring,
            places: Arc::new(Semaphore::new(EXPORTS)),
            metrics,
        }
    }

    /// Begins an export, or gives nothing when too many are under way. It goes on as fast as it is read.
    pub fn begin(&self, session: SessionRow, format: Format) -> Option<ExportBody> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.metrics.exported(ExportResult::Refused);
            return None;
        };
        let (sink, body) = sink::pair();
        let (db, ring, metrics) = (self.db.clone(), self.ring.clone(), self.metrics.clone());
        tokio::spawn(async move {
            let id = session.id.clone();
            let mut sink = sink;
            let written = match format {
                Format::Jsonl => jsonl::write(&db, ring.as_deref(), &session, &mut sink).await,
                Format::Markdown => markdown::write(&db, &session, &mut sink).await,
                Format::UiMessages => ui_messages::write(&db, &session, &mut sink).await,
            };
            match written {
                Ok(()) => metrics.exported(ExportResult::Done),
                Err(ExportFault::Unread) => {
                    metrics.exported(ExportResult::Left);
                    tracing::debug!(session = %id, "an export was left");
                }
                Err(fault) => {
                    metrics.exported(ExportResult::Broken);
                    tracing::warn!(session = %id, error = %bex_proto::Chain(&fault), "an export broke");
                    sink.broken().await;
                }
            }
            drop(place);
        });
        Some(body)
    }
}
