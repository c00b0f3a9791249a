//! The program inside a sandbox.
//!
//! One straight line: [`profile`] says what to run, an [`agent`] speaks, what it says is mapped to UI parts, made
//! [`storable`], redacted, numbered, logged and only then shown ([`sink`]); [`http`] serves it to the gateway. [`exec`] is
//! the other face of the same binary: it reads status and log for the api. The driver never exits by itself while it may still
//! have something to show: under a restart policy of `Never` its log would be out of reach.

pub mod agent;
pub mod bounds;
pub mod exec;
pub mod files;
pub mod http;
pub mod install;
mod json_bytes;
pub mod map;
pub mod memory;
pub mod priming;
pub mod profile;
pub mod recover;
pub mod remote;
pub mod scrub;
pub mod serve;
pub mod sink;
pub mod status;
pub mod storable;
pub mod turns;
