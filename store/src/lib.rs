//! Everything the transcript plane keeps: the schema, the one way a part is stored, both read orders, and the work rows
//! that let replicas share sessions. All SQL of the system is in this crate.
//!
//! What it promises:
//!
//! - **A part is stored once, verbatim.** Its identity is `(session, turn, index)`; `append` may be repeated, reordered
//!   and interleaved by tee and harvest without ever storing a second copy or changing a stored byte.
//! - **seq has no gaps and becomes visible in order**, because it is given out under the head row's lock.
//! - **The quota is never exceeded**, for the same reason.
//! - **`complete` is proved** by count and digest over the stored bytes, and never changes again.
//! - **Every move is a compare-and-set.** "Somebody else was first" is a typed outcome. What a replica does under a lease
//!   names the lease's fence, so a replica that lost it changes nothing.
//! - **The database clock decides** every expiry, delay and order.
//!
//! What it does not do: it decides no policy (who may ask, when to tear down), caches nothing and spawns nothing but the
//! connection tasks of its pool and [`listen`].
//!
//! Row locks are always taken in the order leases, sessions, dispatches, transcript_heads, turns, sandboxes.
//! Session rows are locked FOR NO KEY UPDATE: the first append of a log inserts a row that refers to its session, which
//! must not wait for whoever waits for the turn that append holds.
//!
//! Reading order: [`mod@migrate`] (with `migrations/`), [`pool`], [`sessions`], [`dispatch`], [`transcript`], [`settle`],
//! [`leases`], [`sandboxes`], then the small ones.

pub mod audit;
mod clock;
pub mod config;
pub mod dispatch;
pub mod error;
pub mod executions;
pub mod export;
pub mod holds;
pub mod idempotency;
pub mod import;
pub mod leases;
pub mod listen;
pub mod migrate;
pub mod packages;
pub mod pool;
pub mod priming;
pub mod proof;
pub mod ready;
pub mod remote;
pub mod retention;
pub mod revocations;
pub mod roles;
pub mod sandboxes;
pub mod sessions;
pub mod settle;
mod sql;
pub mod tickets;
mod tls;
pub mod transcript;
pub mod turns;
pub mod wake;
pub mod words;

pub use config::{ConfigError, DbConfig};
pub use error::StoreError;
pub use migrate::{check_schema, migrate};
pub use pool::Db;
pub use ready::{ClusterRights, Readiness, Unready};
pub use roles::{Role, preflight};
