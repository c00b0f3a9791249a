//! What executions of workflows report about themselves: versions of their configuration, nodes, the sessions they used, findings and usage.
//!
//! What it promises: every key begins with the workspace, so that an id of one workspace says nothing about another's; a fact once recorded
//! stays (the same again changes nothing, another one is refused); statuses move forward only, each move in one statement.
//!
//! What it does not do: it decides no policy, reads no JSON and joins no rows of sessions. Rows are locked in the order executions, nodes,
//! findings, usage.

mod batches;
mod findings;
mod keeping;
mod list;
mod nodes;
mod pages;
mod record;
mod usage;
mod versions;

pub use batches::Batch;
pub use findings::{Finding, FindingRow, FindingsOf};
pub use keeping::{Forgotten, Removed};
pub use list::{ExecutionCursor, ExecutionFilter};
pub use nodes::{NodeFacts, NodeRecorded, NodeRow};
pub use pages::{Page, RecordCursor};
pub use record::{ExecutionFacts, ExecutionRow, NamedSessionRow, Recorded, SessionName};
pub use usage::{LedgerTotals, UsageEntry, UsageOf, UsageRow};
pub use versions::{ConfigKey, ConfigVersion, VersionCursor, VersionRecorded};
