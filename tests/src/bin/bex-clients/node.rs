//! The clients: one Node process that is given a transcript's stream a line and answers with its verdict a line.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use bex_proto::SessionId;
use bex_proto::ticket::AttachClaims;
use bex_tests::client::stream_path;
use bex_tests::stack::{Stack, WORKSPACE, ring};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::transcript::{Sort, Transcript};

/// Six clients, each reads a stream whole and folded; when they are timed it is three, and folded thrice.
const TICKETS: usize = 12;
/// The longest that all clients together take for one transcript.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the clients made of one transcript.
#[derive(Debug, Deserialize)]
pub struct Verdict {
    /// Streams read.
    pub runs: u32,
    /// What no client may do.
    pub faults: Vec<String>,
    /// Figures.
    pub notes: Vec<String>,
}

pub struct Clients {
    child: Child,
    jobs: ChildStdin,
    verdicts: Lines<BufReader<ChildStdout>>,
}

impl Clients {
    /// Starts Node with the clients of `tests/clients/ai-sdk`.
    ///
    /// # Errors
    /// When there is no Node.
    pub async fn start() -> anyhow::Result<Self> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/ai-sdk");
        let mut child = Command::new("node")
            .arg("read.mjs")
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start node")?;
        let jobs = child.stdin.take().context("node has no input")?;
        let output = child.stdout.take().context("node has no output")?;
        Ok(Self {
            child,
            jobs,
            verdicts: BufReader::new(output).lines(),
        })
    }

    /// Has every client read a session's stream.
    ///
    /// # Errors
    /// When Node ends or does not answer.
    pub async fn read(
        &mut self,
        stack: &Stack,
        transcript: &Transcript,
        session: &SessionId,
    ) -> anyhow::Result<Verdict> {
        let turns: Vec<Vec<_>> = (1u32..)
            .zip(&transcript.turns)
            .map(|(turn, spoken)| {
                let parts = spoken.parts(turn).into_iter();
                parts
                    .map(|part| {
                        let text = String::from_utf8_lossy(&part.bytes).into_owned();
                        (part.id.index.0, text)
                    })
                    .collect()
            })
            .collect();
        let mut tickets = Vec::new();
        for _ in 0..TICKETS {
            tickets.push(ticket(stack, session)?);
        }
        let job = json!({
            "session": session,
            "url": format!("http://{}{}", stack.addresses.attach, stream_path(session)),
            "tickets": tickets,
            "turns": turns,
            "endsInError": transcript.ends_in_error(),
            "wellFormed": transcript.sort != Sort::Any,
            "timed": transcript.sort == Sort::Timed,
        });
        self.jobs.write_all(format!("{job}\n").as_bytes()).await?;
        let line = tokio::time::timeout(PATIENCE, self.verdicts.next_line())
            .await
            .with_context(|| format!("the clients do not end with {}", transcript.name))??;
        let Some(line) = line else {
            bail!("node ended at {}", transcript.name);
        };
        serde_json::from_str(&line).with_context(|| format!("not a verdict: {line}"))
    }

    /// Ends Node.
    ///
    /// # Errors
    /// When it did not end well.
    pub async fn end(mut self) -> anyhow::Result<()> {
        drop(self.jobs);
        let status = self.child.wait().await?;
        anyhow::ensure!(status.success(), "node ended with {status}");
        Ok(())
    }
}

/// A fresh read ticket.
fn ticket(stack: &Stack, session: &SessionId) -> anyhow::Result<String> {
    let now = jiff::Timestamp::now().as_second();
    let claims = AttachClaims::to_read(session, WORKSPACE.parse()?, "clients", now);
    Ok(claims.sign(&ring(&stack.keys.attach)))
}
