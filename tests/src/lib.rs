//! Everything that starts the system as a whole: the local stack, clients of its listeners, the demo and its agent.
//!
//! `make demo`, `make up`, the end-to-end tests and the benches all use [`stack`], so there is one way to start it.

pub mod agent;
#[cfg(feature = "bench")]
pub mod bench;
pub mod client;
pub mod cluster;
pub mod demo;
pub mod dev;
pub mod edge;
pub mod eventually;
pub mod fake_driver;
pub mod fault_proxy;
pub mod recording;
pub mod scenario;
pub mod stack;
pub mod tally;

pub use eventually::eventually;
pub use stack::{Stack, StackOptions};
