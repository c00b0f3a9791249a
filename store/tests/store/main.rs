//! The store against a real PostgreSQL.
#![allow(clippy::unwrap_used)]

mod access;
mod append;
mod completer;
mod dispatching;
mod merge;
mod migrations;
mod notices;
mod reading;
mod sessions;
mod settling;
mod support;
