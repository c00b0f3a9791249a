//! One way to the service: a connection that is kept, the token, and what an answer means.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::arguments::{Config, ConfigFault};
use super::backoff::Backoff;
use super::endpoint::Endpoint;
use super::fault::Fault;

/// How often the machine says that it is there.
pub const HEARTBEAT: Duration = Duration::from_secs(30);
/// From the look-up of the host's name to a proved connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// From a request's first byte to its answer's last one: a full batch on a slow line.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// An answer: fifty commands with the longest chats fit.
const ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// The machine's token. It is printed nowhere.
pub struct Token {
    file: Option<PathBuf>,
    header: Mutex<HeaderValue>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// A token that never changes.
    ///
    /// # Errors
    /// When no token looks so.
    pub fn new(text: &str) -> Result<Self, ConfigFault> {
        Ok(Self {
            file: None,
            header: Mutex::new(bearer(text)?),
        })
    }

    /// One from a file, which is read again when the service refuses it: it may have been rotated.
    ///
    /// # Errors
    /// When the file cannot be read or holds none.
    pub fn read(file: PathBuf) -> Result<Self, ConfigFault> {
        let text = std::fs::read_to_string(&file).map_err(ConfigFault::TokenFile)?;
        Ok(Self {
            header: Mutex::new(bearer(&text)?),
            file: Some(file),
        })
    }

    fn header(&self) -> HeaderValue {
        self.lock().clone()
    }

    /// Whether there is another one now than `refused`.
    fn is_renewed(&self, refused: &HeaderValue) -> bool {
        let read = self
            .file
            .as_ref()
            .and_then(|file| std::fs::read_to_string(file).ok());
        if let Some(Ok(read)) = read.map(|text| bearer(&text)) {
            *self.lock() = read;
        }
        *self.lock() != refused
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HeaderValue> {
        self.header.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bearer(text: &str) -> Result<HeaderValue, ConfigFault> {
    let text = text.trim();
    if text.is_empty() {
        return Err(ConfigFault::Token);
    }
    let mut header =
        HeaderValue::try_from(format!("Bearer {text}")).map_err(|_| ConfigFault::Token)?;
    header.set_sensitive(true);
    Ok(header)
}

/// A request. All of ours may be repeated.
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    path: String,
    kind: &'static str,
    body: Bytes,
    wait: Duration,
}

impl Call {
    /// A JSON document.
    pub fn post(path: &str, body: String) -> Self {
        Self {
            method: Method::POST,
            path: path.to_owned(),
            kind: "application/json",
            body: body.into(),
            wait: CALL_TIMEOUT,
        }
    }

    /// Lines.
    pub fn lines(path: &str, body: Bytes) -> Self {
        Self {
            kind: "application/x-ndjson",
            body,
            ..Self::post(path, String::new())
        }
    }

    /// A read that may take so long before anything is answered.
    pub fn get(path: &str, wait: Duration) -> Self {
        Self {
            method: Method::GET,
            wait: CALL_TIMEOUT + wait,
            ..Self::post(path, String::new())
        }
    }
}

/// Why there is no answer, or none that helps.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// No connection.
    #[error("no connection")]
    Connect(#[source] io::Error),
    /// It broke.
    #[error("no answer")]
    Http(#[source] hyper::Error),
    /// The answer broke off.
    #[error("the answer broke off")]
    Body,
    /// Out of time.
    #[error("no answer in time")]
    Timeout,
    /// Not now.
    #[error("the service answers {status}")]
    Later {
        /// Its status.
        status: StatusCode,
        /// When it wants to be asked again.
        after: Option<Duration>,
    },
    /// Not ever.
    #[error(transparent)]
    Fault(Fault),
}

impl Trouble {
    /// What does not pass by itself.
    pub fn fault(self) -> Option<Fault> {
        match self {
            Self::Fault(fault) => Some(fault),
            _ => None,
        }
    }

    /// When the service wants to be asked again.
    pub fn after(&self) -> Option<Duration> {
        match self {
            Self::Later { after, .. } => *after,
            _ => None,
        }
    }
}

/// The way to the service; each task has a [`Link`] of its own.
#[derive(Debug, Clone)]
pub struct Client {
    endpoint: Arc<Endpoint>,
    token: Arc<Token>,
}

impl Client {
    /// Takes address and token of a configuration.
    pub fn new(config: &Config) -> Self {
        Self {
            endpoint: Arc::clone(&config.endpoint),
            token: Arc::clone(&config.token),
        }
    }

    /// A connection that is made when it is needed.
    pub fn link(&self) -> Link {
        Link {
            client: self.clone(),
            open: None,
            backoff: Backoff::default(),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Link {
    client: Client,
    open: Option<Open>,
    backoff: Backoff,
}

#[derive(Debug)]
struct Open {
    sender: SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<()>,
}

impl Link {
    /// Asks until there is an answer. What is asked again waits longer each time, up to 30 s.
    ///
    /// # Errors
    /// What does not pass by itself.
    pub async fn post(&mut self, call: &Call) -> Result<Bytes, Fault> {
        loop {
            match self.ask(call).await {
                Ok(body) => {
                    if !self.backoff.is_fresh() {
                        info!(path = call.path, "the service answers again");
                    }
                    self.backoff.reset();
                    return Ok(body);
                }
                Err(Trouble::Fault(fault)) => return Err(fault),
                Err(trouble) => self.pause(&trouble, &call.path).await,
            }
        }
    }

    /// Waits before the next try; the first of a row is told.
    pub async fn pause(&mut self, trouble: &Trouble, path: &str) {
        let fresh = self.backoff.is_fresh();
        let wait = self.backoff.next(trouble.after());
        if fresh {
            warn!(error = %bex_proto::Chain(trouble), path, "the service is asked again until it answers");
        }
        sleep(wait).await;
    }

    /// Something worked.
    pub fn worked(&mut self) {
        self.backoff.reset();
    }

    /// Asks once; a token that was rotated meanwhile, and a connection that was closed meanwhile, do not count.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub async fn ask(&mut self, call: &Call) -> Result<Bytes, Trouble> {
        let token = self.client.token.header();
        let answer = self.answer(call, token.clone()).await?;
        if answer.status == StatusCode::UNAUTHORIZED && self.client.token.is_renewed(&token) {
            let token = self.client.token.header();
            return self.answer(call, token).await?.meaning();
        }
        answer.meaning()
    }

    async fn answer(&mut self, call: &Call, token: HeaderValue) -> Result<Answer, Trouble> {
        let reused = self.open.is_some();
        match self.timed(call, token.clone()).await {
            Err(Trouble::Http(_)) if reused => self.timed(call, token).await,
            answered => answered,
        }
    }

    async fn timed(&mut self, call: &Call, token: HeaderValue) -> Result<Answer, Trouble> {
        // taken: what does not come to its end is not used again
        let open = match self.open.take() {
            Some(open) if !open.sender.is_closed() => open,
            _ => self.connect().await?,
        };
        let (answer, open) = timeout(call.wait, self.exchange(call, token, open))
            .await
            .map_err(|_| Trouble::Timeout)??;
        self.open = Some(open);
        Ok(answer)
    }

    async fn connect(&self) -> Result<Open, Trouble> {
        let io = timeout(CONNECT_TIMEOUT, self.client.endpoint.connect())
            .await
            .map_err(|_| Trouble::Timeout)?
            .map_err(Trouble::Connect)?;
        let (sender, connection) = http1::handshake(TokioIo::new(io))
            .await
            .map_err(Trouble::Http)?;
        let driver = tokio::spawn(async move {
            // what breaks here is told to whoever waits for an answer
            let _ = connection.await;
        });
        Ok(Open {
            sender,
            _driver: AbortOnDropHandle::new(driver),
        })
    }

    async fn exchange(
        &self,
        call: &Call,
        token: HeaderValue,
        mut open: Open,
    ) -> Result<(Answer, Open), Trouble> {
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = self.client.endpoint.target(&call.path);
        let headers = request.headers_mut();
        headers.insert(HOST, self.client.endpoint.authority().clone());
        headers.insert(AUTHORIZATION, token);
        headers.insert(USER_AGENT, HeaderValue::from_static("bex-driver"));
        if call.method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(call.kind));
        }
        open.sender.ready().await.map_err(Trouble::Http)?;
        let answer = open
            .sender
            .send_request(request)
            .await
            .map_err(Trouble::Http)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await;
        let after = head.headers.get(RETRY_AFTER);
        let after = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let answer = Answer {
            status: head.status,
            after: after.map(Duration::from_secs),
            body: body.map_err(|_| Trouble::Body)?.to_bytes(),
        };
        Ok((answer, open))
    }
}

struct Answer {
    status: StatusCode,
    after: Option<Duration>,
    body: Bytes,
}

/// What is read of a problem document.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Problem {
    code: String,
    event_index: Option<u64>,
    next_event_index: Option<u64>,
}

impl Answer {
    fn meaning(self) -> Result<Bytes, Trouble> {
        let status = self.status;
        if status.is_success() {
            return Ok(self.body);
        }
        let later = Trouble::Later {
            status,
            after: self.after,
        };
        if status.is_server_error()
            || status == StatusCode::TOO_MANY_REQUESTS
            || status == StatusCode::REQUEST_TIMEOUT
        {
            return Err(later);
        }
        // what stands before the service may say anything while the service is being replaced
        let Ok(problem) = serde_json::from_slice::<Problem>(&self.body) else {
            return Err(later);
        };
        Err(Trouble::Fault(match problem.code.as_str() {
            "unauthenticated" => Fault::Unauthenticated,
            "not_found" => Fault::NotFound,
            "session_ended" => Fault::SessionEnded,
            "log_full" => Fault::LogFull,
            "event_conflict" => Fault::EventConflict(problem.event_index.unwrap_or_default()),
            "event_too_far" => Fault::TooFar(problem.next_event_index.unwrap_or_default()),
            _ => Fault::Refused {
                status,
                code: problem.code,
            },
        }))
    }
}
