//! The stack in the background: `make up`, `make down`, and the file that tells where everything is.
//!
//! A supervisor process owns the [`Stack`]; whoever wants it reads `dev.json`. The database is as private and as short-lived as
//! the stack: it is gone after `down`.

mod background;
mod supervisor;

pub use background::{Started, down, up};
pub use supervisor::serve;

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::client::{ApiClient, Secrets};
use crate::stack::{SandboxKind, Sandboxes, Stack, WORKSPACE, dashboard};

/// The file's name within the stack's directory.
pub const DEV_FILE: &str = "dev.json";
/// Where `make up` keeps everything.
pub const DEV_DIR: &str = ".bex";

/// What a developer needs of a running stack. Holds tokens: the file is 0600.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dev {
    /// bex-api.
    pub api_url: String,
    /// The dashboard, where it was built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
    /// The gateway's attach listener.
    pub attach_url: String,
    /// The gateway's exec listener.
    pub exec_url: String,
    /// Health, readiness and metrics of both.
    pub admin_urls: AdminUrls,
    /// Bearer token of an administrator.
    pub api_token: String,
    /// Bearer token that only reads.
    pub viewer_token: String,
    /// The viewer's workspace.
    pub workspace_id: String,
    /// The superuser's URL.
    pub database_url: String,
    /// Process.
    pub gateway_pid: u32,
    /// Process.
    pub api_pid: u32,
    /// The process that owns both.
    pub stack_pid: u32,
    /// Logs.
    pub log_dir: PathBuf,
    /// Where sandboxes are.
    pub sandbox_kind: SandboxKind,
    /// Their files.
    pub sandbox_dir: PathBuf,
    /// Recordings that may be played.
    pub play_dir: PathBuf,
    /// Agents of a local stack run as the driver's own user.
    pub isolation: Isolation,
}

/// See [`Dev::admin_urls`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdminUrls {
    /// Of bex-api.
    pub api: String,
    /// Of the gateway.
    pub gateway: String,
}

/// What separates an agent from its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Nothing: no protection is claimed.
    None,
}

impl Dev {
    /// What a running stack is reached by.
    ///
    /// # Errors
    /// When one of its processes does not run.
    pub fn of(stack: &Stack) -> anyhow::Result<Self> {
        let at = &stack.addresses;
        let url = |address: SocketAddr| format!("http://{address}");
        Ok(Self {
            api_url: url(at.api),
            dashboard_url: dashboard().map(|_| format!("{}/ui/", url(at.api))),
            attach_url: url(at.attach),
            exec_url: url(at.exec),
            admin_urls: AdminUrls {
                api: url(at.api_admin),
                gateway: url(at.gateway_admin),
            },
            api_token: stack.tokens.admin.clone(),
            viewer_token: stack.tokens.viewer.clone(),
            workspace_id: WORKSPACE.to_owned(),
            database_url: stack.database_url(),
            gateway_pid: stack.gateway_pid().context("the gateway does not run")?,
            api_pid: stack.api_pid().context("the api does not run")?,
            stack_pid: std::process::id(),
            log_dir: stack.log_dir(),
            sandbox_kind: stack.sandboxes.kind(),
            sandbox_dir: stack.sandboxes.dir().to_owned(),
            play_dir: stack.play_dir(),
            isolation: Isolation::None,
        })
    }

    /// Reads the file of a directory; `None` when there is none.
    ///
    /// # Errors
    /// When it is there and cannot be understood.
    pub fn read(dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = dir.join(DEV_FILE);
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .with_context(|| format!("{} is not ours", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Writes the file, whole or not at all.
    pub(crate) fn write(&self, dir: &Path) -> anyhow::Result<()> {
        let draft = dir.join(format!("{DEV_FILE}.new"));
        let _ = std::fs::remove_file(&draft);
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.write_all(b"\n")?;
        std::fs::rename(&draft, dir.join(DEV_FILE))?;
        Ok(())
    }

    /// The administrator as a client.
    ///
    /// # Errors
    /// When the URL is not one of ours.
    pub fn admin(&self) -> anyhow::Result<ApiClient> {
        Ok(ApiClient::new(
            address(&self.api_url)?,
            &self.api_token,
            Secrets::default(),
        ))
    }

    /// The attach listener.
    ///
    /// # Errors
    /// When the URL is not one of ours.
    pub fn attach(&self) -> anyhow::Result<SocketAddr> {
        address(&self.attach_url)
    }

    /// The sandboxes.
    pub fn sandboxes(&self) -> Sandboxes {
        Sandboxes::new(self.sandbox_kind, self.sandbox_dir.clone())
    }
}

fn address(url: &str) -> anyhow::Result<SocketAddr> {
    let address = url.strip_prefix("http://").context("not an http URL")?;
    address
        .parse()
        .with_context(|| format!("not an address: {url}"))
}
