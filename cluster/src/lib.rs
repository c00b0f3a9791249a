//! What the api and the gateway have in common towards a cluster: the connection to its API server, and the question what their account
//! may do there.

mod client;
mod rights;

pub use client::{ClientError, Transport, connect};
pub use rights::{Right, Rights};
