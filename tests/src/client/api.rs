//! The api, as its caller sees it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};
use bex_proto::session::Phase;
use bex_proto::{PartId, SessionId};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::http::fetch;

/// Texts that must never stand in a log.
pub type Secrets = Arc<Mutex<Vec<String>>>;

/// A caller with one bearer token.
#[derive(Clone)]
pub struct ApiClient {
    address: SocketAddr,
    token: String,
    secrets: Secrets,
}

/// Whatever the api answered.
#[derive(Debug)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// What a session is created with.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// The body of the create call.
    pub body: Value,
}

/// A minted attach ticket.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    /// The ticket.
    pub ticket: String,
    /// Where it is valid.
    pub stream_url: String,
    /// Whether it never dials.
    pub replay_only: bool,
}

/// A turn as the turns list shows it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    /// Its number.
    pub turn: u32,
    /// `open`, `complete` or `truncated`.
    pub verdict: String,
    /// Why, when truncated.
    #[serde(default)]
    pub reason: Option<String>,
    /// Who ended it.
    #[serde(default)]
    pub ended_by: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Value>,
}

/// One part of the feed.
#[derive(Debug, Clone, Deserialize)]
pub struct FeedPart {
    /// Its ingestion number.
    pub seq: i64,
    /// Its turn.
    pub turn: u32,
    /// Its index.
    pub index: u32,
    /// Its bytes, verbatim.
    pub part: Box<RawValue>,
}

impl FeedPart {
    /// Its identity.
    pub fn id(&self) -> PartId {
        PartId::new(self.turn, self.index)
    }
}

/// One page of the feed.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Feed {
    /// The page.
    pub parts: Vec<FeedPart>,
    /// Where the next one begins.
    pub next_after_seq: i64,
    /// Whether this was the last for now.
    pub caught_up: bool,
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The problem's code.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The body as `T`, when the status is as expected.
    ///
    /// # Errors
    /// Another status or another shape; both are told with the body.
    pub fn expect<T: serde::de::DeserializeOwned>(&self, status: StatusCode) -> anyhow::Result<T> {
        let text = String::from_utf8_lossy(&self.body);
        ensure!(
            self.status == status,
            "{} instead of {status}: {text}",
            self.status
        );
        serde_json::from_slice(&self.body).with_context(|| format!("unexpected body: {text}"))
    }
}

impl NewSession {
    /// An interactive session of a profile.
    pub fn new(workspace: &str, profile: &str, prompt: &str) -> Self {
        Self {
            body: json!({"workspaceId": workspace, "kind": "interactive",
                "agent": {"profile": profile}, "prompt": prompt}),
        }
    }

    /// A session that works for a workflow.
    #[must_use]
    pub fn autonomous(mut self, workflow: &str) -> Self {
        self.body["kind"] = json!("autonomous");
        self.body["workflowId"] = json!(workflow);
        self
    }

    /// The profile's arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.body["agent"]["args"] = json!(args);
        self
    }
}

impl ApiClient {
    /// A caller; what it is given in secret is added to `secrets`.
    pub fn new(address: SocketAddr, token: &str, secrets: Secrets) -> Self {
        Self {
            address,
            token: token.to_owned(),
            secrets,
        }
    }

    /// Somebody else at the same api, by a token that was just issued.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        self.keep_secret(token);
        Self::new(self.address, token, Arc::clone(&self.secrets))
    }

    /// Any call. `body` is sent as JSON.
    ///
    /// # Errors
    /// Only when nothing answers; every answer is an [`Answer`].
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let body = body.map(|b| Bytes::from(b.to_string()));
        self.call_raw(method, path, body, &[]).await
    }

    /// Any call with any body and further headers.
    ///
    /// # Errors
    /// As [`ApiClient::call`].
    pub async fn call_raw(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Answer> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.token));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.unwrap_or_default()))?;
        let (head, body) = fetch(self.address, request).await?.into_parts();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.call(Method::GET, path, None).await
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Creates a session.
    ///
    /// # Errors
    /// When it is not created.
    pub async fn create(&self, new: &NewSession) -> anyhow::Result<SessionId> {
        let answer = self.post("/v1/agent-sessions", &new.body).await?;
        let body: Value = answer.expect(StatusCode::CREATED)?;
        Ok(body["id"]
            .as_str()
            .context("a session has an id")?
            .parse()?)
    }

    /// The session as it is shown.
    ///
    /// # Errors
    /// When it is not shown.
    pub async fn session(&self, id: &SessionId) -> anyhow::Result<Value> {
        self.get(&format!("/v1/agent-sessions/{id}"))
            .await?
            .expect(StatusCode::OK)
    }

    /// The session's phase.
    ///
    /// # Errors
    /// When it is not shown.
    pub async fn phase(&self, id: &SessionId) -> anyhow::Result<Phase> {
        let session = self.session(id).await?;
        Ok(session["phase"]
            .as_str()
            .context("a session has a phase")?
            .parse()?)
    }

    /// The session's turns.
    ///
    /// # Errors
    /// When they are not shown.
    pub async fn turns(&self, id: &SessionId) -> anyhow::Result<Vec<Turn>> {
        let answer = self.get(&format!("/v1/agent-sessions/{id}/turns")).await?;
        let body: Value = answer.expect(StatusCode::OK)?;
        let turns = if body.is_array() {
            &body
        } else {
            &body["turns"]
        };
        serde_json::from_value(turns.clone()).context("unexpected turns")
    }

    /// Begins a turn; the answer is not judged.
    ///
    /// # Errors
    /// Only when nothing answers.
    pub async fn begin_turn(&self, id: &SessionId, prompt: &str) -> anyhow::Result<Answer> {
        let body = json!({"prompt": prompt});
        let answer = self
            .post(&format!("/v1/agent-sessions/{id}/turns"), &body)
            .await?;
        if let Some(ticket) = answer.json()["ticket"].as_str() {
            self.keep_secret(ticket);
        }
        Ok(answer)
    }

    /// One of the verbs without a body: `cancel`, `archive`, `unarchive`, `turns/1/stop`; the answer is not judged.
    ///
    /// # Errors
    /// Only when nothing answers.
    pub async fn verb(&self, id: &SessionId, verb: &str) -> anyhow::Result<Answer> {
        self.call(
            Method::POST,
            &format!("/v1/agent-sessions/{id}/{verb}"),
            None,
        )
        .await
    }

    /// Deletes the session; the answer is not judged.
    ///
    /// # Errors
    /// Only when nothing answers.
    pub async fn delete(&self, id: &SessionId) -> anyhow::Result<Answer> {
        self.call(Method::DELETE, &format!("/v1/agent-sessions/{id}"), None)
            .await
    }

    /// A ticket to read.
    ///
    /// # Errors
    /// When none is given.
    pub async fn read_ticket(&self, id: &SessionId) -> anyhow::Result<Ticket> {
        self.ticket(id, &json!({"action": "read"})).await
    }

    /// A ticket to post for a turn.
    ///
    /// # Errors
    /// When none is given.
    pub async fn turn_ticket(&self, id: &SessionId, turn: u32) -> anyhow::Result<Ticket> {
        self.ticket(id, &json!({"action": "turn", "turn": turn}))
            .await
    }

    async fn ticket(&self, id: &SessionId, body: &Value) -> anyhow::Result<Ticket> {
        let path = format!("/v1/agent-sessions/{id}/attach-ticket");
        let answer = self.post(&path, body).await?;
        let ticket: Ticket = answer.expect(if answer.status == StatusCode::CREATED {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        })?;
        self.keep_secret(&ticket.ticket);
        Ok(ticket)
    }

    /// One page of the feed.
    ///
    /// # Errors
    /// When it is not given.
    pub async fn feed_page(&self, id: &SessionId, after: i64, limit: u32) -> anyhow::Result<Feed> {
        let path = format!("/v1/agent-sessions/{id}/transcript?afterSeq={after}&limit={limit}");
        self.get(&path).await?.expect(StatusCode::OK)
    }

    /// The whole feed, page by page. The ingestion numbers are checked to be 0, 1, 2, …
    ///
    /// # Errors
    /// When a page is not given, or the numbers are not contiguous.
    pub async fn feed(&self, id: &SessionId) -> anyhow::Result<Vec<FeedPart>> {
        let mut parts: Vec<FeedPart> = Vec::new();
        let mut after = -1;
        loop {
            let page = self
                .feed_page(id, after, bex_proto::limits::FEED_LIMIT)
                .await?;
            for part in page.parts {
                let expected = i64::try_from(parts.len())?;
                ensure!(
                    part.seq == expected,
                    "seq {} where {expected} was due",
                    part.seq
                );
                parts.push(part);
            }
            if page.caught_up {
                return Ok(parts);
            }
            ensure!(
                page.next_after_seq > after,
                "the feed does not advance at {after}"
            );
            after = page.next_after_seq;
        }
    }

    /// Revokes access, as an administrator.
    ///
    /// # Errors
    /// Only when nothing answers.
    pub async fn revoke(&self, body: &Value) -> anyhow::Result<Answer> {
        self.post("/v1/revocations", body).await
    }

    pub(super) fn keep_secret(&self, secret: &str) {
        self.secrets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(secret.to_owned());
    }
}
