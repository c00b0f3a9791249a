//! Sandboxes that are pods, against a double of a cluster: the real client and the real driver.

#![expect(clippy::unwrap_used, reason = "a test's unwrap is its assertion")]

mod departing;
mod living;
mod refused;
mod rights;
mod support;
