//! Shows the command's output where the reporter runs. Threads of their own: a terminal that takes nothing holds nobody but them.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bex_proto::remote::OutputStream;

use super::arguments::Echo;
use super::place::Place;

const LOOK: Duration = Duration::from_millis(50);
const PIECE: usize = 64 * 1024;

/// Both streams.
#[derive(Debug)]
pub struct Echoes {
    threads: Vec<(SyncSender<()>, JoinHandle<()>)>,
}

/// From where on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// All of it.
    Start,
    /// What an earlier reporter showed is not shown again.
    Now,
}

impl Echoes {
    /// Begins to show it, where it is to be.
    ///
    /// # Errors
    /// What the system says.
    pub fn begin(echo: Echo, place: &Place, from: From) -> io::Result<Self> {
        let mut threads = Vec::new();
        if echo == Echo::Shown {
            threads.push(follow(OutputStream::Stdout, place, from)?);
            threads.push(follow(OutputStream::Stderr, place, from)?);
        }
        Ok(Self { threads })
    }

    /// Shows the rest.
    pub fn end(self) {
        for (end, thread) in self.threads {
            drop(end);
            // a thread that fell showed less than there was, which is told nowhere else
            let _ = thread.join();
        }
    }
}

fn follow(
    stream: OutputStream,
    place: &Place,
    from: From,
) -> io::Result<(SyncSender<()>, JoinHandle<()>)> {
    let spool = File::open(place.spool(stream))?;
    let position = match from {
        From::Start => 0,
        From::Now => spool.metadata()?.len(),
    };
    let (end, ended) = sync_channel(0);
    let thread = std::thread::Builder::new()
        .name(format!("echo {stream}"))
        .spawn(move || {
            // whoever read it has gone
            let _ = match stream {
                OutputStream::Stdout => show(&spool, position, &mut io::stdout(), &ended),
                _ => show(&spool, position, &mut io::stderr(), &ended),
            };
        })?;
    Ok((end, thread))
}

fn show(
    spool: &File,
    mut position: u64,
    out: &mut dyn Write,
    ended: &Receiver<()>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        // before the look: what is there after the end is all there is
        let last = ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Disconnected);
        loop {
            let size = spool.metadata()?.len();
            // it was cut to what is reported
            position = position.min(size);
            let length = spool.read_at(&mut piece, position)?;
            if length == 0 {
                break;
            }
            out.write_all(&piece[..length])?;
            position += length as u64;
        }
        out.flush()?;
        if last {
            return Ok(());
        }
    }
}
