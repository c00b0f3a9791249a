//! The api's side of the exec RPC: one signed, single-use ticket a call, the answer decoded frame by frame with bounds.
//!
//! A cluster's "Success" is not proof, and neither is the end of a body: an answer counts as whole only with its exit frame,
//! and a window's bytes only when their length and SHA-256 are the ones its header promised (`window`).

mod answer;
mod connector;
mod room;
mod window;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bex_proto::exec::{self, ExecCode, Operation};
use bex_proto::ticket::{COMPLETER_SUBJECT, ExecClaims, KeyRing, random_jti};
use bex_proto::trace::TRACE_HEADER;
use bex_proto::transcript::sha256_hex;
use bex_proto::{Chain, Generation, SessionId, TurnNo, WorkspaceId, limits};
use bex_store::sandboxes::SandboxRow;
use bex_store::sessions::SessionRow;
use bex_telemetry::Span;
use bex_tls::ClientTls;
use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use connector::Connector;

pub use answer::ReadAnswer;
pub use room::{HeldWindow, Room, Windows};
pub use window::{Window, read_window};

/// Time to connect to the gateway.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Which sandbox is meant. All of it stands in the ticket; the gateway refuses another one's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecTarget {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// The session.
    pub session: SessionId,
    /// The sandbox's life.
    pub generation: Generation,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its identity.
    pub pod_uid: String,
    /// Its container.
    pub container: String,
}

impl ExecTarget {
    /// A session's sandbox; `None` before it was ever ready.
    pub fn of(session: &SessionRow, sandbox: &SandboxRow) -> Option<Self> {
        Some(Self {
            workspace: session.workspace.clone(),
            session: session.id.clone(),
            generation: sandbox.generation,
            namespace: sandbox.namespace.clone(),
            pod: sandbox.pod.clone(),
            pod_uid: sandbox.pod_uid.clone()?,
            container: sandbox.container.clone(),
        })
    }
}

/// Why a call failed. Only [`ExecFailure::Terminated`] says anything about the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExecFailure {
    /// The gateway looked and saw that the sandbox is gone.
    #[error("the sandbox is gone")]
    Terminated,
    /// The subject may not.
    #[error("the gateway refused the subject")]
    Revoked,
    /// The driver speaks another turn.
    #[error("the driver is busy")]
    Busy,
    /// The sandbox can not do that.
    #[error("the sandbox can not do that")]
    Unsupported,
    /// More output than allowed.
    #[error("more output than allowed")]
    OutputLimit,
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The connection broke, the end is missing, or the bytes are not the ones that were promised.
    #[error("the exec transport broke")]
    Transport,
    /// The gateway itself could not be reached: nothing is known of the sandbox.
    #[error("the gateway can not be reached")]
    Unreachable,
    /// The gateway refused the request itself: a bug or a configuration fault.
    #[error("the gateway refused the request with status {0}")]
    Refused(u16),
}

impl From<ExecCode> for ExecFailure {
    fn from(code: ExecCode) -> Self {
        match code {
            ExecCode::SandboxTerminated => Self::Terminated,
            ExecCode::Revoked => Self::Revoked,
            ExecCode::ExecTransport => Self::Transport,
            ExecCode::ExecTimeout => Self::Timeout,
            ExecCode::OutputLimit => Self::OutputLimit,
            ExecCode::Unsupported => Self::Unsupported,
            ExecCode::Busy => Self::Busy,
        }
    }
}

/// What is read beside a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// status.json.
    Status,
    /// Nothing: the log goes on where an answer was cut.
    Rest,
}

/// What a gateway has, beyond the time of the read itself, to say that a sandbox did not answer. One that says nothing by then hangs itself:
/// nothing is known of the sandbox.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);

/// What the dispatcher and the Completer ask of a sandbox. A trait, so that tests can script every failure.
#[async_trait]
pub trait SandboxRpc: Send + Sync {
    /// The turn's log from `offset`, as far as the answer came and there is room.
    async fn read(
        &self,
        target: &ExecTarget,
        reading: Reading,
        turn: TurnNo,
        offset: u64,
        room: Room,
    ) -> ReadAnswer;
    /// Delivers a recorded turn; idempotent by turn number.
    async fn deliver_turn(
        &self,
        target: &ExecTarget,
        turn: TurnNo,
        priming: Option<String>,
    ) -> Result<(), ExecFailure>;
    /// Asks the driver to stop a turn.
    async fn stop(&self, target: &ExecTarget, turn: TurnNo) -> Result<(), ExecFailure>;
}

/// See the module's text. Cheap to clone.
#[derive(Clone)]
pub struct ExecClient {
    http: Client<Connector, Full<Bytes>>,
    url: Uri,
    ring: KeyRing,
}

impl std::fmt::Debug for ExecClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecClient")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl ExecClient {
    /// A client of the exec listener at `base` (`http://host:port`), signing with the exec ring's first key.
    pub fn new(base: &Uri, ring: KeyRing) -> Self {
        Self::connecting(base, ring, None)
    }

    /// The same at `https://host:port`, where each side proves itself.
    pub fn proved(base: &Uri, ring: KeyRing, tls: Arc<ClientTls>) -> Self {
        Self::connecting(base, ring, Some(tls))
    }

    fn connecting(base: &Uri, ring: KeyRing, tls: Option<Arc<ClientTls>>) -> Self {
        let url = format!("{}/v1/exec", base.to_string().trim_end_matches('/'))
            .parse()
            .expect("a path behind a parsed base is a URL");
        Self {
            http: Client::builder(TokioExecutor::new()).build(Connector::new(tls)),
            url,
            ring,
        }
    }

    /// Runs a user's command: the answer's frames as they come, for the caller to pass on. Its end must be checked by whoever
    /// reads it. `subject` is the user.
    ///
    /// # Errors
    /// When the gateway refused before the first frame.
    pub async fn run(
        &self,
        target: &ExecTarget,
        subject: &str,
        argv: Vec<String>,
        stdin: Option<String>,
    ) -> Result<Incoming, ExecFailure> {
        let span = Span::of(&target.session);
        let operation = Operation::Run { argv, stdin };
        let answer = self.call(target, subject, &operation, &span).await;
        // until its first frame: the rest is the caller's to read
        ended(span, &operation, answer.as_ref().err());
        answer
    }

    async fn call(
        &self,
        target: &ExecTarget,
        subject: &str,
        operation: &Operation,
        span: &Span,
    ) -> Result<Incoming, ExecFailure> {
        let body = serde_json::to_vec(operation)
            .expect("an operation is plain data and always serialises");
        let now = jiff::Timestamp::now().as_second();
        let claims = ExecClaims {
            sub: subject.to_owned(),
            ws: target.workspace.clone(),
            ses: Some(target.session.clone()),
            generation: target.generation,
            pod: target.pod.clone(),
            pod_uid: target.pod_uid.clone(),
            ns: target.namespace.clone(),
            container: target.container.clone(),
            op: operation.name(),
            body: sha256_hex(&body),
            iat: now,
            exp: now.saturating_add_unsigned(limits::EXEC_TICKET_TTL.as_secs()),
            jti: random_jti(),
        };
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.url.clone())
            .header(exec::TICKET_HEADER, claims.sign(&self.ring))
            .header(TRACE_HEADER, span.context().to_string())
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .expect("a parsed URL and fixed headers make a request");
        let response = self.http.request(request).await.map_err(|error| {
            // a caller hears only that nothing is known; whose certificate was refused is for who operates this
            tracing::warn!(error = %Chain(&error), "the gateway can not be reached");
            ExecFailure::Unreachable
        })?;
        if response.status() == StatusCode::OK {
            return Ok(response.into_body());
        }
        Err(answer::refusal(response).await)
    }

    async fn command(&self, target: &ExecTarget, operation: Operation) -> Result<(), ExecFailure> {
        let span = Span::of(&target.session);
        let call = async {
            let call = self.call(target, COMPLETER_SUBJECT, &operation, &span);
            answer::read(call.await?).await.end
        };
        let end = tokio::time::timeout(limits::DRIVER_CALL_TIMEOUT, call)
            .await
            .unwrap_or(Err(ExecFailure::Timeout));
        ended(span, &operation, end.as_ref().err());
        end
    }
}

/// The call's span, by its operation.
fn ended(span: Span, operation: &Operation, failure: Option<&ExecFailure>) {
    let result = failure.map_or_else(|| "ok".to_owned(), ToString::to_string);
    let op = operation.name().as_str();
    span.end("exec.call", &[("bex.op", &op), ("bex.result", &result)]);
}

#[async_trait]
impl SandboxRpc for ExecClient {
    async fn read(
        &self,
        target: &ExecTarget,
        reading: Reading,
        turn: TurnNo,
        offset: u64,
        room: Room,
    ) -> ReadAnswer {
        let operation = match reading {
            Reading::Status => Operation::Observe { turn, offset },
            Reading::Rest => Operation::ReadTranscript { turn, offset },
        };
        // a gateway that lives says itself, in time, that a sandbox does not answer
        let deadline = tokio::time::Instant::now() + limits::EXEC_READ_TIMEOUT + ANSWER_MARGIN;
        let span = Span::of(&target.session);
        let call = self.call(target, COMPLETER_SUBJECT, &operation, &span);
        let answer = match tokio::time::timeout_at(deadline, call).await {
            Ok(Ok(body)) => answer::read_until(body, deadline, room).await,
            Ok(Err(failure)) => ReadAnswer::failed(failure),
            Err(_) => ReadAnswer::failed(ExecFailure::Unreachable),
        };
        ended(span, &operation, answer.end.as_ref().err());
        answer
    }

    async fn deliver_turn(
        &self,
        target: &ExecTarget,
        turn: TurnNo,
        priming: Option<String>,
    ) -> Result<(), ExecFailure> {
        self.command(target, Operation::Turn { turn, priming })
            .await
    }

    async fn stop(&self, target: &ExecTarget, turn: TurnNo) -> Result<(), ExecFailure> {
        self.command(target, Operation::Stop { turn }).await
    }
}

#[cfg(test)]
mod tests;
