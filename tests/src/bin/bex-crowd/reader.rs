//! The light viewer: a raw HTTP/1.1 GET whose every event is compared with what was spoken, and timed.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bex_proto::PartId;
use bex_proto::ids::TurnNo;
use bex_proto::transcript::Part;
use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

/// Read at once by who reads as fast as it can.
const GULP: usize = 64 * 1024;
/// How the event begins that says so.
const LIVE: &[u8] = b"data: {\"type\":\"data-bex-live\"";
/// The longest silence: heartbeats come every 15 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a session's viewers must be shown.
pub struct Expected {
    /// The parts of turn 1, 2, …
    turns: Vec<Vec<Bytes>>,
    /// When the parts of the last turn were spoken.
    spoken: Vec<OnceLock<Instant>>,
}

impl Expected {
    pub fn new(turns: &[&[Part]]) -> Arc<Self> {
        let bytes = |parts: &&[Part]| parts.iter().map(|part| part.bytes.clone()).collect();
        let turns: Vec<Vec<Bytes>> = turns.iter().map(bytes).collect();
        let live = turns.last().map_or(0, Vec::len);
        Arc::new(Self {
            turns,
            spoken: (0..live).map(|_| OnceLock::new()).collect(),
        })
    }

    pub fn speak(&self, index: usize) {
        let _ = self.spoken[index].set(Instant::now());
    }

    /// The id behind the last part of a turn that has one more.
    fn after(&self, id: PartId) -> PartId {
        let parts = self.turns[id.turn.0 as usize - 1].len();
        if (id.index.0 as usize) + 1 < parts || id.turn.0 as usize == self.turns.len() {
            id.next()
        } else {
            PartId::first_of(id.turn.next())
        }
    }

    fn bytes(&self, id: PartId) -> Option<&Bytes> {
        let turn = self.turns.get((id.turn.0 as usize).checked_sub(1)?)?;
        turn.get(id.index.0 as usize)
    }

    pub fn last_of(&self, turn: u32) -> PartId {
        PartId::new(turn, self.turns[turn as usize - 1].len() as u32 - 1)
    }

    fn lateness(&self, id: PartId, now: Instant) -> Option<Duration> {
        let live = id.turn == TurnNo(self.turns.len() as u32);
        let spoken = self.spoken.get(id.index.0 as usize)?.get()?;
        live.then(|| now.saturating_duration_since(*spoken))
    }
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Done,
    Cut,
}

/// Where to look, and what for.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub to: SocketAddr,
    pub path: &'a str,
    pub ticket: &'a str,
    pub cursor: Option<PartId>,
    pub encoding: &'a str,
    /// What the kernel may hold for this reader, for who is to feel a slow one.
    pub window: Option<u32>,
}

pub struct Reader {
    stream: TcpStream,
    expected: Arc<Expected>,
    due: PartId,
    /// Not yet taken out of its chunks.
    raw: Vec<u8>,
    chunk: Chunk,
    /// Not yet a whole event.
    text: Vec<u8>,
    /// From speaking to arrival, of every live part.
    pub lateness: Vec<Duration>,
    pub ended: Option<Ended>,
    /// It was told that what follows is live.
    pub is_live: bool,
}

/// Where in the chunked body the reader stands.
#[derive(Clone, Copy)]
enum Chunk {
    Size,
    Data(usize),
    End,
}

impl Reader {
    pub async fn open(request: Request<'_>, expected: Arc<Expected>) -> anyhow::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        if let Some(window) = request.window {
            socket.set_recv_buffer_size(window)?;
        }
        let mut stream = socket.connect(request.to).await?;
        stream.set_nodelay(true)?;
        let cursor = request.cursor.map(|c| format!("last-event-id: {c}\r\n"));
        let head = format!(
            "GET {} HTTP/1.1\r\nhost: {}\r\n{}: {}\r\naccept-encoding: {}\r\n{}\r\n",
            request.path,
            request.to,
            bex_proto::ticket::ATTACH_HEADER,
            request.ticket,
            request.encoding,
            cursor.unwrap_or_default()
        );
        stream.write_all(head.as_bytes()).await?;
        let due = match request.cursor {
            Some(cursor) => expected.after(cursor),
            None => PartId::new(1, 0),
        };
        let mut reader = Self {
            stream,
            expected,
            due,
            raw: Vec::new(),
            chunk: Chunk::Size,
            text: Vec::new(),
            lateness: Vec::new(),
            ended: None,
            is_live: false,
        };
        reader.head().await?;
        Ok(reader)
    }

    async fn head(&mut self) -> anyhow::Result<()> {
        loop {
            if let Some(end) = memchr::memmem::find(&self.raw, b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.raw[..end]).to_lowercase();
                ensure!(head.starts_with("http/1.1 200"), "refused: {head}");
                ensure!(!head.contains("content-encoding"), "encoded: {head}");
                ensure!(
                    head.contains("transfer-encoding: chunked"),
                    "not chunked: {head}"
                );
                self.raw.drain(..end + 4);
                return Ok(());
            }
            ensure!(self.fill(512).await? > 0, "closed before its head");
        }
    }

    async fn fill(&mut self, most: usize) -> anyhow::Result<usize> {
        loop {
            tokio::time::timeout(PATIENCE, self.stream.readable())
                .await
                .context("the stream is silent")??;
            // not kept while waiting: thousands wait
            let mut buffer = [0; GULP];
            match self.stream.try_read(&mut buffer[..most.min(GULP)]) {
                Ok(read) => {
                    self.raw.extend_from_slice(&buffer[..read]);
                    return Ok(read);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(0),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads once, at most so many bytes. False when the stream has ended.
    pub async fn read(&mut self, most: usize) -> anyhow::Result<bool> {
        if self.ended.is_some() {
            return Ok(false);
        }
        if self.fill(most).await? == 0 {
            self.ended = Some(Ended::Cut);
            return Ok(false);
        }
        let now = Instant::now();
        self.dechunk()?;
        self.events(now)?;
        Ok(self.ended.is_none())
    }

    /// Reads as fast as it can, to the end or until `enough`.
    pub async fn until(&mut self, mut enough: impl FnMut(&Self) -> bool) -> anyhow::Result<()> {
        while !enough(self) && self.read(GULP).await? {}
        Ok(())
    }

    /// The next part that was not seen yet.
    pub fn due(&self) -> PartId {
        self.due
    }

    /// Where to resume.
    pub fn cursor(&self) -> Option<PartId> {
        let index = self.due.index.0.checked_sub(1);
        match index {
            Some(index) => Some(PartId::new(self.due.turn.0, index)),
            None => (self.due.turn.0 > 1).then(|| self.expected.last_of(self.due.turn.0 - 1)),
        }
    }

    /// Whether every part was seen.
    pub fn is_whole(&self) -> bool {
        let last = self.expected.turns.len() as u32;
        self.due == self.expected.last_of(last).next()
    }

    fn dechunk(&mut self) -> anyhow::Result<()> {
        let mut at = 0;
        loop {
            let rest = &self.raw[at..];
            match self.chunk {
                Chunk::Size => {
                    let Some(end) = memchr::memmem::find(rest, b"\r\n") else {
                        break;
                    };
                    let size = std::str::from_utf8(&rest[..end])?;
                    let size = usize::from_str_radix(size.trim(), 16).context("no chunk size")?;
                    at += end + 2;
                    self.chunk = if size == 0 {
                        Chunk::End
                    } else {
                        Chunk::Data(size)
                    };
                }
                Chunk::Data(0) => {
                    if rest.len() < 2 {
                        break;
                    }
                    at += 2;
                    self.chunk = Chunk::Size;
                }
                Chunk::Data(left) => {
                    let take = left.min(rest.len());
                    if take == 0 {
                        break;
                    }
                    self.text.extend_from_slice(&rest[..take]);
                    at += take;
                    self.chunk = Chunk::Data(left - take);
                }
                Chunk::End => break,
            }
        }
        self.raw.drain(..at);
        Ok(())
    }

    fn events(&mut self, now: Instant) -> anyhow::Result<()> {
        let text = std::mem::take(&mut self.text);
        let mut at = 0;
        while let Some(end) = memchr::memmem::find(&text[at..], b"\n\n") {
            self.event(&text[at..at + end], now)?;
            at += end + 2;
        }
        self.text = text[at..].to_vec();
        Ok(())
    }

    fn event(&mut self, event: &[u8], now: Instant) -> anyhow::Result<()> {
        if let Some(rest) = event.strip_prefix(b"id: ") {
            let Some(end) = memchr::memchr(b'\n', rest) else {
                // the cursor, said again
                return Ok(());
            };
            let id: PartId = std::str::from_utf8(&rest[..end])?.parse()?;
            ensure!(id == self.due, "{id} came where {} was due", self.due);
            let data = rest[end + 1..].strip_prefix(b"data: ").context("no data")?;
            let right = self
                .expected
                .bytes(id)
                .is_some_and(|bytes| **bytes == *data);
            ensure!(right, "{id} has other bytes");
            self.lateness.extend(self.expected.lateness(id, now));
            self.due = self.expected.after(id);
        } else if event == b"data: [DONE]" {
            self.ended = Some(Ended::Done);
        } else if !event.starts_with(b"data: {") && !event.starts_with(b":") {
            bail!("no event of ours: {}", String::from_utf8_lossy(event));
        } else if event.starts_with(LIVE) {
            self.is_live = true;
        }
        Ok(())
    }
}
