//! One exec after its upgrade: a process, its streams, and the frames between them and the client.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::process::ChildStdin;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::Instant;

use super::frames::{self, opcode};
use super::{ExecSeen, Protocol, Status};
use crate::api::Call;
use crate::faults::{Cut, End, ExecPlan, Stall};
use crate::node::{self, KILLED, Live};
use crate::world::{Disaster, World};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// Closes a channel; v5 only.
const CLOSE_CHANNEL: u8 = 255;
/// The largest payload of a server's frame, without the channel.
const PAYLOAD_BYTES: usize = 32 * 1024;
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
    world: Arc<World>,
    protocol: Protocol,
    plan: ExecPlan,
    seen: Arc<ExecSeen>,
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

/// What the client did.
enum Heard {
    Ping(Vec<u8>),
    Data,
    Close,
    Gone,
    /// A control message that no server understands: it closes at once.
    Nonsense,
}

/// Why the session is over.
enum Over {
    ClientGone,
    Closed,
    Cut(Cut),
    Exit(i32),
}

type Chunk = (u8, Vec<u8>);

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
    }
}

struct Started {
    chunks: mpsc::Receiver<Chunk>,
    stdin: Option<ChildStdin>,
    exit: oneshot::Receiver<i32>,
}

/// From the process to the client, as the plan says.
struct Flow {
    session: Session,
    chunks: mpsc::Receiver<Chunk>,
    exit: oneshot::Receiver<i32>,
    exited: bool,
    /// Standard output that is not in a frame yet.
    pending: BytesMut,
    sent: u64,
    frames: usize,
    stalled: Option<Stall>,
    disasters: broadcast::Receiver<Disaster>,
}

impl Flow {
    fn new(session: Session, chunks: mpsc::Receiver<Chunk>, exit: oneshot::Receiver<i32>) -> Self {
        Self {
            disasters: session.world.disasters.subscribe(),
            session,
            chunks,
            exit,
            exited: false,
            pending: BytesMut::new(),
            sent: 0,
            frames: 0,
            stalled: None,
        }
    }

    /// Until something ends it. `Exit` means that all output was read.
    async fn pump<S: AsyncWrite>(
        &mut self,
        wire: &mut Wire<S>,
        heard: &mut mpsc::Receiver<Heard>,
    ) -> std::io::Result<Over> {
        let idle = match (self.session.plan.idle, self.session.protocol) {
            (Some(idle), _) => Some(idle),
            (None, Protocol::V4) => Some(self.session.world.options.stream_idle),
            (None, Protocol::V5) => None,
        };
        let mut quiet_since = Instant::now();
        let mut flows = true;
        loop {
            let dead = self.stalled == Some(Stall::Dead);
            tokio::select! {
                chunk = self.chunks.recv(), if flows && self.stalled.is_none() => match chunk {
                    Some((channel, bytes)) => {
                        quiet_since = Instant::now();
                        if let Some(over) = self.forward(wire, channel, &bytes).await? {
                            return Ok(over);
                        }
                    }
                    None => flows = false,
                },
                code = &mut self.exit, if !flows && !self.exited => {
                    self.exited = true;
                    return Ok(Over::Exit(code.unwrap_or(KILLED)));
                }
                heard = heard.recv() => match heard {
                    Some(Heard::Ping(payload)) if !dead && !self.session.plan.no_pongs => wire.frame(true, opcode::PONG, &payload).await?,
                    Some(Heard::Ping(_)) => {}
                    Some(Heard::Data) => quiet_since = Instant::now(),
                    Some(Heard::Close | Heard::Nonsense) => return Ok(Over::Closed),
                    Some(Heard::Gone) | None => return Ok(Over::ClientGone),
                },
                disaster = self.disasters.recv() => match disaster {
                    Ok(disaster) => return Ok(self.cut_by(disaster)),
                    Err(_) => return Ok(Over::Cut(Cut::Eof)),
                },
                () = quiet(quiet_since, idle) => return Ok(Over::Cut(Cut::Eof)),
            }
        }
    }

    /// How this connection ends in a disaster, as was recorded for each release.
    fn cut_by(&self, disaster: Disaster) -> Over {
        let v5 = self.session.protocol == Protocol::V5;
        let translates = self.session.world.options.style.translates();
        Over::Cut(match disaster {
            Disaster::Runtime if v5 => Cut::FalseSuccess,
            Disaster::Kubelet if v5 && translates => Cut::FalseSuccess,
            Disaster::ApiServer | Disaster::Kubelet | Disaster::Runtime => Cut::Eof,
        })
    }

    async fn forward<S: AsyncWrite>(
        &mut self,
        wire: &mut Wire<S>,
        channel: u8,
        bytes: &[u8],
    ) -> std::io::Result<Option<Over>> {
        if channel != STDOUT {
            for piece in bytes.chunks(PAYLOAD_BYTES) {
                wire.message(channel, piece).await?;
            }
            return Ok(None);
        }
        self.pending.extend_from_slice(bytes);
        let held = match self.session.plan.end {
            End::StatusEarly { held } => held,
            _ => 0,
        };
        self.send(wire, held, false).await
    }

    /// Sends what is pending but the last `held` bytes, in frames as planned; `all` also what fills no frame.
    async fn send<S: AsyncWrite>(
        &mut self,
        wire: &mut Wire<S>,
        held: usize,
        all: bool,
    ) -> std::io::Result<Option<Over>> {
        loop {
            let sizes = &self.session.plan.sizes;
            let available = self.pending.len().saturating_sub(held);
            let wanted = match sizes.is_empty() {
                true => PAYLOAD_BYTES.min(available),
                false => sizes[self.frames % sizes.len()],
            };
            if available == 0 || (available < wanted && !all) {
                return Ok(None);
            }
            let mut piece = self.pending.split_to(wanted.min(available));
            let reached = |at: u64| {
                at.checked_sub(self.sent)
                    .filter(|left| *left <= piece.len() as u64)
            };
            let cut = self
                .session
                .plan
                .cut
                .and_then(|(at, how)| Some((reached(at)?, Over::Cut(how))));
            let stall = self
                .session
                .plan
                .stall
                .and_then(|(at, how)| Some((reached(at)?, how)));
            if let Some(left) = cut.as_ref().map(|c| c.0).or(stall.map(|s| s.0)) {
                piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            }
            if !piece.is_empty() {
                wire.message(STDOUT, &piece).await?;
            }
            self.frames += 1;
            self.sent += piece.len() as u64;
            let sent = self.sent;
            self.session.seen.note(|counts| counts.sent = sent);
            if let Some((_, over)) = cut {
                return Ok(Some(over));
            }
            if let Some((_, how)) = stall {
                self.stalled = Some(how);
                return Ok(None);
            }
            if self.session.plan.noise > 0 {
                wire.message(STDERR, &vec![b'!'; self.session.plan.noise])
                    .await?;
            }
        }
    }

    /// The process ended: the rest, the status, CLOSE; or what the plan says instead.
    async fn finish<S: AsyncWrite>(
        &mut self,
        wire: &mut Wire<S>,
        heard: &mut mpsc::Receiver<Heard>,
        code: i32,
        argv: &[String],
    ) -> std::io::Result<()> {
        let end = self.session.plan.end;
        let told = if end == End::SaysSuccess { 0 } else { code };
        let status = Status::Exit(told)
            .json(self.session.protocol, argv)
            .to_string();
        match end {
            End::StatusEarly { held } => {
                self.send(wire, held, true).await?;
                wire.message(STATUS, status.as_bytes()).await?;
                self.send(wire, 0, true).await?;
            }
            End::NoStatus => {
                self.send(wire, 0, true).await?;
            }
            End::Proper | End::NeverClosed | End::SaysSuccess => {
                if let Some(over) = self.send(wire, 0, true).await?
                    && !matches!(over, Over::Cut(Cut::FalseSuccess))
                {
                    return Ok(());
                }
                wire.message(STATUS, status.as_bytes()).await?;
            }
        }
        if end == End::NeverClosed {
            while let Some(heard) = heard.recv().await {
                match heard {
                    Heard::Ping(payload) => wire.frame(true, opcode::PONG, &payload).await?,
                    Heard::Close | Heard::Gone => break,
                    Heard::Data | Heard::Nonsense => {}
                }
            }
            return Ok(());
        }
        wire.close().await
    }
}

/// The server's side of the socket.
struct Wire<S> {
    writer: WriteHalf<S>,
    fragments: bool,
}

impl<S: AsyncWrite> Wire<S> {
    async fn message(&mut self, channel: u8, payload: &[u8]) -> std::io::Result<()> {
        let mut message = Vec::with_capacity(payload.len() + 1);
        message.push(channel);
        message.extend_from_slice(payload);
        if self.fragments && message.len() > 1 {
            let (first, rest) = message.split_at(message.len() / 2);
            self.frame(false, opcode::BINARY, first).await?;
            return self.frame(true, opcode::CONTINUATION, rest).await;
        }
        self.frame(true, opcode::BINARY, &message).await
    }

    async fn frame(&mut self, fin: bool, opcode: u8, payload: &[u8]) -> std::io::Result<()> {
        self.writer
            .write_all(&frames::write(fin, opcode, payload, None))
            .await?;
        self.writer.flush().await
    }

    async fn close(&mut self) -> std::io::Result<()> {
        self.frame(true, opcode::CLOSE, &1000_u16.to_be_bytes())
            .await
    }
}

async fn quiet(since: Instant, idle: Option<Duration>) {
    match idle {
        Some(idle) => tokio::time::sleep_until(since + idle).await,
        None => std::future::pending().await,
    }
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

/// Reads the client. Each frame is a message of its own, as in the real server; standard input ends with the client.
async fn listen<S: AsyncRead>(
    mut reader: ReadHalf<S>,
    mut stdin: Option<ChildStdin>,
    protocol: Protocol,
    seen: Arc<ExecSeen>,
    say: mpsc::Sender<Heard>,
) {
    loop {
        let heard = match frames::read(&mut reader).await {
            Ok(Some(frame)) => {
                seen.note(|counts| {
                    counts.largest = counts.largest.max(frame.payload.len());
                    counts.fragments +=
                        u64::from(!frame.fin || frame.opcode == opcode::CONTINUATION);
                });
                if !frame.masked {
                    Heard::Nonsense
                } else {
                    match frame.opcode {
                        opcode::PING => {
                            seen.note(|counts| counts.pings += 1);
                            Heard::Ping(frame.payload)
                        }
                        opcode::PONG => Heard::Data,
                        opcode::CLOSE => {
                            seen.note(|counts| counts.closed = true);
                            Heard::Close
                        }
                        _ => message(&frame.payload, &mut stdin, protocol, &seen).await,
                    }
                }
            }
            Ok(None) | Err(_) => Heard::Gone,
        };
        let is_last = matches!(heard, Heard::Close | Heard::Gone | Heard::Nonsense);
        if is_last {
            stdin = None;
        }
        if say.send(heard).await.is_err() || is_last {
            return;
        }
    }
}

async fn message(
    payload: &[u8],
    stdin: &mut Option<ChildStdin>,
    protocol: Protocol,
    seen: &ExecSeen,
) -> Heard {
    match payload {
        [] | [STDIN] => seen.note(|counts| counts.empties += 1),
        [STDIN, data @ ..] => {
            seen.note(|counts| counts.stdin += data.len() as u64);
            if let Some(pipe) = stdin
                && pipe.write_all(data).await.is_err()
            {
                *stdin = None;
            }
        }
        [CLOSE_CHANNEL, rest @ ..] if protocol == Protocol::V5 => {
            if rest != [STDIN] {
                return Heard::Nonsense;
            }
            seen.note(|counts| counts.half_closed = true);
            *stdin = None;
        }
        // resizing without a terminal, and unknown channels
        _ => {}
    }
    Heard::Data
}
