//! What the benches share: a database, the gateway as a process of its own, drivers without agents, a raw client, and the report.

pub mod database;
pub mod fake_driver;
pub mod gateway;
pub mod parts;
pub mod report;
pub mod sink;
