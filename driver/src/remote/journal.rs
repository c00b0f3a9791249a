//! How the output was cut: an append-only file that gives each event its index before anybody sees it.
//!
//! It is also the queue between [`super::tail`] and [`super::sender`]: nothing of it is kept in memory, however long the network is away.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bex_proto::limits;
use bex_proto::remote::OutputStream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tracing::warn;

use super::fault::Fault;
use super::place::Place;

/// Left of a session's log for its last events and for what people's commands cause.
const LAST_BYTES: u64 = 1024 * 1024;

/// What an event says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Bytes of the stream's spool, from and before; of a permission request, which is a line of it, stdout's.
    Spool(u64, u64),
    /// This.
    Text(String),
}

impl Content {
    fn charge(&self) -> u64 {
        let bytes = match self {
            Self::Spool(from, to) => to.saturating_sub(*from),
            Self::Text(text) => text.len() as u64,
        };
        bytes + limits::REMOTE_EVENT_CHARGE as u64
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its index.
    pub index: u64,
    /// Where it comes from.
    pub stream: OutputStream,
    /// What it says.
    pub content: Content,
    /// Nothing of the stream comes behind it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub complete: bool,
    /// When it was seen.
    pub at: Timestamp,
}

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Event(Entry),
    /// The next event has this index.
    Base {
        base: u64,
    },
}

/// What readers may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the file.
    pub bytes: u64,
    /// Nothing comes behind them.
    pub closed: bool,
}

/// The writing end.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    state: Mutex<State>,
    written: watch::Sender<Written>,
    origin: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    New,
    Found,
}

#[derive(Debug)]
struct State {
    file: File,
    bytes: u64,
    next: u64,
    stdout: u64,
    stderr: u64,
    charged: u64,
    complete: bool,
    full: bool,
}

impl State {
    fn apply(&mut self, line: &Line) {
        match line {
            Line::Base { base } => self.next = *base,
            Line::Event(entry) => {
                self.next = entry.index + 1;
                self.charged += entry.content.charge();
                match (entry.stream, &entry.content) {
                    (OutputStream::Stdout, Content::Spool(_, to)) => self.stdout = *to,
                    (OutputStream::Stderr, Content::Spool(_, to)) => self.stderr = *to,
                    _ => {}
                }
                self.complete |= entry.complete && entry.stream == OutputStream::Stdout;
            }
        }
    }

    fn append(&mut self, lines: &[Line]) -> io::Result<()> {
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        if let Err(error) = self.file.write_all(&text) {
            // a full disk may have taken a part
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        self.bytes += text.len() as u64;
        for line in lines {
            self.apply(line);
        }
        Ok(())
    }
}

impl Journal {
    /// Opens the file, or begins one with the index `next` that the service wants.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(place: &Place, next: u64) -> Result<Self, Fault> {
        let path = place.journal();
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)?;
        let mut state = State {
            file: file.try_clone()?,
            bytes: 0,
            next: 0,
            stdout: 0,
            stderr: 0,
            charged: 0,
            complete: false,
            full: false,
        };
        let mut lines = BufReader::new(file);
        while let Some((line, length)) = read_line(&mut lines)? {
            state.bytes += length;
            state.apply(&line);
        }
        // a torn last line: nobody saw its event
        state.file.set_len(state.bytes)?;
        let origin = match state.bytes {
            0 => Origin::New,
            _ => Origin::Found,
        };
        if next > state.next {
            if origin == Origin::Found {
                warn!(
                    expected = state.next,
                    next, "the service has events that this directory does not know of"
                );
            }
            state.append(&[Line::Base { base: next }])?;
        } else if origin == Origin::New {
            state.append(&[Line::Base { base: 0 }])?;
        }
        let written = Written {
            bytes: state.bytes,
            closed: state.complete,
        };
        Ok(Self {
            path,
            state: Mutex::new(state),
            written: watch::Sender::new(written),
            origin,
        })
    }

    /// Whether it has been begun now.
    pub fn is_new(&self) -> bool {
        self.origin == Origin::New
    }

    /// How far a spool was cut.
    pub fn cut(&self, stream: OutputStream) -> u64 {
        let state = self.lock();
        match stream {
            OutputStream::Stdout => state.stdout,
            _ => state.stderr,
        }
    }

    /// Whether the session's log has room for so many bytes of output more.
    pub fn has_room(&self, bytes: u64) -> bool {
        let charge = bytes + limits::REMOTE_EVENT_CHARGE as u64;
        let state = self.lock();
        !state.full && state.charged + charge <= limits::REMOTE_LOG_BYTES - LAST_BYTES
    }

    /// The service takes no more.
    pub fn set_full(&self) {
        self.lock().full = true;
    }

    /// Gives events their indexes. `false`: the output is complete, and nothing comes behind it.
    ///
    /// # Errors
    /// What the system says; nothing was written then. The reporter ends by it: a reader may have seen a part.
    pub fn append(&self, events: Vec<(OutputStream, Content)>) -> io::Result<bool> {
        self.write(events, false)
    }

    /// The output is complete.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn complete(&self) -> io::Result<()> {
        let last = (OutputStream::Stdout, Content::Text(String::new()));
        self.write(vec![last], true).map(|_| ())
    }

    fn write(&self, events: Vec<(OutputStream, Content)>, complete: bool) -> io::Result<bool> {
        let mut state = self.lock();
        if state.complete {
            return Ok(false);
        }
        // as finely as the service keeps it
        let now = Timestamp::now();
        let at = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        let next = state.next;
        let entry = |(nth, (stream, content))| {
            Line::Event(Entry {
                index: next + nth,
                stream,
                content,
                complete,
                at,
            })
        };
        let lines: Vec<Line> = (0..).zip(events).map(entry).collect();
        state.append(&lines)?;
        self.written.send_replace(Written {
            bytes: state.bytes,
            closed: state.complete,
        });
        Ok(true)
    }

    /// The reading end, from the first event whose index is at least `index`.
    ///
    /// # Errors
    /// What the system says, or that there is no way to begin there.
    pub fn read_from(&self, index: u64) -> Result<Reader, Fault> {
        let mut reader = Reader {
            lines: BufReader::new(File::open(&self.path)?),
            position: 0,
            written: self.written.subscribe(),
            peeked: None,
        };
        let mut first = None;
        while let Some(entry) = reader.next()? {
            first.get_or_insert(entry.index);
            if entry.index >= index {
                reader.peeked = Some(entry);
                break;
            }
        }
        match first {
            Some(first) if first > index => Err(Fault::StateLost {
                wanted: index,
                first,
            }),
            _ => Ok(reader),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Reader {
    lines: BufReader<File>,
    position: u64,
    written: watch::Receiver<Written>,
    peeked: Option<Entry>,
}

impl Reader {
    /// The next event; nothing when none is written yet.
    ///
    /// # Errors
    /// What the system says.
    pub fn next(&mut self) -> Result<Option<Entry>, Fault> {
        if let Some(entry) = self.peeked.take() {
            return Ok(Some(entry));
        }
        let end = self.written.borrow().bytes;
        while self.position < end {
            let (line, length) =
                read_line(&mut self.lines)?.ok_or(Fault::Corrupt("events.journal"))?;
            self.position += length;
            if let Line::Event(entry) = line {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Gives an event back, to be the next one.
    pub fn put_back(&mut self, entry: Entry) {
        self.peeked = Some(entry);
    }

    /// Waits until there may be a next event. `false`: there is none, and none comes.
    pub async fn wait(&mut self) -> bool {
        let position = self.position;
        let more = |written: &Written| written.bytes > position || written.closed;
        match self.written.wait_for(more).await {
            Ok(written) => written.bytes > position,
            Err(_) => false,
        }
    }
}

/// A whole line and its length; nothing at the end and where one is torn.
fn read_line(lines: &mut BufReader<File>) -> Result<Option<(Line, u64)>, Fault> {
    let mut text = Vec::new();
    let most = limits::REMOTE_LINE_BYTES as u64;
    let length = lines.by_ref().take(most).read_until(b'\n', &mut text)?;
    if !text.ends_with(b"\n") {
        return Ok(None);
    }
    match serde_json::from_slice(&text) {
        Ok(line) => Ok(Some((line, length as u64))),
        Err(_) => Err(Fault::Corrupt("events.journal")),
    }
}
