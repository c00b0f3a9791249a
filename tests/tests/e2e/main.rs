//! The whole system with the real binaries: each test has a stack of its own.

#![expect(clippy::unwrap_used, reason = "a test's unwrap is its assertion")]

mod admission;
mod api_input;
mod background;
mod crashes;
mod demo;
mod exec;
mod faulty_drivers;
mod lifecycle;
mod oidc;
mod recordings;
mod revocation;
mod secrets;
mod startup;
