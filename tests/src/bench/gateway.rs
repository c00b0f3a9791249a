//! The real gateway as a child process, its memory, and tickets for it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use bex_proto::driver::DriverKey;
use bex_proto::launch::{LocalSandbox, SANDBOX_FILE, WORK_DIR, namespace_of, pod_of};
use bex_proto::ticket::{ATTACH_HEADER, AttachClaims, KeyRing, RemoteClaims};
use bex_proto::{RemoteSessionId, SessionId};
use tempfile::TempDir;

use super::database::{Database, GENERATION, WORKSPACE};
use super::sink;
use crate::eventually;
use crate::stack::bin_dir;

pub(super) const ATTACH_KEYS: &str =
    "k:5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
/// The api's ring.
pub const EXEC_KEYS: &str = "k:5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b";
pub(super) const DRIVER_KEYS: &str =
    "k:5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c";

/// Whether what passes is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tee {
    /// The rule.
    On,
    /// For measuring the splice alone.
    Off,
}

/// A running gateway; killed when dropped.
pub struct Gateway {
    child: Child,
    dir: TempDir,
    /// Its attach listener.
    pub attach: SocketAddr,
    /// Its exec listener.
    pub exec: SocketAddr,
    /// Its admin listener.
    pub admin: SocketAddr,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port of this machine that nobody listens on.
pub(super) fn free_port() -> anyhow::Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

impl Gateway {
    /// Starts one on a database and waits until it is ready.
    ///
    /// # Errors
    /// When it is not built, or does not become ready.
    pub async fn start(database: &Database, tee: Tee) -> anyhow::Result<Self> {
        Self::start_with(database, tee, &[]).await
    }

    /// The same with more in its environment.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub async fn start_with(
        database: &Database,
        tee: Tee,
        more: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let (attach, exec, admin) = (free_port()?, free_port()?, free_port()?);
        let child = Command::new(bin_dir()?.join("bex-gateway"))
            .env_clear()
            .envs([
                ("BEX_ATTACH_LISTEN", attach.to_string()),
                ("BEX_EXEC_LISTEN", exec.to_string()),
                ("BEX_ADMIN_LISTEN", admin.to_string()),
                ("BEX_DATABASE_URL", database.url.clone()),
                ("BEX_LISTEN_DATABASE_URL", database.url.clone()),
                ("BEX_ATTACH_KEYS", ATTACH_KEYS.into()),
                ("BEX_EXEC_KEYS", EXEC_KEYS.into()),
                ("BEX_DRIVER_KEYS", DRIVER_KEYS.into()),
                ("BEX_SANDBOX_KIND", "local".into()),
                ("BEX_LOCAL", "1".into()),
                ("BEX_SANDBOX_DIR", dir.path().display().to_string()),
                (
                    "BEX_DRIVER_BIN",
                    bin_dir()?.join("bex-driver").display().to_string(),
                ),
                ("BEX_TEE", if tee == Tee::On { "on" } else { "off" }.into()),
                ("RUST_LOG", "warn".into()),
            ])
            .envs(more.iter().copied())
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start bex-gateway; build it first")?;
        let gateway = Self {
            child,
            dir,
            attach,
            exec,
            admin,
        };
        eventually("the gateway is ready", Duration::from_secs(20), || async {
            sink::open(admin, "/readyz", &[]).await.ok()
        })
        .await?;
        Ok(gateway)
    }

    /// The key a fake driver of this session must have.
    ///
    /// # Errors
    /// Never with the ring of this module.
    pub fn driver_key(session: &SessionId) -> anyhow::Result<DriverKey> {
        Ok(DriverKey::derive(
            KeyRing::parse(DRIVER_KEYS)?.signing_key().1,
            session,
            GENERATION,
        ))
    }

    /// Tells the gateway where a session's driver is.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn register(&self, session: &SessionId, address: SocketAddr) -> anyhow::Result<()> {
        let pid = std::process::id();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // field 22, counted behind the parenthesised name
        let pid_start = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().nth(19))
            .context("no start time")?
            .parse()?;
        let sandbox = LocalSandbox {
            session: session.clone(),
            generation: GENERATION,
            namespace: namespace_of(&WORKSPACE.parse()?),
            pod: pod_of(session, GENERATION),
            pod_uid: "uid".into(),
            address,
            pid,
            pid_start,
            legacy: false,
        };
        let dir = self.sandbox_dir(session);
        std::fs::create_dir_all(dir.join(WORK_DIR))?;
        std::fs::write(
            Path::join(&dir, SANDBOX_FILE),
            serde_json::to_vec(&sandbox)?,
        )?;
        Ok(())
    }

    /// Where a session's sandbox lies.
    pub fn sandbox_dir(&self, session: &SessionId) -> PathBuf {
        self.dir.path().join(pod_of(session, GENERATION))
    }

    /// A fresh read ticket.
    ///
    /// # Errors
    /// Never with the ring of this module.
    pub fn ticket(session: &SessionId) -> anyhow::Result<String> {
        Self::ticket_of(session, "bench")
    }

    /// The same for a subject: one alone may not open many streams.
    ///
    /// # Errors
    /// As [`Gateway::ticket`].
    pub fn ticket_of(session: &SessionId, subject: &str) -> anyhow::Result<String> {
        let now = jiff::Timestamp::now().as_second();
        let claims = AttachClaims::to_read(session, WORKSPACE.parse()?, subject, now);
        Ok(claims.sign(&KeyRing::parse(ATTACH_KEYS)?))
    }

    /// A fresh ticket to watch a remote session.
    ///
    /// # Errors
    /// As [`Gateway::ticket`].
    pub fn remote_ticket(session: &RemoteSessionId) -> anyhow::Result<String> {
        let now = jiff::Timestamp::now().as_second();
        let claims = RemoteClaims::to_read(session, WORKSPACE.parse()?, "bench", now);
        Ok(claims.sign(&KeyRing::parse(ATTACH_KEYS)?))
    }

    /// Reads a session's stream until `enough` bytes came.
    ///
    /// # Errors
    /// When the stream is refused or ends before.
    pub async fn drink(&self, session: &SessionId, enough: u64) -> anyhow::Result<sink::Sunk> {
        sink::drink(
            self.attach,
            &stream_path(session),
            &[(ATTACH_HEADER, &Self::ticket(session)?)],
            enough,
        )
        .await
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory now and at its highest since the last [`Gateway::forget_peak`], in bytes.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn memory(&self) -> anyhow::Result<(u64, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field = |name: &str| -> anyhow::Result<u64> {
            let line = status
                .lines()
                .find(|l| l.starts_with(name))
                .context("no such field")?;
            Ok(line
                .split_whitespace()
                .nth(1)
                .context("no value")?
                .parse::<u64>()?
                * 1024)
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
    }

    /// Makes the highest memory the present one.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn forget_peak(&self) -> anyhow::Result<()> {
        Ok(std::fs::write(
            format!("/proc/{}/clear_refs", self.child.id()),
            "5",
        )?)
    }
}

/// A session's stream.
pub fn stream_path(session: &SessionId) -> String {
    format!("/v1/agent-sessions/{session}/stream")
}

/// A remote session's stream.
pub fn remote_stream_path(session: &RemoteSessionId) -> String {
    format!("/v1/agent-sessions/{session}/stream")
}
