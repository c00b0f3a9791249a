//! A pgbouncer in transaction mode before a server, for what must work through one.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::{KEEPER, pause};
use crate::{Binaries, PgError, io};

/// `pgbouncer` puts one before every server that this crate starts.
pub const POOLER_VARIABLE: &str = "BEX_TEST_POOLER";
/// A start takes milliseconds.
const READY: Duration = Duration::from_secs(20);
/// Another process may take the free port between our look and its bind.
const PORT_ATTEMPTS: u32 = 5;

/// A running pgbouncer; dropped, it is stopped.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    dir: TempDir,
    keeper: Child,
}

/// Whether the environment asks for one.
pub(crate) fn is_wanted() -> bool {
    std::env::var(POOLER_VARIABLE).is_ok_and(|value| value == "pgbouncer")
}

impl PgBouncer {
    /// Starts one before the server on a loopback port. Whoever the server knows may connect, as whom they say they are.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub fn start(binaries: &Binaries, server: u16) -> Result<Self, PgError> {
        let program = program()?;
        let mut attempt = 1;
        loop {
            match Self::start_once(binaries, &program, server) {
                Err(PgError::Program { .. }) if attempt < PORT_ATTEMPTS => attempt += 1,
                started => return started,
            }
        }
    }

    /// The superuser's URL of a database, through it.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable",
            self.port
        )
    }

    fn start_once(binaries: &Binaries, program: &Path, server: u16) -> Result<Self, PgError> {
        let dir = tempfile::Builder::new()
            .prefix("bex-pgbouncer-")
            .tempdir()
            .map_err(io("cannot make a directory"))?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|probe| probe.local_addr())
            .map_err(io("no free loopback port"))?
            .port();
        let path = |name: &str| dir.path().join(name);
        let write = |name: &str, text: String| {
            std::fs::write(path(name), text).map_err(io("cannot write pgbouncer's configuration"))
        };
        write("users.txt", "\"postgres\" \"\"\n".to_owned())?;
        write("pgbouncer.ini", configuration(&dir, port, server))?;
        for made in [
            dir.path(),
            path("users.txt").as_path(),
            path("pgbouncer.ini").as_path(),
        ] {
            binaries.hand_over(made)?;
        }
        let keeper = binaries
            .command("/bin/sh")
            .arg("-c")
            .arg(KEEPER)
            .arg("bex-pgbouncer")
            .arg(program)
            .args(["-q"])
            .arg(path("pgbouncer.ini"))
            .env("BEX_TESTPG_DIR", dir.path())
            .env("BEX_TESTPG_SIGNAL", "TERM")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(io("cannot run /bin/sh"))?;
        let bouncer = Self { port, dir, keeper };
        bouncer.await_ready()?;
        Ok(bouncer)
    }

    fn await_ready(&self) -> Result<(), PgError> {
        let log = self.dir.path().join("pgbouncer.log");
        let deadline = Instant::now() + READY;
        loop {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            // its own word first: another process might listen on the port
            if said.contains("process up")
                && TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
            {
                return Ok(());
            }
            if said.contains("FATAL") || said.contains("ERROR") || Instant::now() >= deadline {
                return Err(PgError::Program {
                    program: "pgbouncer",
                    output: said,
                });
            }
            pause();
        }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // the end of its standard input is what the keeper waits for
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn program() -> Result<PathBuf, PgError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|dir| dir.join("pgbouncer"))
        .find(|program| program.is_file())
        .ok_or(PgError::NoBouncer)
}

/// Transaction mode with few connections for many: a statement that counted on its session would soon be on another one. A client
/// hears soon that there is no server, well before its own time limit for a statement.
fn configuration(dir: &TempDir, port: u16, server: u16) -> String {
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={server}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         logfile = {dir}/pgbouncer.log\n\
         auth_type = trust\n\
         auth_file = {dir}/users.txt\n\
         auth_user = postgres\n\
         auth_query = SELECT usename, passwd FROM pg_shadow WHERE usename = $1\n\
         pool_mode = transaction\n\
         max_client_conn = 2000\n\
         default_pool_size = 5\n\
         server_idle_timeout = 5\n\
         server_login_retry = 1\n\
         query_wait_timeout = 5\n\
         log_connections = 0\n\
         log_disconnections = 0\n",
        dir = dir.path().display()
    )
}
