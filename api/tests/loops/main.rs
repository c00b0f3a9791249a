//! Dispatcher and Completer against a real PostgreSQL, with scripted sandboxes.

mod completing;
mod crashing;
mod dispatching;
mod endings;
mod exec;
mod local;
mod logs;
mod metrics;
mod sharing;
mod support;
mod world;
