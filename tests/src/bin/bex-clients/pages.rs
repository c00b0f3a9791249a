//! Pages with the SDK's hooks, in jsdom and in Chromium, against a stack whose agents speak while they are watched.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use bex_tests::StackOptions;
use bex_tests::dev::Dev;
use bex_tests::stack::{ORIGIN, Stack};
use tokio::process::{Child, Command};

/// The longest that all scenarios of one place take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Where pages are shown.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// A document without a browser.
    Jsdom,
    /// A real browser.
    Chromium,
}

impl Place {
    fn scenarios(self) -> &'static str {
        match self {
            Self::Jsdom => "jsdom.test.mjs",
            Self::Chromium => "chromium.test.mjs",
        }
    }
}

/// Runs every scenario of a place; `false` when one failed.
///
/// # Errors
/// When the stack does not start or end well, or the scenarios do not end.
pub async fn run(place: Place) -> anyhow::Result<bool> {
    let stack = Stack::start(StackOptions::default()).await?;
    let mut node = start(place, &Dev::of(&stack)?)?;
    let status = tokio::time::timeout(PATIENCE, node.wait())
        .await
        .with_context(|| format!("{} does not end", place.scenarios()))??;
    stack.stop().await?;
    Ok(status.success())
}

fn start(place: Place, dev: &Dev) -> anyhow::Result<Child> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/pages");
    Command::new("node")
        // a failed scenario may leave a stream open
        .args(["--test-reporter=spec", "--test-force-exit"])
        .arg(place.scenarios())
        .current_dir(dir)
        .env("BEX_STACK", serde_json::to_string(dev)?)
        .env("BEX_PAGE_ORIGIN", ORIGIN)
        .kill_on_drop(true)
        .spawn()
        .context("cannot start node")
}
