//! Remote sessions: machines, what they reported, and the turns and messages made from it.
//!
//! What it promises: an event is stored once under its index, verbatim; a row made from the log is written once, with its counter, in log
//! order, however many builders try ([`Db::write_built`](crate::Db::write_built) is a compare-and-set on the head's revision);
//! positions become visible in order, but for rows that are made again.

mod built;
mod commands;
mod gaps;
mod imports;
mod keeping;
mod log;
mod machines;
mod messages;
mod sessions;
mod usage;
mod watch;

pub use built::{BuiltRow, MessageText, TurnRow as RemoteTurnRow, WriteBuilt, Written};
pub use commands::{Command, CommandState, NewCommand, Queued, Told};
pub use gaps::Decided;
pub use imports::{Import, Imported, StoredImport};
pub use log::{Appended as EventsAppended, LogRow, RemoteAppend};
pub use machines::{MachineRow, NewMachine};
pub use messages::{MessageRow, NumberedTurn};
pub use sessions::{
    Ending, Moved, NewRemoteSession, RemoteCreated, RemoteHead, RemoteListFilter, RemoteSessionRow,
};
pub use usage::{Reported, UsageReport};
pub use watch::{DurableTurn, Look, Standing};
