//! The store against a real PostgreSQL.
//!
//! Tests have a worker thread beside their own: the connections live there and go on while a test waits for psql.
#![allow(clippy::unwrap_used)]

mod access;
mod append;
mod completer;
mod crash;
mod dispatching;
mod encryption;
mod executions;
mod merge;
mod migrations;
mod notices;
mod proof;
mod reading;
mod remote;
mod retention;
mod sessions;
mod settling;
mod support;
mod upgrade;
