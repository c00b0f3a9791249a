//! The whole system with the real binaries: each test has a stack of its own.

#![expect(clippy::unwrap_used, reason = "a test's unwrap is its assertion")]

mod admission;
mod api_input;
mod background;
mod crashes;
mod crowd;
mod demo;
mod drain;
mod edge;
mod exec;
mod exec_tls;
mod export;
mod faulty_drivers;
mod headers;
mod join;
mod kubernetes;
mod lifecycle;
mod logs;
mod metrics;
mod oidc;
mod packages;
mod priming;
mod recordings;
mod remote;
mod reporter;
mod retention;
mod revocation;
mod rolling;
mod secrets;
mod smoke;
mod startup;
mod tickets;
mod traces;
