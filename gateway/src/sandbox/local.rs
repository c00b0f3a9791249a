//! Sandboxes of the local kind: a directory, a driver process of this machine, a port on loopback.
//!
//! The api writes a registry file per sandbox; this module only reads it. A file or process that is not there is gone, but only while the
//! registry itself can be read: an unmounted directory must not end every session.

mod process;
mod registry;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use bex_proto::exec::SandboxRequest;
use bex_proto::launch::{DRIVER_DIR, WORK_DIR, pod_of};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tracing::warn;

use crate::sandbox::{ExecPipe, ExecStartError, Look, TargetRef, Targets, request_frame};
use process::RunningExec;
use registry::Found;

/// How long an in-sandbox process may take to end by itself after its input closed: it stops what it started.
pub const EXEC_END_GRACE: Duration = Duration::from_secs(2);
/// What an in-sandbox process finds programs by; nothing else of the gateway's environment reaches it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The registry directory and the driver's binary.
#[derive(Debug, Clone)]
pub struct LocalTargets {
    dir: PathBuf,
    driver_bin: PathBuf,
}

impl LocalTargets {
    /// Sandboxes below `dir`, entered with `driver_bin`.
    pub fn new(dir: PathBuf, driver_bin: PathBuf) -> Self {
        Self { dir, driver_bin }
    }

    /// `None` for a pod that is not this session's and generation's; so no foreign name ever becomes a path.
    fn home(&self, target: &TargetRef) -> Option<PathBuf> {
        let pod = pod_of(&target.session, target.generation);
        (pod == target.pod).then(|| self.dir.join(pod))
    }

    fn command(&self, home: &Path) -> Command {
        let mut command = Command::new(&self.driver_bin);
        command
            .arg("exec")
            .arg("--dir")
            .arg(home.join(DRIVER_DIR))
            .current_dir(home.join(WORK_DIR))
            .env_clear()
            .env("PATH", PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        command
    }
}

#[async_trait]
impl Targets for LocalTargets {
    async fn look(&self, target: &TargetRef) -> Look {
        let Some(home) = self.home(target) else {
            return Look::Gone;
        };
        let (root, wanted) = (self.dir.clone(), target.clone());
        let found =
            tokio::task::spawn_blocking(move || registry::find(&root, &home, &wanted)).await;
        match found {
            Ok(Found::Alive(address)) if address.ip().is_loopback() => Look::Running {
                address,
                terminating: false,
            },
            Ok(Found::Alive(address)) => {
                warn!(session = %target.session, %address, "a local sandbox names an address that is not loopback");
                Look::Unknown
            }
            Ok(Found::Gone) => Look::Gone,
            Ok(Found::Unreadable(error)) => {
                warn!(session = %target.session, generation = %target.generation, error, "cannot look at a sandbox");
                Look::Unknown
            }
            Err(_) => Look::Unknown,
        }
    }

    async fn exec(
        &self,
        target: &TargetRef,
        request: SandboxRequest,
    ) -> Result<ExecPipe, ExecStartError> {
        self.look(target).await.lets_in(&request.operation)?;
        let home = self.home(target).ok_or(ExecStartError::Gone)?;
        let child = self.command(&home).spawn().map_err(ExecStartError::Start)?;
        let (mut running, output) = RunningExec::new(child);
        running
            .input()
            .write_all(&request_frame(&request))
            .await
            .map_err(ExecStartError::Start)?;
        Ok(ExecPipe {
            output: Box::pin(output),
            process: Box::new(running),
        })
    }
}

#[cfg(test)]
mod tests;
