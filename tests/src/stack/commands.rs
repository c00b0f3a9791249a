//! The api's commands beside `serve`, run to their end.

use anyhow::Context;

use super::Stack;
use super::process;

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Stack {
    /// Runs `bex-api` with these arguments in the environment of this stack's api.
    ///
    /// # Errors
    /// When it cannot be run or was killed.
    pub fn api_command(&self, args: &[&str]) -> anyhow::Result<Ended> {
        let env = self.settings(&self.addresses).api()?;
        let output = tokio::task::block_in_place(|| process::output("bex-api", args, &env))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Ended {
            code: output.status.code().context("it was killed")?,
            out: text(output.stdout),
            err: text(output.stderr),
        })
    }
}
