//! One connection to one driver: dialled, proved, then used.
//!
//! An address proves nothing: another tenant's sandbox may have it by now. So the first call on every connection is `hello`
//! with a grant, and the answer must prove that the peer holds this sandbox life's key; every later answer must prove it again.
//! Bytes of an unproved peer are never handed on. Redirects are failures. A driver of the old form can prove nothing and gets no
//! grant; the caller knows which one it dials.
//!
//! The caller looks at the target first and passes the address that the look returned.

mod answer;
mod error;
mod stream;

use std::net::SocketAddr;
use std::time::Duration;

use bex_proto::TurnNo;
use bex_proto::driver::{DriverKey, GRANT_HEADER, PROOF_HEADER, StopRequest, TurnRequest};
use bex_proto::ids::PartIndex;
use bex_proto::limits;
use bex_proto::ticket::{DriverGrant, DriverOp, KeyRing, random_jti, turn_digest};
use bex_proto::trace::TRACE_HEADER;
use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use crate::sandbox::TargetRef;

pub use error::{CallError, DialError};
pub use stream::DriverStream;

/// Making a connection: a sandbox is in the same data centre or on the same machine.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// All headers of one answer. A driver sends a handful of short ones.
pub const ANSWER_HEADER_BYTES: usize = 16 * 1024;
/// See [`ANSWER_HEADER_BYTES`].
pub const ANSWER_HEADERS: usize = 32;
/// What is read from the socket at once, and so the largest piece of a stream.
pub const READ_BUFFER_BYTES: usize = 128 * 1024;
/// Grants carry whole seconds and a restarted driver refuses those from before its start, so a refused hello is said once
/// more, with a grant of a later second.
pub const GRANT_RETRY_AFTER: Duration = Duration::from_millis(1100);

/// An open, proved connection. Dropping it closes the socket.
pub struct DriverConnection {
    sender: SendRequest<Full<Bytes>>,
    socket: SocketTask,
    authority: String,
    target: TargetRef,
    /// `None` for a driver of the old form.
    key: Option<DriverKey>,
}

impl std::fmt::Debug for DriverConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DriverConnection")
            .field("session", &self.target.session)
            .field("generation", &self.target.generation)
            .finish_non_exhaustive()
    }
}

/// The task that moves a connection's bytes; ends with its owner.
type SocketTask = AbortOnDropHandle<()>;

impl DriverConnection {
    /// Connects and proves the peer.
    ///
    /// # Errors
    /// See [`DialError`]; every one leaves no connection behind.
    pub async fn open(
        address: SocketAddr,
        target: &TargetRef,
        ring: &KeyRing,
    ) -> Result<Self, DialError> {
        let key = driver_key(target, ring)?;
        match Self::dial(address, target, key.clone()).await {
            Err(DialError::Hello(CallError::GrantRefused)) => {
                tokio::time::sleep(GRANT_RETRY_AFTER).await;
                Self::dial(address, target, key).await
            }
            done => done,
        }
    }

    async fn dial(
        address: SocketAddr,
        target: &TargetRef,
        key: Option<DriverKey>,
    ) -> Result<Self, DialError> {
        let socket = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address))
            .await
            .map_err(|_| DialError::ConnectTimeout)?
            .map_err(DialError::Connect)?;
        socket.set_nodelay(true).map_err(DialError::Connect)?;
        let (sender, connection) = http1::Builder::new()
            .max_headers(ANSWER_HEADERS)
            .max_header_size(ANSWER_HEADER_BYTES)
            .max_buf_size(READ_BUFFER_BYTES)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(DialError::Handshake)?;
        // its error reaches whoever waits for an answer or reads a body
        let task = tokio::spawn(async move { drop(connection.await) });
        let mut connection = Self {
            sender,
            socket: SocketTask::new(task),
            authority: address.to_string(),
            target: target.clone(),
            key,
        };
        if connection.key.is_some() {
            connection.hello().await.map_err(DialError::Hello)?;
        }
        Ok(connection)
    }

    async fn hello(&mut self) -> Result<(), CallError> {
        let call = Call::new(Method::GET, "/hello".into(), DriverOp::Hello);
        self.call_and_drain(call).await
    }

    /// Opens the parts of `turn` from index `from` on. A driver of the old form streams its one turn from its start.
    ///
    /// # Errors
    /// [`CallError::NotSpoken`] when this generation will not speak that turn; else see [`CallError`].
    pub async fn stream(
        mut self,
        turn: TurnNo,
        from: PartIndex,
    ) -> Result<DriverStream, CallError> {
        let path = match self.key {
            Some(_) => format!("/stream?turn={turn}&from={from}"),
            None => "/stream".to_owned(),
        };
        let call = Call {
            turn: Some(turn),
            ..Call::new(Method::GET, path, DriverOp::Stream)
        };
        let response = self.call(call).await?;
        Ok(DriverStream::new(response.into_body(), self.socket))
    }

    /// Hands a turn over. Repeating it is safe: a driver knows its turns by number.
    ///
    /// # Errors
    /// [`CallError::Busy`] while another turn runs or when the turn is older than the last one; else see [`CallError`].
    pub async fn turn(&mut self, request: &TurnRequest) -> Result<(), CallError> {
        let call = Call {
            turn: Some(request.turn),
            digest: Some(turn_digest(&request.prompt, request.priming.as_deref())),
            body: Bytes::from(serde_json::to_vec(request).expect("a turn request is plain data")),
            ..Call::new(Method::POST, "/turn".into(), DriverOp::Turn)
        };
        self.call_and_drain(call).await
    }

    /// Asks the driver to stop a turn.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn stop(&mut self, turn: TurnNo) -> Result<(), CallError> {
        let body = serde_json::to_vec(&StopRequest { turn }).expect("a stop request is plain data");
        let call = Call {
            turn: Some(turn),
            body: Bytes::from(body),
            ..Call::new(Method::POST, "/stop".into(), DriverOp::Stop)
        };
        self.call_and_drain(call).await
    }

    /// A call whose answer's body says nothing; it is read so that the connection can be used again.
    async fn call_and_drain(&mut self, call: Call) -> Result<(), CallError> {
        let work = async {
            let response = self.exchange(call).await?;
            answer::drain(response.into_body()).await
        };
        tokio::time::timeout(limits::DRIVER_CALL_TIMEOUT, work)
            .await
            .map_err(|_| CallError::Timeout)?
    }

    async fn call(&mut self, call: Call) -> Result<Response<Incoming>, CallError> {
        tokio::time::timeout(limits::DRIVER_CALL_TIMEOUT, self.exchange(call))
            .await
            .map_err(|_| CallError::Timeout)?
    }

    async fn exchange(&mut self, call: Call) -> Result<Response<Incoming>, CallError> {
        let mut request = Request::builder()
            .method(call.method)
            .uri(call.path)
            .header(header::HOST, &self.authority);
        if !call.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(context) = bex_telemetry::current() {
            request = request.header(TRACE_HEADER, context.to_string());
        }
        let jti = random_jti();
        if let Some(key) = &self.key {
            let now = jiff::Timestamp::now().as_second();
            let grant = DriverGrant {
                op: call.op,
                trn: call.turn,
                body: call.digest,
                iat: now,
                exp: now + limits::GRANT_TTL.as_secs() as i64,
                jti: jti.clone(),
            };
            request = request.header(GRANT_HEADER, grant.sign(key));
        }
        let request = request
            .body(Full::new(call.body))
            .expect("paths, addresses and tokens are plain ascii");
        self.sender.ready().await.map_err(CallError::Transport)?;
        let response = self
            .sender
            .send_request(request)
            .await
            .map_err(CallError::Transport)?;
        self.check(&jti, &response)?;
        Ok(response)
    }

    /// The proof is asked for before the status is believed; only a refused grant needs none, as it says nothing but "no".
    fn check(&self, jti: &str, response: &Response<Incoming>) -> Result<(), CallError> {
        let status = response.status();
        if status.is_redirection() {
            return Err(CallError::Redirected(status.as_u16()));
        }
        if status.as_u16() == 401 {
            return Err(CallError::GrantRefused);
        }
        if let Some(key) = &self.key {
            let proof = response
                .headers()
                .get(PROOF_HEADER)
                .and_then(|v| v.to_str().ok());
            let target = &self.target;
            if !proof.is_some_and(|p| key.verify_proof(p, jti, &target.session, target.generation))
            {
                return Err(CallError::Unproved);
            }
        }
        answer::outcome(status)
    }
}

/// One request, before it is granted.
struct Call {
    method: Method,
    path: String,
    op: DriverOp,
    turn: Option<TurnNo>,
    digest: Option<String>,
    body: Bytes,
}

impl Call {
    fn new(method: Method, path: String, op: DriverOp) -> Self {
        Self {
            method,
            path,
            op,
            turn: None,
            digest: None,
            body: Bytes::new(),
        }
    }
}

fn driver_key(target: &TargetRef, ring: &KeyRing) -> Result<Option<DriverKey>, DialError> {
    if target.legacy {
        return Ok(None);
    }
    let ring_key = ring
        .key(&target.driver_kid)
        .ok_or_else(|| DialError::UnknownKey(target.driver_kid.clone()))?;
    Ok(Some(DriverKey::derive(
        ring_key,
        &target.session,
        target.generation,
    )))
}
