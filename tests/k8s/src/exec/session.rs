//! One exec after its upgrade: its process is started, its streams flow, and it ends in one of several ways.

use std::process::Stdio;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf};
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, oneshot};

use super::client::listen;
use super::flow::{Flow, Over};
use super::wire::{PAYLOAD_BYTES, STATUS, STDERR, STDOUT, Wire};
use super::{ExecSeen, Protocol, Status};
use crate::api::Call;
use crate::faults::{Cut, ExecPlan};
use crate::node::{self, KILLED, Live};
use crate::world::World;

/// Reads of the process's output that wait.
const CHUNKS: usize = 2;
/// Frames of the client that wait to be noted.
const FRAMES: usize = 8;

/// What an exec leads to.
pub(super) enum Target {
    Process {
        live: Live,
        argv: Vec<String>,
    },
    /// Nothing runs; told behind the 101.
    Refused(Status),
}

pub(super) struct Session {
    pub(super) world: Arc<World>,
    pub(super) protocol: Protocol,
    pub(super) plan: ExecPlan,
    pub(super) seen: Arc<ExecSeen>,
    stdin: bool,
    stdout: bool,
    stderr: bool,
}
/// Bytes of one of the process's streams.
pub(super) type Chunk = (u8, Vec<u8>);
impl Session {
    pub(super) fn new(
        world: &Arc<World>,
        protocol: Protocol,
        plan: ExecPlan,
        seen: Arc<ExecSeen>,
        call: &Call,
    ) -> Self {
        Self {
            world: Arc::clone(world),
            protocol,
            plan,
            seen,
            stdin: call.flag("stdin"),
            stdout: call.flag("stdout"),
            stderr: call.flag("stderr"),
        }
    }

    pub(super) async fn run<S>(self, socket: S, target: Target)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (reader, writer) = tokio::io::split(socket);
        let mut wire = Wire {
            writer,
            fragments: self.plan.fragments,
        };
        let first = match (self.stdout, self.stderr) {
            (true, _) => STDOUT,
            (false, true) => STDERR,
            (false, false) => STATUS,
        };
        // says that the upgrade is done, not that anything was started
        if wire.message(first, &[]).await.is_err() {
            return;
        }
        let (live, argv) = match target {
            Target::Refused(status) => return self.end_with(&mut wire, &status).await,
            Target::Process { live, argv } => (live, argv),
        };
        let started = match self.start(&live, &argv) {
            Ok(started) => started,
            Err(status) => return self.end_with(&mut wire, &status).await,
        };
        self.talk(wire, reader, started, &argv).await;
    }

    /// Starts the process; a waiter kills it with its container and tells its exit code.
    fn start(&self, live: &Live, argv: &[String]) -> Result<Started, Status> {
        let failed = |what: String| {
            Status::Internal(format!(
                "Internal error occurred: error executing command in container: failed to exec in container: failed to start exec: {what}"
            ))
        };
        let program = argv
            .first()
            .ok_or_else(|| failed("args must not be empty".to_owned()))?;
        if live.ended.is_cancelled() {
            return Err(failed("cannot exec in a stopped state".to_owned()));
        }
        if !node::is_there(program, &live.setting) {
            return Err(failed(format!(
                "OCI runtime exec failed: exec: \"{program}\": stat {program}: no such file or directory: unknown"
            )));
        }
        let running = node::start(argv, &live.setting, |command| {
            if self.stdin {
                command.stdin(Stdio::piped());
            }
            if self.stdout {
                command.stdout(Stdio::piped());
            }
            if self.stderr {
                command.stderr(Stdio::piped());
            }
        });
        let mut running = running.map_err(|e| failed(e.to_string()))?;
        self.seen.note(|counts| counts.pid = Some(running.pid));
        let (say, chunks) = mpsc::channel(CHUNKS);
        if let Some(stdout) = running.child.stdout.take() {
            tokio::spawn(pass(stdout, STDOUT, say.clone()));
        }
        if let Some(stderr) = running.child.stderr.take() {
            tokio::spawn(pass(stderr, STDERR, say));
        }
        let stdin = running.child.stdin.take();
        let (tell, exit) = oneshot::channel();
        let (ended, seen, stop) = (
            live.ended.clone(),
            Arc::clone(&self.seen),
            self.world.stop.clone(),
        );
        tokio::spawn(async move {
            let code = tokio::select! {
                status = running.child.wait() => node::code_of(status),
                () = ended.cancelled() => KILLED,
                () = stop.cancelled() => KILLED,
            };
            if ended.is_cancelled() || stop.is_cancelled() {
                // everything in a container ends with its first process
                node::session_gone(running.pid).await;
                let _ = running.child.wait().await;
            }
            seen.note(|counts| counts.exit = Some(code));
            let _ = tell.send(code);
        });
        Ok(Started {
            chunks,
            stdin,
            exit,
        })
    }

    async fn talk<S>(
        self,
        mut wire: Wire<S>,
        reader: ReadHalf<S>,
        started: Started,
        argv: &[String],
    ) where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let Started {
            chunks,
            stdin,
            exit,
        } = started;
        let (say, mut heard) = mpsc::channel(FRAMES);
        let listening = tokio::spawn(listen(
            reader,
            stdin,
            self.protocol,
            Arc::clone(&self.seen),
            say,
        ));
        let mut flow = Flow::new(self, chunks, exit);
        let over = flow.pump(&mut wire, &mut heard).await;
        let session = &flow.session;
        let ended = match over {
            Ok(Over::Exit(code)) => flow.finish(&mut wire, &mut heard, code, argv).await,
            Ok(Over::Cut(Cut::FalseSuccess)) => {
                let status = Status::Exit(0).json(session.protocol, argv).to_string();
                match wire.message(STATUS, status.as_bytes()).await {
                    Ok(()) => wire.close().await,
                    broken => broken,
                }
            }
            Ok(Over::Cut(Cut::Close) | Over::Closed) => wire.close().await,
            Ok(Over::Cut(Cut::Eof) | Over::ClientGone) | Err(_) => Ok(()),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "an exec's client is gone");
        }
        flow.session.seen.note(|counts| counts.disconnected = true);
        // both halves go, and with the reader the process's standard input
        listening.abort();
        let _ = wire.writer.shutdown().await;
        drop(wire);
        // the process is not killed, and what it writes is not read any more
        if !flow.exited {
            let _ = (&mut flow.exit).await;
        }
        drop(flow);
    }

    async fn end_with<S: AsyncWrite>(&self, wire: &mut Wire<S>, status: &Status) {
        let text = status.json(self.protocol, &self.seen.argv).to_string();
        if wire.message(STATUS, text.as_bytes()).await.is_ok() {
            let _ = wire.close().await;
        }
        let _ = wire.writer.shutdown().await;
        self.seen.note(|counts| counts.disconnected = true);
    }
}

struct Started {
    chunks: mpsc::Receiver<Chunk>,
    stdin: Option<ChildStdin>,
    exit: oneshot::Receiver<i32>,
}

/// A process's stream to the session. When the session reads no more, this one does not either, and the process blocks.
async fn pass(mut stream: impl AsyncRead + Unpin, channel: u8, say: mpsc::Sender<Chunk>) {
    let mut buffer = vec![0; PAYLOAD_BYTES];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        if say
            .send((channel, buffer[..length].to_vec()))
            .await
            .is_err()
        {
            return;
        }
    }
}
