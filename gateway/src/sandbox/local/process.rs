//! The life of one in-sandbox process.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::EXEC_END_GRACE;
use crate::sandbox::Process;

/// A process group that ends with its owner: dropping this closes the process's input, on which it ends by itself and takes along
/// what it started, possibly as another user; what is left after [`EXEC_END_GRACE`] is killed as a group.
pub(super) struct RunningExec {
    child: Option<Child>,
    input: Option<ChildStdin>,
}

impl RunningExec {
    /// `child` was spawned with piped input and output as the leader of its own group.
    pub(super) fn new(mut child: Child) -> (Self, ChildStdout) {
        let output = child.stdout.take().expect("spawned with piped output");
        let input = child.stdin.take();
        let running = Self {
            child: Some(child),
            input,
        };
        (running, output)
    }

    pub(super) fn input(&mut self) -> &mut ChildStdin {
        self.input
            .as_mut()
            .expect("spawned with piped input, which is closed by drop only")
    }
}

// what became of a process of this machine is seen in its output
impl Process for RunningExec {}

impl Drop for RunningExec {
    fn drop(&mut self) {
        drop(self.input.take());
        let Some(mut child) = self.child.take() else {
            return;
        };
        // outside a runtime the child's own kill-on-drop must do
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if tokio::time::timeout(EXEC_END_GRACE, child.wait())
                    .await
                    .is_err()
                {
                    kill_group(&child);
                    let _ = child.wait().await;
                }
            });
        }
    }
}

/// The leader is not reaped yet, so its number still names this group.
fn kill_group(child: &Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(group) = group {
        // it fails only when the whole group is gone, which is what is wanted
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}
