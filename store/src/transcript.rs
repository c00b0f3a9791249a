//! The transcript: one way in ([`Db::append`](crate::Db::append)), two orders out. A conversation is read in part-id order, a feed in seq
//! order. Stored bytes are the driver's bytes, verbatim.

mod append;
mod heads;
mod read;

pub use append::{Append, AppendError, AppendOutcome, Appended, HarvestStep, Marks};
pub use heads::{EarlierCall, PartHead};
pub use read::{FeedPage, StoredPart};
