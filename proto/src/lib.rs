//! What goes over a wire between the parts of the transcript plane.
//!
//! This crate owns the words of the contract as types: ids, limits, error codes, tickets and key rings, exec frames,
//! the driver's files and records, server-sent events, and the rules of a UI message stream. It does no I/O, knows no
//! runtime and no database, so every rule here can be proved by a plain test.

pub mod chain;
pub mod driver;
pub mod exec;
pub mod execution;
pub mod ids;
pub mod launch;
pub mod limits;
pub mod message;
pub mod package;
pub mod priming;
pub mod problem;
pub mod remote;
pub mod session;
pub mod sse;
pub mod ticket;
pub mod time;
pub mod trace;
pub mod transcript;
pub mod ui_stream;

pub use chain::Chain;
pub use ids::{
    CommandId, ExecutionId, Generation, MachineId, PartId, PartIndex, RemoteSessionId, RunId, Seq,
    SessionId, TurnNo, WorkspaceId,
};
