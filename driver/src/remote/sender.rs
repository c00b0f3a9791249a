//! Posts events in their order, one batch after the other, until all are there.

use std::fs::File;
use std::sync::Arc;

use bex_proto::RemoteSessionId;
use bex_proto::remote::{OutputAccepted, OutputEvent, OutputStream};
use bytes::Bytes;
use http::StatusCode;
use tracing::{error, warn};

use super::client::{Call, Link, Trouble};
use super::cut::text;
use super::fault::Fault;
use super::journal::{Content, Entry, Journal, Reader};
use super::place::{Place, read_piece};

/// One batch. Common proxies take no more.
const BATCH_BYTES: usize = 1024 * 1024;
const BATCH_EVENTS: usize = 1000;

/// See the module's text.
#[derive(Debug)]
pub struct Sender {
    link: Link,
    path: String,
    journal: Arc<Journal>,
    reader: Reader,
    stdout: File,
    stderr: File,
    /// The first event that the service does not have.
    next: u64,
}

/// Events that go together.
#[derive(Debug, Default)]
struct Batch {
    body: Vec<u8>,
    events: usize,
    /// Behind the last of them.
    end: u64,
}

/// Which event the service wants next.
///
/// # Errors
/// What does not pass by itself.
pub async fn ask(link: &mut Link, session: &RemoteSessionId) -> Result<u64, Fault> {
    output(link, &output_path(session), Bytes::new()).await
}

impl Sender {
    /// A sender of what stands in the journal from `next` on.
    ///
    /// # Errors
    /// When that event is not in it.
    pub fn begin(
        link: Link,
        session: &RemoteSessionId,
        place: &Place,
        journal: Arc<Journal>,
        next: u64,
    ) -> Result<Self, Fault> {
        Ok(Self {
            link,
            path: output_path(session),
            reader: journal.read_from(next)?,
            journal,
            stdout: File::open(place.spool(OutputStream::Stdout))?,
            stderr: File::open(place.spool(OutputStream::Stderr))?,
            next,
        })
    }

    /// Until the journal is closed and all of it is there, or the service takes no more. Returns how many events there are.
    ///
    /// # Errors
    /// What does not pass by itself.
    pub async fn run(&mut self) -> Result<u64, Fault> {
        loop {
            let batch = self.batch()?;
            if batch.events == 0 {
                if self.reader.wait().await {
                    continue;
                }
                return Ok(self.next);
            }
            let end = batch.end;
            let wanted = match output(&mut self.link, &self.path, batch.body.into()).await {
                Ok(next) | Err(Fault::TooFar(next)) => next,
                Err(Fault::LogFull) => {
                    error!(
                        code = "log_full",
                        next = self.next,
                        "the session's log is full: nothing more is reported"
                    );
                    self.journal.set_full();
                    return Ok(self.next);
                }
                Err(fault) => return Err(fault),
            };
            if wanted < end {
                self.go_back(wanted).await?;
            }
            self.next = wanted;
        }
    }

    /// Posts a document until it is answered.
    ///
    /// # Errors
    /// What does not pass by itself.
    pub async fn post(&mut self, call: &Call) -> Result<Bytes, Fault> {
        self.link.post(call).await
    }

    /// The service has less than was sent: its store may have been set back.
    async fn go_back(&mut self, wanted: u64) -> Result<(), Fault> {
        warn!(wanted, "the service wants events again");
        self.reader = self.journal.read_from(wanted)?;
        if wanted <= self.next {
            let status = StatusCode::CONFLICT;
            let trouble = Trouble::Later {
                status,
                after: None,
            };
            self.link.pause(&trouble, &self.path).await;
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<Batch, Fault> {
        let mut batch = Batch::default();
        while batch.events < BATCH_EVENTS {
            let Some(entry) = self.reader.next()? else {
                break;
            };
            let line = self.line(&entry)?;
            if batch.events > 0 && batch.body.len() + line.len() > BATCH_BYTES {
                self.reader.put_back(entry);
                break;
            }
            batch.body.extend_from_slice(&line);
            batch.events += 1;
            batch.end = entry.index + 1;
        }
        Ok(batch)
    }

    fn line(&self, entry: &Entry) -> Result<Vec<u8>, Fault> {
        let data = match &entry.content {
            Content::Text(said) => text(said.as_bytes()),
            Content::Spool(from, to) => {
                let spool = match entry.stream {
                    OutputStream::Stderr => &self.stderr,
                    _ => &self.stdout,
                };
                text(&read_piece(spool, *from, *to)?)
            }
        };
        let event = OutputEvent {
            event_index: entry.index,
            stream: entry.stream,
            data,
            is_complete: entry.complete,
            at: Some(entry.at),
        };
        let mut line = serde_json::to_vec(&event).map_err(std::io::Error::from)?;
        line.push(b'\n');
        Ok(line)
    }
}

fn output_path(session: &RemoteSessionId) -> String {
    format!("/v1/remote-sessions/{session}/output")
}

async fn output(link: &mut Link, path: &str, body: Bytes) -> Result<u64, Fault> {
    let answer = link.post(&Call::lines(path, body)).await?;
    let accepted: OutputAccepted = serde_json::from_slice(&answer).map_err(|_| Fault::Refused {
        status: StatusCode::OK,
        code: "not_understood".to_owned(),
    })?;
    Ok(accepted.next_event_index)
}
