//! One server process: initdb, start, kill -9, start again, stop.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::bouncer::{self, PgBouncer};
use crate::certs::Issued;
use crate::{Binaries, PgError, io};

/// How long a start may take, crash recovery included.
const READY_SECONDS: u64 = 60;
/// How often we look.
const POLL: Duration = Duration::from_millis(10);
/// Another process may take the free port between our look and the server's bind.
const PORT_ATTEMPTS: u32 = 5;

/// Runs the program until its stdin says `keep` (we stop it, and want its files) or closes (we vanished, nobody does).
pub(crate) const KEEPER: &str = r#""$@" </dev/null & pg=$!
read -r word
kill -"$BEX_TESTPG_SIGNAL" $pg 2>/dev/null
wait $pg
[ "$word" = keep ] || rm -rf -- "$BEX_TESTPG_DIR""#;

/// Whether commits survive a crash of the machine. `Off` is several times faster and right for most tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// As in production: for benches and crash tests.
    On,
    /// fsync, full_page_writes and synchronous_commit off.
    Off,
}

/// How the server runs.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// See [`Fsync`].
    pub fsync: Fsync,
}

impl Default for Options {
    fn default() -> Self {
        Self { fsync: Fsync::Off }
    }
}

/// Whether the server speaks TLS too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encryption {
    None,
    Tls,
}

/// A private server; dropped, it is stopped and its files are gone.
#[derive(Debug)]
pub struct TestPg {
    // before the server, whose client it is
    bouncer: Option<PgBouncer>,
    binaries: Binaries,
    options: Options,
    dir: TempDir,
    port: u16,
    encryption: Encryption,
    /// the shell that stops the server when our end of its stdin closes
    keeper: Option<Child>,
}

impl TestPg {
    /// Makes a data directory and starts a server on it, behind a pgbouncer where [`crate::POOLER_VARIABLE`] asks for one.
    ///
    /// # Errors
    /// See [`PgError`].
    pub fn start_new(options: Options) -> Result<Self, PgError> {
        let mut pg = Self::make(options)?;
        pg.pick_port_and_start()?;
        if bouncer::is_wanted() {
            pg.bouncer = Some(PgBouncer::start(&pg.binaries, pg.port)?);
        }
        Ok(pg)
    }

    /// A server that also speaks TLS, with this certificate.
    ///
    /// # Errors
    /// See [`PgError`].
    pub fn start_tls(options: Options, certificate: &Issued) -> Result<Self, PgError> {
        let mut pg = Self::make(options)?;
        pg.encryption = Encryption::Tls;
        pg.write_certificate(certificate)?;
        pg.pick_port_and_start()?;
        Ok(pg)
    }

    fn make(options: Options) -> Result<Self, PgError> {
        let binaries = Binaries::find()?;
        let dir = tempfile::Builder::new()
            .prefix("bex-pg-")
            .tempdir()
            .map_err(io("cannot make a directory"))?;
        binaries.hand_over(dir.path())?;
        let pg = Self {
            bouncer: None,
            binaries,
            options,
            dir,
            port: 0,
            encryption: Encryption::None,
            keeper: None,
        };
        pg.initdb()?;
        Ok(pg)
    }

    /// Another certificate, for connections made from now on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn replace_certificate(&self, certificate: &Issued) -> Result<(), PgError> {
        self.write_certificate(certificate)?;
        if let Some(pid) = self.pid() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGHUP);
        }
        Ok(())
    }

    fn write_certificate(&self, certificate: &Issued) -> Result<(), PgError> {
        let write = |path: PathBuf, text: &str| {
            fs::write(&path, text).map_err(io("cannot write the server's certificate"))?;
            // the server refuses a key that others may read
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
                .map_err(io("cannot write the server's certificate"))?;
            self.binaries.hand_over(&path)
        };
        write(self.certificate(), &certificate.certificate)?;
        write(self.key(), &certificate.key)
    }

    fn certificate(&self) -> PathBuf {
        self.dir.path().join("server.crt")
    }

    fn key(&self) -> PathBuf {
        self.dir.path().join("server.key")
    }

    /// The superuser's URL of a database, over loopback TCP.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable",
            self.port
        )
    }

    /// The same through the pgbouncer before it; the direct one where there is none.
    pub fn pooled_url(&self, database: &str) -> String {
        match &self.bouncer {
            Some(bouncer) => bouncer.url(database),
            None => self.url(database),
        }
    }

    /// The same over the unix socket.
    pub fn socket_url(&self, database: &str) -> String {
        let dir = self.dir.path().display().to_string().replace('/', "%2F");
        format!(
            "postgres://postgres@{dir}:{}/{database}?sslmode=disable",
            self.port
        )
    }

    /// The TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory that holds the unix socket.
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where PostgreSQL's programs are.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Creates a database, as a copy of `template` where given, and returns its URL.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn create_database(&self, name: &str, template: Option<&str>) -> Result<String, PgError> {
        let template = template
            .map(|t| format!(" TEMPLATE \"{t}\""))
            .unwrap_or_default();
        self.sql("postgres", &format!("CREATE DATABASE \"{name}\"{template}"))?;
        Ok(self.url(name))
    }

    /// Runs SQL as the superuser and returns what psql printed.
    ///
    /// # Errors
    /// When a statement fails.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String, PgError> {
        crate::database::psql(&self.binaries, &self.url(database), sql)
    }

    /// The postmaster's process id, while it runs.
    pub fn pid(&self) -> Option<i32> {
        pid_file(&self.data()).map(|(pid, _)| pid)
    }

    /// SIGKILL to the postmaster and every backend, as a crash of the machine would; returns once the postmaster is gone.
    /// [`TestPg::start`] recovers it.
    pub fn kill9(&mut self) {
        if let Some(pid) = self.pid() {
            // stopped first, so that it neither replaces nor mourns its children meanwhile
            let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
            for child in children_of(pid) {
                let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
            }
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        self.close_keeper();
    }

    /// Ends the server as an operator does: its clients are sent away, a checkpoint is written. One that has not ended after a while
    /// is stopped.
    pub fn shut_down(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGINT);
        }
        let deadline = Instant::now() + Duration::from_secs(READY_SECONDS);
        while self.pid().is_some() && Instant::now() < deadline {
            pause();
        }
        self.close_keeper();
    }

    /// Stops the server at once, without a checkpoint.
    pub fn stop(&mut self) {
        self.close_keeper();
    }

    /// Starts the server again on the same directory and port.
    ///
    /// # Errors
    /// When it does not become ready, e.g. because it still runs.
    pub fn start(&mut self) -> Result<(), PgError> {
        let deadline = Instant::now() + Duration::from_secs(READY_SECONDS);
        // orphaned backends of a killed postmaster hold the shared memory for a moment
        loop {
            match self.start_once(deadline) {
                Err(PgError::NotReady { log, .. })
                    if Instant::now() < deadline && log.contains("shared memory block") =>
                {
                    pause();
                }
                other => return other,
            }
        }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("postgres.log")
    }

    fn initdb(&self) -> Result<(), PgError> {
        let output = self
            .binaries
            .command(self.binaries.program("initdb"))
            .args([
                "--no-sync",
                "--no-locale",
                "-E",
                "UTF8",
                "-A",
                "trust",
                "-U",
                "postgres",
                "-D",
            ])
            .arg(self.data())
            .output()
            .map_err(io("cannot run initdb"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(PgError::Program {
            program: "initdb",
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    fn pick_port_and_start(&mut self) -> Result<(), PgError> {
        let mut attempt = 1;
        loop {
            let probe = TcpListener::bind("127.0.0.1:0").map_err(io("no free loopback port"))?;
            self.port = probe
                .local_addr()
                .map_err(io("no free loopback port"))?
                .port();
            drop(probe);
            match self.start() {
                Err(PgError::NotReady { log, .. })
                    if attempt < PORT_ATTEMPTS && log.contains("Address already in use") =>
                {
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    fn start_once(&mut self, deadline: Instant) -> Result<(), PgError> {
        self.close_keeper();
        let stale = self.pid();
        // a fresh log per start, so that its end explains this start
        let log = fs::File::create(self.log()).map_err(io("cannot write the server's log"))?;
        self.binaries.hand_over(&self.log())?;
        let errors = log
            .try_clone()
            .map_err(io("cannot write the server's log"))?;
        let mut command = self.binaries.command("/bin/sh");
        command
            .arg("-c")
            .arg(KEEPER)
            .arg("bex-testpg")
            .arg(self.binaries.program("postgres"))
            .arg("-D")
            .arg(self.data())
            .args(["-p", &self.port.to_string()])
            .args(["-k", &self.dir.path().display().to_string()])
            .args([
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "max_connections=200",
                "-c",
                "timezone=UTC",
            ])
            .env("BEX_TESTPG_DIR", self.dir.path())
            // without a checkpoint
            .env("BEX_TESTPG_SIGNAL", "QUIT")
            // a terminal's interrupt is for us; the keeper reacts to our end
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(errors);
        if self.options.fsync == Fsync::Off {
            command.args([
                "-c",
                "fsync=off",
                "-c",
                "full_page_writes=off",
                "-c",
                "synchronous_commit=off",
            ]);
        }
        if self.encryption == Encryption::Tls {
            let file = |name: &str, path: PathBuf| format!("{name}={}", path.display());
            command.args(["-c", "ssl=on", "-c"]);
            command.arg(file("ssl_cert_file", self.certificate()));
            command.arg("-c").arg(file("ssl_key_file", self.key()));
        }
        self.keeper = Some(command.spawn().map_err(io("cannot run /bin/sh"))?);
        self.await_ready(stale, deadline)
    }

    fn await_ready(&mut self, stale: Option<i32>, deadline: Instant) -> Result<(), PgError> {
        loop {
            if let Some((pid, true)) = pid_file(&self.data())
                && Some(pid) != stale
            {
                return Ok(());
            }
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            let failed = log.contains("FATAL:")
                && (log.contains("already in use") || log.contains("in use"));
            if failed || Instant::now() >= deadline {
                self.close_keeper();
                let tail: Vec<&str> = log.lines().rev().take(8).collect();
                let log = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
                return Err(PgError::NotReady {
                    seconds: READY_SECONDS,
                    log,
                });
            }
            pause();
        }
    }

    fn close_keeper(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            if let Some(mut stdin) = keeper.stdin.take() {
                let _ = stdin.write_all(b"keep\n");
            }
            let _ = keeper.wait();
        }
    }
}

impl Drop for TestPg {
    fn drop(&mut self) {
        self.close_keeper();
    }
}

/// The processes whose parent is `pid`, from /proc; none where there is no /proc, and then the orphaned backends end by
/// themselves when they notice.
fn children_of(pid: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let processes = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    processes
        .filter(|process| parent_of(*process) == Some(pid))
        .collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // `pid (name) state ppid …`; the name may hold anything
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Between two looks at the server's own state, which nothing announces.
#[expect(
    clippy::disallowed_methods,
    reason = "a bounded poll of a level; this crate has no async runtime"
)]
pub(crate) fn pause() {
    std::thread::sleep(POLL);
}

/// The postmaster's pid and whether it says `ready`.
fn pid_file(data: &Path) -> Option<(i32, bool)> {
    let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let mut lines = text.lines();
    let pid = lines.next()?.trim().parse().ok()?;
    Some((
        pid,
        lines.nth(6).is_some_and(|status| status.trim() == "ready"),
    ))
}
