//! The process that owns a background stack until it is told to end.

use std::path::Path;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use super::{DEV_FILE, Dev};
use crate::stack::{Stack, StackOptions};

/// Starts a stack in `dir`, writes its `dev.json`, and ends both on SIGTERM or SIGINT. SIGUSR1 drains the gateway and starts it again,
/// SIGUSR2 kills it first; `dev.json` has its new pid when it is ready.
///
/// # Errors
/// When it does not start, or its end is not clean.
pub async fn serve(dir: &Path, options: StackOptions) -> anyhow::Result<()> {
    // leaves the terminal's session, so that closing it does not end the stack; fails only for a leader of its own already
    let _ = nix::unistd::setsid();
    std::fs::create_dir_all(dir)?;
    // a fresh database knows nothing of older sandboxes, and old logs explain nothing
    for stale in ["sandboxes", "logs"] {
        let _ = std::fs::remove_dir_all(dir.join(stale));
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let options = StackOptions {
        dir: Some(dir.to_owned()),
        ..options
    };
    let mut drain = signal(SignalKind::user_defined1())?;
    let mut crash = signal(SignalKind::user_defined2())?;
    let mut stack = tokio::select! {
        stack = Stack::start(options) => stack?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    loop {
        Dev::of(&stack)?.write(dir)?;
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = drain.recv() => {}
            _ = crash.recv() => stack.kill9_gateway()?,
        }
        stack.restart_gateway().await?;
    }
    let stopped = stack.stop().await;
    std::fs::remove_file(dir.join(DEV_FILE)).context("dev.json was removed by somebody else")?;
    stopped
}
