//! The control plane of the transcript plane.
//!
//! [`http`] answers the REST verbs; every change of state is one call of the store. [`dispatch`] makes sandboxes and
//! delivers turns, [`completer`] harvests, settles and tears down. The api never opens a connection into a sandbox:
//! what it wants from there it asks of the gateway through [`exec_client`].

pub mod admin;
pub mod auth;
mod clock;
pub mod completer;
pub mod config;
pub mod dispatch;
pub mod exec_client;
pub mod export;
pub mod housekeeping;
pub mod http;
mod keep;
pub mod metrics;
pub mod notices;
pub mod openapi;
pub mod package;
pub mod priming;
pub mod profiles;
pub mod proof;
pub mod remote;
pub mod retention;
pub mod sandbox;
pub mod serve;
pub mod smoke;
pub mod tickets;

pub use serve::serve;
