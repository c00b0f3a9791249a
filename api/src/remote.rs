//! Remote sessions: from what machines report to turns and messages.
//!
//! A report passes these files in order: `http/remote/output` stores it, [`announcer`] tells viewers of it, [`builders`] says when its session
//! is looked at, [`pass`] reads the log on and writes, [`rows`] turns what [`build`] made into rows. [`build`] is pure: what a turn is,
//! what providers say, and what becomes a message.

mod announcer;
pub mod build;
mod builders;
mod pass;
mod rows;

pub use announcer::Announcer;
pub use builders::Builders;
