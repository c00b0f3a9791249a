//! What replay packages are made of, read in one repeatable-read snapshot, page by page; and which packages were made.
//!
//! What it promises: all that one [`Snapshot`] gives is of one moment, in a fixed order, and bounded by a page. Every row says whose it
//! is, and the reader compares once more: a query that forgets its condition is met by an alarm, not by a leak.
//!
//! What it does not do: it knows nothing of JSON, redaction or objects.

mod execution;
mod intruders;
mod made;
mod records;
mod remote;
mod runs;
mod snapshot;
mod transcript;

pub use execution::{ConfigSource, ExecutionSource, NodeSource, SessionSource};
pub use intruders::Intruder;
pub use made::{PackageKey, Renewed};
pub use records::{FindingSource, RecordAfter, RecordsOf, UsageSource};
pub use remote::{RemoteMessageSource, RemoteSource, RemoteTurnSource};
pub use runs::{RunPlace, RunSource};
pub use snapshot::Snapshot;
pub use transcript::{AgentSource, TurnSource};
