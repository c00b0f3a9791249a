//! What the benches share: a database, api and gateway as processes of their own, drivers without agents, a raw client, and the report.

pub mod api;
pub mod database;
pub mod fake_driver;
pub mod gateway;
pub mod parts;
pub mod remote;
pub mod report;
pub mod sink;
