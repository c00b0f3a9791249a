//! What a browser does: it uses a ticket and reads a stream.

use bex_proto::SessionId;
use bex_proto::TurnNo;
use bex_proto::sse::{Event, Splitter};
use bex_proto::ticket::{ATTACH_HEADER, AttachAction, AttachClaims};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;

use super::{PATIENCE, keys};
use crate::serve::ResponseBody;

/// A ticket and how it is used.
#[derive(Clone)]
pub(in crate::attach::tests) struct Ticket {
    pub(in crate::attach::tests) claims: AttachClaims,
    pub(in crate::attach::tests) query: String,
    pub(in crate::attach::tests) body: Bytes,
}

pub(in crate::attach::tests) fn read_ticket(session: &SessionId) -> Ticket {
    let now = Timestamp::now().as_second();
    let claims = AttachClaims::to_read(session, "acme".parse().expect("an id"), "u", now);
    Ticket {
        claims,
        query: String::new(),
        body: Bytes::new(),
    }
}

pub(in crate::attach::tests) fn turn_ticket(session: &SessionId, turn: u32) -> Ticket {
    let mut ticket = read_ticket(session);
    ticket.claims.act = AttachAction::Turn;
    ticket.claims.trn = Some(TurnNo(turn));
    ticket
}

impl Ticket {
    pub(in crate::attach::tests) fn after(mut self, query: &str) -> Self {
        self.query = format!("?after={query}");
        self
    }

    pub(in crate::attach::tests) fn request(&self) -> Request<Full<Bytes>> {
        let method = match self.claims.act {
            AttachAction::Read => Method::GET,
            AttachAction::Turn => Method::POST,
        };
        Request::builder()
            .method(method)
            .uri(format!(
                "/v1/agent-sessions/{}/stream{}",
                self.claims.ses, self.query
            ))
            .header(ATTACH_HEADER, self.claims.sign(&keys()))
            .body(Full::new(self.body.clone()))
            .expect("a request")
    }
}

/// A stream being read.
pub(in crate::attach::tests) struct Stream {
    pub(in crate::attach::tests) status: u16,
    pub(in crate::attach::tests) headers: HeaderMap,
    body: ResponseBody,
    splitter: Splitter,
    pub(in crate::attach::tests) raw: Vec<u8>,
}

impl Stream {
    pub(in crate::attach::tests) fn of(response: Response<ResponseBody>) -> Self {
        let (parts, body) = response.into_parts();
        Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
            splitter: Splitter::new(),
            raw: Vec::new(),
        }
    }

    /// The next event as `id data`, without the id where there is none; `None` at the body's clean end.
    pub(in crate::attach::tests) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(event) = self.splitter.next_event() {
                let Event::Data { id, data } = event else {
                    panic!("a viewer's events are whole")
                };
                let data = String::from_utf8(data.to_vec()).expect("text");
                let id = id.map(|id| String::from_utf8(id.to_vec()).expect("text"));
                return Some(id.map_or(data.clone(), |id| format!("{id} {data}")));
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame())
                .await
                .expect("in time")?;
            let bytes = frame.expect("not broken off").into_data().expect("data");
            self.raw.extend_from_slice(&bytes);
            self.splitter.push(&bytes);
        }
    }

    /// Every event to the end.
    pub(in crate::attach::tests) async fn rest(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }

    /// Events up to the first that contains `text`, that one included.
    pub(in crate::attach::tests) async fn until(&mut self, text: &str) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            let found = event.contains(text);
            all.push(event);
            if found {
                return all;
            }
        }
        panic!("{text} never came: {all:?}")
    }
}
