//! A private PostgreSQL server for tests, benches and the local stack.
//!
//! [`TestPg::start_new`] makes a data directory of its own, a unix socket and a free loopback port, and removes all of
//! it on drop, even when the owning process is killed: the server runs under a small shell that waits for its owner's
//! pipe to close. [`server`] is how tests share one server without locks: `bex-testpg run -- CMD` starts it once and
//! names it in `BEX_TEST_PG_URL`; without that variable a process starts its own. A missing PostgreSQL is an error that
//! says what to install, never a skip.

mod binaries;
mod bouncer;
pub mod certs;
mod database;
mod process;

pub use binaries::Binaries;
pub use bouncer::{POOLER_VARIABLE, PgBouncer};
pub use database::{Database, Server, server};
pub use process::{Fsync, Options, TestPg};

/// Names the server that tests share: a superuser's URL.
pub const URL_VARIABLE: &str = "BEX_TEST_PG_URL";

/// Names the same server through its pgbouncer, where it has one.
pub const POOLED_URL_VARIABLE: &str = "BEX_TEST_PG_POOLED_URL";

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum PgError {
    /// No binaries anywhere we look.
    #[error(
        "no PostgreSQL found (looked in BEX_TEST_PG_BIN, /usr/lib/postgresql/15..18/bin and PATH); \
         install it, e.g. `apt-get install -y postgresql-15`"
    )]
    NotInstalled,
    /// A pgbouncer is asked for and is not there.
    #[error("pgbouncer is not installed; on Debian `apt-get install -y pgbouncer`")]
    NoBouncer,
    /// Running as root and neither `postgres` nor `nobody` exists to drop to.
    #[error(
        "PostgreSQL refuses to run as root and there is no user `postgres` or `nobody` to run it as"
    )]
    NoUser,
    /// A program of PostgreSQL failed.
    #[error("{program} failed: {output}")]
    Program {
        /// Which one.
        program: &'static str,
        /// What it said.
        output: String,
    },
    /// The server did not come up.
    #[error("PostgreSQL did not become ready within {seconds} s; its log ends with: {log}")]
    NotReady {
        /// How long we waited.
        seconds: u64,
        /// The end of its log.
        log: String,
    },
    /// Files or processes.
    #[error("{what}")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> PgError {
    move |source| PgError::Io { what, source }
}
