//! The ways in, for callers who ask again elsewhere until they are answered: every call here may be repeated.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use bex_proto::ticket::ATTACH_HEADER;
use bex_proto::{PartId, SessionId};
use bex_tests::client::{Answer, ApiClient, Turn, Viewer, stream_path};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// How long somebody asks again before it counts as a fault: every outage is much shorter.
const PATIENCE: Duration = Duration::from_secs(120);
/// One call: the turns verb may wait for 10 s.
const CALL: Duration = Duration::from_secs(15);
/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(300);

/// Every api and every attach listener.
#[derive(Clone)]
pub struct Doors {
    pub apis: Vec<ApiClient>,
    pub attach: Vec<SocketAddr>,
}

/// A stream, or that there is nothing behind its cursor.
pub enum Opened {
    Stream(Box<Viewer>),
    Nothing,
}

impl Doors {
    /// An answer that is no trouble of the server's. Repeated calls go round the apis, from `first` on.
    pub async fn ask(
        &self,
        first: u64,
        (method, path): (Method, &str),
        body: Option<&Value>,
        key: Option<&str>,
    ) -> anyhow::Result<Answer> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        let mut headers: Vec<(&str, &str)> = Vec::new();
        headers.extend(key.map(|key| ("idempotency-key", key)));
        let deadline = Instant::now() + PATIENCE;
        let mut n = first as usize;
        loop {
            let api = &self.apis[n % self.apis.len()];
            n += 1;
            let call = api.call_raw(method.clone(), path, body.clone(), &headers);
            let last = match timeout(CALL, call).await {
                Ok(Ok(answer)) => {
                    let status = answer.status;
                    let busy = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
                    if !busy {
                        return Ok(answer);
                    }
                    format!("{status}: {}", String::from_utf8_lossy(&answer.body))
                }
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "no answer in time".to_owned(),
            };
            if Instant::now() >= deadline {
                anyhow::bail!("{method} {path} was in vain for {PATIENCE:?}: {last}");
            }
            sleep(AGAIN).await;
        }
    }

    pub async fn turns(&self, first: u64, session: &SessionId) -> anyhow::Result<Vec<Turn>> {
        let path = format!("/v1/agent-sessions/{session}/turns");
        let answer = self.ask(first, (Method::GET, &path), None, None).await?;
        let body: Value = answer.expect(StatusCode::OK)?;
        serde_json::from_value(body["turns"].clone()).context("unexpected turns")
    }

    /// Opens a session's stream behind a cursor, at one gateway after the other, each time with a fresh ticket.
    pub async fn open(
        &self,
        first: usize,
        session: &SessionId,
        cursor: Option<PartId>,
    ) -> anyhow::Result<Opened> {
        let ticket_path = format!("/v1/agent-sessions/{session}/attach-ticket");
        let (stream, cursor) = (
            stream_path(session),
            cursor.map(|cursor| cursor.to_string()),
        );
        let deadline = Instant::now() + PATIENCE;
        let mut n = first;
        loop {
            let body = json!({"action": "read"});
            let answer = self
                .ask(n as u64, (Method::POST, &ticket_path), Some(&body), None)
                .await?;
            let answer = answer.json();
            let ticket = answer["ticket"].as_str().context("no ticket")?;
            let mut headers = vec![(ATTACH_HEADER, ticket)];
            headers.extend(
                cursor
                    .iter()
                    .map(|cursor| ("last-event-id", cursor.as_str())),
            );
            let to = self.attach[n % self.attach.len()];
            n += 1;
            let request = Viewer::request(to, Method::GET, &stream, &headers, Bytes::new());
            let last = match timeout(CALL, request).await {
                Ok(Ok(Ok(viewer))) => return Ok(Opened::Stream(Box::new(viewer))),
                Ok(Ok(Err(refusal))) if refusal.status == 204 => return Ok(Opened::Nothing),
                // a ticket that was spent although its answer was lost, an old one after a pause
                Ok(Ok(Err(refusal))) => format!("{refusal:?}"),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "no answer in time".to_owned(),
            };
            if Instant::now() >= deadline {
                anyhow::bail!("the stream was not to be had for {PATIENCE:?}: {last}");
            }
            sleep(AGAIN).await;
        }
    }
}
