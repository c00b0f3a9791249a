//! The real api as a child process, and one connection to it that is kept open.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use bex_proto::transcript::sha256_hex;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::database::{Database, WORKSPACE};
use super::gateway::{self, ATTACH_KEYS, DRIVER_KEYS, EXEC_KEYS};
use super::sink;
use crate::eventually;
use crate::stack::bin_dir;

/// Who reads.
pub const VIEWER: &str = "bench-viewer-token";

/// A running api; killed when dropped.
pub struct Api {
    child: Child,
    _dir: TempDir,
    /// Its listener.
    pub address: SocketAddr,
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Api {
    /// Starts one on a database and waits until it is ready.
    ///
    /// # Errors
    /// When it is not built, or does not become ready.
    pub async fn start(database: &Database) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let file = |name: &str| dir.path().join(name).display().to_string();
        let tokens = json!([{"sha256": sha256_hex(VIEWER.as_bytes()), "subject": "bench",
            "workspaces": [WORKSPACE], "role": "viewer"}]);
        std::fs::write(file("tokens"), tokens.to_string())?;
        let profiles =
            json!({"profiles": {"bench": {"agent": {"kind": "command"}, "args": "caller"}}});
        std::fs::write(file("profiles"), profiles.to_string())?;
        let (address, admin) = (gateway::free_port()?, gateway::free_port()?);
        let child = Command::new(bin_dir()?.join("bex-api"))
            .arg("serve")
            .env_clear()
            .envs([
                ("BEX_API_LISTEN", address.to_string()),
                ("BEX_ADMIN_LISTEN", admin.to_string()),
                ("BEX_DATABASE_URL", database.url.clone()),
                ("BEX_LISTEN_DATABASE_URL", database.url.clone()),
                ("BEX_ATTACH_KEYS", ATTACH_KEYS.into()),
                ("BEX_EXEC_KEYS", EXEC_KEYS.into()),
                ("BEX_DRIVER_KEYS", DRIVER_KEYS.into()),
                ("BEX_ATTACH_PUBLIC_URL", "http://127.0.0.1:9".into()),
                ("BEX_EXEC_URL", "http://127.0.0.1:9".into()),
                ("BEX_SERVICE_TOKENS", file("tokens")),
                ("BEX_PROFILES", file("profiles")),
                ("BEX_SANDBOX_KIND", "local".into()),
                ("BEX_LOCAL", "1".into()),
                ("BEX_SANDBOX_DIR", dir.path().display().to_string()),
                (
                    "BEX_DRIVER_BIN",
                    bin_dir()?.join("bex-driver").display().to_string(),
                ),
                ("RUST_LOG", "warn".into()),
            ])
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start bex-api; build it first")?;
        let api = Self {
            child,
            _dir: dir,
            address,
        };
        eventually("the api is ready", Duration::from_secs(20), || async {
            sink::open(admin, "/readyz", &[]).await.ok()
        })
        .await?;
        Ok(api)
    }

    /// A connection for one caller's requests, one after the other.
    ///
    /// # Errors
    /// When the api cannot be reached.
    pub async fn connect(&self, token: &str) -> anyhow::Result<Caller> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // its end shows in the next request
        tokio::spawn(connection);
        Ok(Caller {
            sender,
            bearer: format!("Bearer {token}"),
            host: self.address.to_string(),
        })
    }
}

/// See [`Api::connect`].
pub struct Caller {
    sender: SendRequest<Full<Bytes>>,
    bearer: String,
    host: String,
}

impl Caller {
    /// One request with a JSON or NDJSON body, or none; gives the answer's body.
    ///
    /// # Errors
    /// When the answer is not 200.
    pub async fn call(&mut self, method: &str, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("authorization", &self.bearer)
            .body(Full::new(body))?;
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(
            status == StatusCode::OK,
            "{path}: {status} {}",
            String::from_utf8_lossy(&body)
        );
        Ok(body)
    }
}
