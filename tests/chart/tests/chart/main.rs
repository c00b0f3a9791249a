//! The chart, as an installation would get it.

#![expect(clippy::unwrap_used, reason = "a test's unwrap is its assertion")]

mod access;
mod alerts;
mod documents;
mod hardening;
mod network;
mod render;
