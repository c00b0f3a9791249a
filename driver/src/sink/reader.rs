//! One reader of one turn: from memory where it can, from the log where it must.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use bex_proto::driver::LogRecord;
use bytes::Bytes;
use tokio::sync::watch;

use super::tail::{Look, Progress, Tail};
use crate::bounds::{LOG_STEP_BYTES, STREAM_STEP_BYTES};

/// Parts with their indexes, in order.
pub type Batch = Vec<(u32, Bytes)>;

/// Reads a turn from an index on, each part once. Parts that neither memory nor log has any more are skipped: the indexes
/// show it.
#[derive(Debug)]
pub struct TurnReader {
    tail: Arc<Tail>,
    progress: watch::Receiver<Progress>,
    next: u32,
    /// Where in the log the search for `next` goes on.
    offset: u64,
}

impl TurnReader {
    /// A reader whose first part is `from`.
    pub fn new(tail: Arc<Tail>, from: u32) -> Self {
        Self {
            progress: tail.watch(),
            tail,
            next: from,
            offset: 0,
        }
    }

    /// The next parts; `None` at the turn's end. May be dropped while it waits and called again.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn next(&mut self) -> io::Result<Option<Batch>> {
        loop {
            let progress = *self.progress.borrow_and_update();
            match self.tail.look(self.next, STREAM_STEP_BYTES) {
                Look::Parts(parts) => {
                    let first = self.next;
                    self.next += parts.len() as u32;
                    return Ok(Some((first..).zip(parts).collect()));
                }
                Look::Before(memory) => {
                    let (log, from, offset) = (self.tail.log().clone(), self.next, self.offset);
                    let step =
                        tokio::task::spawn_blocking(move || read_log(&log, offset, from, memory));
                    let step = step.await.map_err(io::Error::other)??;
                    self.offset = step.offset;
                    if let Some((last, _)) = step.parts.last() {
                        self.next = last + 1;
                        return Ok(Some(step.parts));
                    }
                    if step.exhausted {
                        self.next = memory;
                    }
                }
                // nothing was pushed between the progress read and the look unless the progress says so
                Look::NotYet if progress.ended => return Ok(None),
                Look::NotYet => {
                    if self.progress.changed().await.is_err() {
                        return Ok(None);
                    }
                }
            }
        }
    }
}

struct Step {
    parts: Batch,
    offset: u64,
    /// The log has nothing more below the bound.
    exhausted: bool,
}

/// Reads parts `from..below` from a log, a bounded step of it.
fn read_log(path: &Path, mut offset: u64, from: u32, below: u32) -> io::Result<Step> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut lines = BufReader::with_capacity(STREAM_STEP_BYTES, file);
    let (start, mut parts, mut bytes) = (offset, Vec::new(), 0);
    let mut line = Vec::new();
    while bytes < STREAM_STEP_BYTES && offset - start < LOG_STEP_BYTES {
        line.clear();
        let length = lines.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Ok(Step {
                parts,
                offset,
                exhausted: true,
            });
        }
        if let Some(LogRecord::UiMessage {
            part_index: Some(index),
            part,
            ..
        }) = LogRecord::parse(&line)
        {
            if index.0 >= below {
                return Ok(Step {
                    parts,
                    offset,
                    exhausted: true,
                });
            }
            if index.0 >= from {
                bytes += part.len();
                parts.push((index.0, Bytes::copy_from_slice(part.as_bytes())));
            }
        }
        offset += length as u64;
    }
    Ok(Step {
        parts,
        offset,
        exhausted: false,
    })
}
