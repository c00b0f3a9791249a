//! From the process to the client, as a plan says.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWrite;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::Instant;

use super::client::Heard;
use super::frames::opcode;
use super::session::{Chunk, Session};
use super::wire::{PAYLOAD_BYTES, STATUS, STDERR, STDOUT, Wire};
use super::{Protocol, Status};
use crate::faults::{Cut, End, Stall};
use crate::node::KILLED;
use crate::world::Disaster;

/// Why the session is over.
pub(super) enum Over {
    ClientGone,
    Closed,
    Cut(Cut),
    Exit(i32),
}
/// From the process to the client, as the plan says.
pub(super) struct Flow {
    pub(super) session: Session,
    chunks: mpsc::Receiver<Chunk>,
    pub(super) exit: oneshot::Receiver<i32>,
    pub(super) exited: bool,
    /// Standard output that is not in a frame yet.
    pending: BytesMut,
    sent: u64,
    frames: usize,
    stalled: Option<Stall>,
    disasters: broadcast::Receiver<Disaster>,
}

impl Flow {
    pub(super) fn new(
        session: Session,
        chunks: mpsc::Receiver<Chunk>,
        exit: oneshot::Receiver<i32>,
    ) -> Self {
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
    pub(super) async fn pump<S: AsyncWrite>(
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
    pub(super) async fn finish<S: AsyncWrite>(
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

async fn quiet(since: Instant, idle: Option<Duration>) {
    match idle {
        Some(idle) => tokio::time::sleep_until(since + idle).await,
        None => std::future::pending().await,
    }
}
