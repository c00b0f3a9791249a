//! The gateway: the only process that speaks with sandboxes, for viewers (attach) and for the api (exec).

pub mod config;
pub mod driver_client;
pub mod metrics;
pub mod sandbox;
pub mod serve;
