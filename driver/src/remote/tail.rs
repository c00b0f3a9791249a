//! Follows what the command prints and cuts it into events, until it ends.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bex_proto::limits;
use bex_proto::remote::OutputStream;
use tokio::time::{Instant, sleep};
use tracing::error;

use super::arguments::Dialect;
use super::cut::{PIECE_BYTES, Rest, piece};
use super::fault::Fault;
use super::input;
use super::journal::{Content, Journal};
use super::place::{Place, read_piece};
use super::running::{End, Running};

/// How often is looked while the command speaks, and while it is silent.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_IDLE: Duration = Duration::from_millis(100);
/// How long it is silent before it counts as such.
const IDLE_AFTER: Duration = Duration::from_secs(2);
/// A part of a line waits so long for the rest.
const LINE_WAIT: Duration = Duration::from_millis(200);
/// Pieces of one stream before the other has its turn.
const PIECES_AT_ONCE: usize = 32;
/// What a spool holds beyond what is reported, before it is thrown away.
const DRAIN_BYTES: u64 = 1024 * 1024;

/// See the module's text.
#[derive(Debug)]
pub struct Tail {
    running: Arc<Running>,
    journal: Arc<Journal>,
    dialect: Dialect,
    spools: [Spool; 2],
    room: Room,
}

/// Whether the session's log takes more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Left,
    /// What comes is thrown away.
    Full,
}

#[derive(Debug)]
struct Spool {
    stream: OutputStream,
    file: File,
    cut: u64,
    /// Where the line begins that it was cut in.
    line: u64,
    size: u64,
    grown: Instant,
}

impl Spool {
    fn open(stream: OutputStream, place: &Place, journal: &Journal) -> io::Result<Self> {
        let path = place.spool(stream);
        let file = OpenOptions::new().read(true).append(true).open(path)?;
        let cut = journal.cut(stream);
        let before = cut.saturating_sub(limits::REMOTE_LINE_BYTES as u64);
        let read = read_piece(&file, before, cut)?;
        let newline = memchr::memrchr(b'\n', &read);
        Ok(Self {
            stream,
            file,
            cut,
            line: newline.map_or(before, |at| before + at as u64 + 1),
            size: 0,
            grown: Instant::now(),
        })
    }

    /// How large it is now.
    fn look(&mut self) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        if size != self.size {
            (self.size, self.grown) = (size, Instant::now());
        }
        Ok(())
    }

    fn rest(&self, end: Option<&End>) -> Rest {
        match end {
            Some(_) => Rest::Ended,
            None if self.grown.elapsed() >= LINE_WAIT => Rest::Silent,
            None => Rest::Growing,
        }
    }

    /// The permission requests among the lines that end in the next piece, wherever they begin. Of a line that is longer than any event
    /// nothing is asked.
    fn requests(&mut self, piece: &[u8]) -> io::Result<Vec<Content>> {
        let mut found = Vec::new();
        for at in memchr::memchr_iter(b'\n', piece) {
            let (from, to) = (self.line, self.cut + at as u64);
            self.line = to + 1;
            if to - from > limits::REMOTE_LINE_BYTES as u64 {
                continue;
            }
            let asks = match from.checked_sub(self.cut) {
                Some(begin) => {
                    let begin = usize::try_from(begin).unwrap_or(at);
                    input::is_permission_request(&piece[begin..at])
                }
                None => input::is_permission_request(&read_piece(&self.file, from, to)?),
            };
            if asks {
                found.push(Content::Spool(from, to));
            }
        }
        Ok(found)
    }
}

impl Tail {
    /// Goes on behind what the journal has.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(
        dialect: Dialect,
        place: &Place,
        running: &Arc<Running>,
        journal: &Arc<Journal>,
    ) -> Result<Self, Fault> {
        Ok(Self {
            running: Arc::clone(running),
            journal: Arc::clone(journal),
            dialect,
            spools: [
                Spool::open(OutputStream::Stdout, place, journal)?,
                Spool::open(OutputStream::Stderr, place, journal)?,
            ],
            room: Room::Left,
        })
    }

    /// Until the command has ended and all of its output has its events.
    ///
    /// # Errors
    /// What the system says, e.g. that the disk is full.
    pub async fn run(&mut self) -> Result<End, Fault> {
        loop {
            self.running.kill_when_due();
            // first: what is there after the end is all there is
            let end = self.running.ended()?;
            let mut busy = false;
            for index in 0..self.spools.len() {
                self.spools[index].look()?;
                busy |= self.cut(index, end.as_ref())?;
            }
            match end {
                _ if busy => tokio::task::yield_now().await,
                Some(end) => {
                    self.journal.complete()?;
                    return Ok(end);
                }
                None => sleep(self.pause()).await,
            }
        }
    }

    fn pause(&self) -> Duration {
        let idle = |spool: &Spool| spool.grown.elapsed() >= IDLE_AFTER;
        match self.spools.iter().all(idle) {
            true => LOOK_IDLE,
            false => LOOK,
        }
    }

    /// Cuts what is there. Whether there may be more to cut at once.
    fn cut(&mut self, index: usize, end: Option<&End>) -> Result<bool, Fault> {
        let spool = &mut self.spools[index];
        if spool.size <= spool.cut {
            return Ok(false);
        }
        let mut window = vec![0; PIECE_BYTES];
        for _ in 0..PIECES_AT_ONCE {
            if self.room == Room::Full {
                return drain(spool).map(|()| false);
            }
            let there = usize::try_from(spool.size.saturating_sub(spool.cut)).unwrap_or(usize::MAX);
            let window = &mut window[..there.min(PIECE_BYTES)];
            spool.file.read_exact_at(window, spool.cut)?;
            let length = piece(window, spool.rest(end));
            if length == 0 {
                return Ok(false);
            }
            if !self.journal.has_room(length as u64) {
                self.room = Room::Full;
                error!(
                    code = "log_full",
                    limit = limits::REMOTE_LOG_BYTES,
                    "the session's log is full: what the command prints from now on is not reported"
                );
                continue;
            }
            let to = spool.cut + length as u64;
            let mut events = vec![(spool.stream, Content::Spool(spool.cut, to))];
            if self.dialect == Dialect::Claude && spool.stream == OutputStream::Stdout {
                let asked = spool.requests(&window[..length])?;
                events.extend(
                    asked
                        .into_iter()
                        .map(|line| (OutputStream::Permission, line)),
                );
            }
            self.journal.append(events)?;
            spool.cut = to;
        }
        Ok(true)
    }
}

/// Throws away what is not reported. The command appends, so it goes on at the new end.
fn drain(spool: &mut Spool) -> Result<(), Fault> {
    if spool.size > spool.cut + DRAIN_BYTES {
        spool.file.set_len(spool.cut)?;
    }
    Ok(())
}
