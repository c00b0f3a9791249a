//! The gateway: the only process that speaks with sandboxes, for viewers (attach) and for the api (exec).

pub mod admin;
pub mod attach;
pub mod config;
pub mod driver_client;
pub mod exec;
pub mod hub;
pub mod metrics;
mod remote;
pub mod sandbox;
pub mod serve;
pub mod start;
