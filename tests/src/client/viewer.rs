//! A viewer of a session's stream: it pulls events one by one, so it can also stop reading.
//!
//! Cursors are parts' ids for an agent's session and event indexes for a remote one.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bex_proto::{PartId, RemoteSessionId, SessionId};
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::Value;

use super::http::{fetch, send};

/// The longest silence of a stream, heartbeats included.
const SILENCE: Duration = Duration::from_secs(60);

/// One event.
#[derive(Debug, Clone)]
pub struct Event<I = PartId> {
    /// The cursor.
    pub id: Option<I>,
    /// The data; `None` for the event that only repeats the cursor.
    pub data: Option<Bytes>,
    /// When it was read here.
    pub at: Instant,
}

impl<I> Event<I> {
    /// The data's `type`; empty when there is none.
    pub fn kind(&self) -> String {
        self.json()["type"].as_str().unwrap_or_default().to_owned()
    }

    /// The data as JSON; null when it is none.
    pub fn json(&self) -> Value {
        self.data
            .as_ref()
            .and_then(|d| serde_json::from_slice(d).ok())
            .unwrap_or(Value::Null)
    }
}

/// How a stream came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With `[DONE]`.
    Done,
    /// Closed without it.
    Cut,
}

/// The listener refused.
#[derive(Debug)]
pub struct Refusal {
    /// Status.
    pub status: u16,
    /// `X-Bex-Error`.
    pub code: String,
    /// The line of text.
    pub text: String,
    /// Headers.
    pub headers: HeaderMap,
}

/// An open stream.
#[derive(Debug)]
pub struct Viewer<I = PartId> {
    /// Everything read so far.
    pub events: Vec<Event<I>>,
    /// Comments read so far.
    pub comments: Vec<String>,
    /// The answer's headers.
    pub headers: HeaderMap,
    /// How it ended, once it did.
    pub ending: Option<Ending>,
    body: Incoming,
    buffer: BytesMut,
}

impl Viewer<PartId> {
    /// GET with a ticket, from the start.
    ///
    /// # Errors
    /// When it is refused or nothing answers.
    pub async fn open(to: SocketAddr, session: &SessionId, ticket: &str) -> anyhow::Result<Self> {
        Self::open_at(to, session, ticket, None).await
    }

    /// GET with a ticket, behind a cursor.
    ///
    /// # Errors
    /// When it is refused or nothing answers.
    pub async fn open_at(
        to: SocketAddr,
        session: &SessionId,
        ticket: &str,
        cursor: Option<PartId>,
    ) -> anyhow::Result<Self> {
        let cursor = cursor.map(|c| c.to_string());
        let mut headers = vec![(bex_proto::ticket::ATTACH_HEADER, ticket)];
        headers.extend(cursor.iter().map(|c| ("last-event-id", c.as_str())));
        match Self::request(to, Method::GET, &path(session), &headers, Bytes::new()).await? {
            Ok(viewer) => Ok(viewer),
            Err(refusal) => bail!("the stream was refused: {refusal:?}"),
        }
    }

    /// POST with a turn ticket.
    ///
    /// # Errors
    /// When it is refused or nothing answers.
    pub async fn post(
        to: SocketAddr,
        session: &SessionId,
        ticket: &str,
        body: &'static str,
    ) -> anyhow::Result<Self> {
        let headers = [
            (bex_proto::ticket::ATTACH_HEADER, ticket),
            ("content-type", "application/json"),
        ];
        match Self::request(
            to,
            Method::POST,
            &path(session),
            &headers,
            Bytes::from(body),
        )
        .await?
        {
            Ok(viewer) => Ok(viewer),
            Err(refusal) => bail!("the stream was refused: {refusal:?}"),
        }
    }

    /// Any request to the attach listener: a stream, or why not.
    ///
    /// # Errors
    /// Only when nothing answers.
    pub async fn request(
        to: SocketAddr,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> anyhow::Result<Result<Self, Refusal>> {
        Self::ask(to, method, path, headers, body).await
    }

    /// The parts seen so far: events with an id and data.
    pub fn parts(&self) -> Vec<(PartId, Bytes)> {
        self.events
            .iter()
            .filter_map(|e| Some((e.id?, e.data.clone()?)))
            .collect()
    }
}

impl Viewer<u64> {
    /// GET of a remote session's stream, behind an event: a stream, or why not.
    ///
    /// # Errors
    /// Only when nothing answers.
    pub async fn follow(
        to: SocketAddr,
        session: &RemoteSessionId,
        ticket: &str,
        after: Option<u64>,
    ) -> anyhow::Result<Result<Self, Refusal>> {
        let after = after.map(|after| after.to_string());
        let mut headers = vec![(bex_proto::ticket::ATTACH_HEADER, ticket)];
        headers.extend(after.iter().map(|after| ("last-event-id", after.as_str())));
        let path = format!("/v1/agent-sessions/{session}/stream");
        Self::ask(to, Method::GET, &path, &headers, Bytes::new()).await
    }
}

impl<I> Viewer<I>
where
    I: FromStr<Err: std::error::Error + Send + Sync + 'static> + Copy,
{
    async fn ask(
        to: SocketAddr,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> anyhow::Result<Result<Self, Refusal>> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, body) = send(to, request.body(Full::new(body))?).await?.into_parts();
        if head.status == http::StatusCode::OK {
            return Ok(Ok(Self {
                events: Vec::new(),
                comments: Vec::new(),
                headers: head.headers,
                ending: None,
                body,
                buffer: BytesMut::new(),
            }));
        }
        let text = body.collect().await?.to_bytes();
        let code = head
            .headers
            .get(bex_proto::problem::CODE_HEADER)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        Ok(Err(Refusal {
            status: head.status.as_u16(),
            code,
            text: String::from_utf8_lossy(&text).into_owned(),
            headers: head.headers,
        }))
    }

    /// The next event, or `None` at the end of the stream.
    ///
    /// # Errors
    /// When the stream is silent for a minute or is no event stream.
    pub async fn next(&mut self) -> anyhow::Result<Option<Event<I>>> {
        loop {
            if let Some(event) = self.take_event()? {
                self.events.push(event.clone());
                return Ok(Some(event));
            }
            if self.ending.is_some() {
                return Ok(None);
            }
            let frame = tokio::time::timeout(SILENCE, self.body.frame())
                .await
                .context("the stream is silent")?;
            match frame {
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.buffer.extend_from_slice(bytes);
                    }
                }
                Some(Err(_)) | None => self.ending = Some(Ending::Cut),
            }
        }
    }

    /// Reads on until an event is as wanted, and gives it.
    ///
    /// # Errors
    /// When the stream ends or falls silent before.
    pub async fn until(
        &mut self,
        mut wanted: impl FnMut(&Event<I>) -> bool,
    ) -> anyhow::Result<Event<I>> {
        while let Some(event) = self.next().await? {
            if wanted(&event) {
                return Ok(event);
            }
        }
        let last = self.events.last().map(|e| e.json().to_string());
        bail!("the stream ended before the event that was waited for; last: {last:?}")
    }

    /// Reads to the end.
    ///
    /// # Errors
    /// When the stream falls silent before.
    pub async fn to_end(&mut self) -> anyhow::Result<Ending> {
        while self.next().await?.is_some() {}
        Ok(self.ending.unwrap_or(Ending::Cut))
    }

    /// The last cursor seen.
    pub fn cursor(&self) -> Option<I> {
        self.events.iter().rev().find_map(|e| e.id)
    }

    /// Events of a type.
    pub fn of_kind(&self, kind: &str) -> Vec<Value> {
        let events = self.events.iter().filter(|e| e.kind() == kind);
        events.map(Event::json).collect()
    }

    fn take_event(&mut self) -> anyhow::Result<Option<Event<I>>> {
        loop {
            let Some(end) = memchr::memmem::find(&self.buffer, b"\n\n") else {
                return Ok(None);
            };
            let block = self.buffer.split_to(end).freeze();
            self.buffer.advance(2);
            let (mut id, mut data) = (None, None);
            for line in block.split(|b| *b == b'\n') {
                if let Some(comment) = line.strip_prefix(b":") {
                    let comment = String::from_utf8_lossy(comment).trim().to_owned();
                    self.comments.push(comment);
                } else if let Some(value) = line.strip_prefix(b"id: ") {
                    id = Some(std::str::from_utf8(value)?.parse()?);
                } else if let Some(value) = line.strip_prefix(b"data: ") {
                    if data.is_some() {
                        bail!("an event with two data lines");
                    }
                    data = Some(block.slice_ref(value));
                } else {
                    bail!(
                        "not a line of our streams: {}",
                        String::from_utf8_lossy(line)
                    );
                }
            }
            if data.as_deref() == Some(bex_proto::sse::DONE.as_bytes()) {
                self.ending = Some(Ending::Done);
                return Ok(None);
            }
            if id.is_some() || data.is_some() {
                let at = Instant::now();
                return Ok(Some(Event { id, data, at }));
            }
        }
    }
}

/// The stream's path.
pub fn path(session: &SessionId) -> String {
    format!("/v1/agent-sessions/{session}/stream")
}

/// A request whose answer is small, e.g. OPTIONS.
///
/// # Errors
/// Only when nothing answers.
pub async fn preflight(
    to: SocketAddr,
    session: &SessionId,
    origin: &str,
) -> anyhow::Result<http::Response<Bytes>> {
    let request = Request::builder()
        .method(Method::OPTIONS)
        .uri(path(session))
        .header("origin", origin)
        .header("access-control-request-method", "GET")
        .header(
            "access-control-request-headers",
            bex_proto::ticket::ATTACH_HEADER,
        )
        .body(Full::default())?;
    fetch(to, request).await
}
