//! A driver that keeps the contract but for one fault, which its prompt names: `fault=redirect`.
//!
//! It stands where `bex-driver` does, with true grants and proofs, so that what it gets wrong is all that is wrong. It says
//! [`script::PARTS`] parts, at once.

mod http;
pub mod script;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use bex_proto::driver::{DriverKey, STATUS_FILE, TurnRequest, log_file};
use bex_proto::launch::{LISTENING_FILE, Launch, Listening};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::stack::bin_dir;
use script::Script;

/// What all connections share.
struct Driver {
    launch: Launch,
    key: DriverKey,
    /// The one turn, once it was delivered.
    script: watch::Sender<Option<(u32, Script)>>,
}

/// Serves one sandbox until it is killed.
///
/// # Errors
/// When the launch file or the directory cannot be used.
pub async fn serve(launch: &Path) -> anyhow::Result<()> {
    let launch: Launch = serde_json::from_slice(&std::fs::read(launch)?)?;
    let listener = TcpListener::bind(launch.listen).await?;
    let listening = Listening {
        address: listener.local_addr()?,
        pid: std::process::id(),
    };
    let dir = launch.dir.clone();
    let driver = Driver {
        key: DriverKey::from_hex(&launch.key).context("the launch file holds no key")?,
        launch,
        script: watch::channel(None).0,
    };
    put(&dir.join(LISTENING_FILE), &serde_json::to_vec(&listening)?)?;
    http::accept(listener, driver).await
}

/// Becomes the real driver's in-sandbox side: what is read of the log is read as in production.
///
/// # Errors
/// Only when there is no real driver.
pub fn exec(dir: &Path) -> anyhow::Result<()> {
    let real: PathBuf = bin_dir()?.join("bex-driver");
    let error = Command::new(&real).arg("exec").arg("--dir").arg(dir).exec();
    Err(error).with_context(|| format!("cannot become {}", real.display()))
}

impl Driver {
    /// Speaks the whole turn: its log and status are there before anybody is shown anything.
    fn speak(&self, request: &TurnRequest) -> anyhow::Result<()> {
        let script = Script::of(&request.prompt);
        let dir = &self.launch.dir;
        let log = script.log(self.launch.generation, request.turn);
        put(&dir.join(log_file(request.turn)), &log)?;
        let status = format!(
            r#"{{"state":"idle","generation":{},"turn":{}}}"#,
            self.launch.generation, request.turn
        );
        put(&dir.join(STATUS_FILE), status.as_bytes())?;
        self.script.send_replace(Some((request.turn.0, script)));
        Ok(())
    }
}

/// Writes a file whole or not at all.
fn put(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let draft = path.with_extension("new");
    std::fs::File::create(&draft)?.write_all(bytes)?;
    std::fs::rename(&draft, path)?;
    Ok(())
}
