//! Reading a session's stream to its end.

use std::time::Duration;

use anyhow::Context;
use bex_proto::sse::{Event, Splitter};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::client::Client;

/// The longest silence: heartbeats come every 15 s.
const SILENCE: Duration = Duration::from_secs(60);

/// What a stream showed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Stored parts: events with a cursor.
    pub parts: u64,
    /// It ended with `[DONE]`.
    pub done: bool,
}

pub(super) async fn replay(client: &Client, url: &str, ticket: &str) -> anyhow::Result<Replayed> {
    let (answer, _connection) = client.stream(url, ticket).await?;
    let mut body = answer.into_body();
    let mut splitter = Splitter::new();
    let mut seen = Replayed::default();
    while let Some(frame) = timeout(SILENCE, body.frame())
        .await
        .context("the stream is silent")?
    {
        let frame = frame.context("the stream broke off")?;
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        splitter.push(&bytes);
        while let Some(event) = splitter.next_event() {
            seen.take(&event);
        }
    }
    Ok(seen)
}

impl Replayed {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Data { data, .. } if &data[..] == b"[DONE]" => self.done = true,
            Event::Data { id: Some(_), .. } | Event::Oversized { id: Some(_), .. } => {
                self.parts += 1
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_parts_and_the_end_are_counted() {
        let stream = ": stream-open\n\ndata: {\"type\":\"start\"}\n\nid: 1.0\ndata: {}\n\nid: 1.1\ndata: {}\n\n\
            data: {\"type\":\"finish\"}\n\ndata: [DONE]\n\n";
        let mut seen = Replayed::default();
        let mut splitter = Splitter::new();
        splitter.push(stream.as_bytes());
        while let Some(event) = splitter.next_event() {
            seen.take(&event);
        }
        assert_eq!(
            seen,
            Replayed {
                parts: 2,
                done: true
            }
        );
    }
}
