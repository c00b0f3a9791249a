//! The REST verbs through real HTTP against a real PostgreSQL; only the gateway is scripted.
#![allow(clippy::unwrap_used)]

mod access;
mod bodies;
mod exec;
mod executions;
mod keeping;
mod lifecycle;
mod remote;
mod replay;
mod sessions;
mod support;
mod tickets;
mod transcript;
mod turns;
mod words;
