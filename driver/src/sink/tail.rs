//! The newest parts of a turn in memory, shared by any number of readers.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bex_proto::limits;
use bytes::Bytes;
use tokio::sync::watch;

/// A turn as its readers see it. Readers pull; whoever is slower than the memory holds reads the log instead.
#[derive(Debug)]
pub struct Tail {
    kept: Mutex<Kept>,
    progress: watch::Sender<Progress>,
    log: PathBuf,
}

/// How far a turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Index of the next part.
    pub next: u32,
    /// Whether there will be no next part.
    pub ended: bool,
}

#[derive(Debug, Default)]
struct Kept {
    /// Index of the first part in memory.
    first: u32,
    parts: VecDeque<Bytes>,
    bytes: usize,
}

/// What memory has from an index on.
#[derive(Debug)]
pub enum Look {
    /// Parts, the first with the index asked for.
    Parts(Vec<Bytes>),
    /// Memory begins at this index; what is before it is in the log or gone.
    Before(u32),
    /// Not spoken yet.
    NotYet,
}

impl Tail {
    /// A turn that begins.
    pub fn new(log: PathBuf) -> Self {
        Self::at(
            log,
            Progress {
                next: 0,
                ended: false,
            },
        )
    }

    /// A turn that ended in an earlier life of the process: nothing in memory.
    pub fn ended(log: PathBuf, parts: u32) -> Self {
        Self::at(
            log,
            Progress {
                next: parts,
                ended: true,
            },
        )
    }

    fn at(log: PathBuf, progress: Progress) -> Self {
        Self {
            kept: Mutex::new(Kept {
                first: progress.next,
                ..Kept::default()
            }),
            progress: watch::Sender::new(progress),
            log,
        }
    }

    /// The turn's log.
    pub fn log(&self) -> &PathBuf {
        &self.log
    }

    /// Shows the next part, which the log has kept or dropped already.
    pub fn push(&self, part: Bytes) {
        let mut kept = self.lock();
        kept.bytes += part.len();
        kept.parts.push_back(part);
        while kept.bytes > limits::DRIVER_TAIL_BYTES || kept.parts.len() > limits::DRIVER_TAIL_PARTS
        {
            let Some(oldest) = kept.parts.pop_front() else {
                break;
            };
            kept.bytes -= oldest.len();
            kept.first += 1;
        }
        drop(kept);
        self.progress.send_modify(|progress| progress.next += 1);
    }

    /// There will be no next part.
    pub fn end(&self) {
        self.progress.send_modify(|progress| progress.ended = true);
    }

    /// Frees the memory; readers go on from the log.
    pub fn forget(&self) {
        let mut kept = self.lock();
        kept.first += kept.parts.len() as u32;
        kept.parts = VecDeque::new();
        kept.bytes = 0;
    }

    /// To wait for progress with.
    pub fn watch(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Parts in memory from `index` on, about `budget` bytes of them, one at least.
    pub fn look(&self, index: u32, budget: usize) -> Look {
        let kept = self.lock();
        if index < kept.first {
            return Look::Before(kept.first);
        }
        let (mut parts, mut bytes) = (Vec::new(), 0);
        for part in kept.parts.iter().skip((index - kept.first) as usize) {
            bytes += part.len();
            parts.push(part.clone());
            if bytes >= budget {
                break;
            }
        }
        if parts.is_empty() {
            Look::NotYet
        } else {
            Look::Parts(parts)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // a poisoned tail is still whole: nothing between its updates can panic
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
