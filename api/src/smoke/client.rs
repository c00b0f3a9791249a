//! A small client: each request has a connection of its own, answers are bounded, the other side is proved where the URL says https.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bex_proto::limits;
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::auth::Tls;

/// From the look-up of a name to an answer's head.
const ANSWER: Duration = Duration::from_secs(60);

/// See the module's text.
pub(super) struct Client {
    token: String,
    ca: Option<PathBuf>,
}

/// An answer, and the connection it comes by.
pub(super) type Answer = (Response<Incoming>, AbortOnDropHandle<hyper::Result<()>>);

impl Client {
    pub(super) fn new(token: &str, ca: Option<PathBuf>) -> Self {
        Self {
            token: token.to_owned(),
            ca,
        }
    }

    /// A call of the api with a JSON answer, or none.
    pub(super) async fn call(
        &self,
        method: &str,
        url: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        self.json(self.request(method, url, body), url).await
    }

    /// A call that creates; sent again with the same key it would create nothing.
    pub(super) async fn create(&self, url: &str, body: &Value, key: &str) -> anyhow::Result<Value> {
        let request = self
            .request("POST", url, Some(body))
            .header("idempotency-key", key);
        self.json(request, url).await
    }

    fn request(&self, method: &str, url: &str, body: Option<&Value>) -> Outgoing {
        let request = Request::builder()
            .method(method)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json");
        Outgoing {
            head: request,
            url: url.to_owned(),
            body: body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string())),
        }
    }

    async fn json(&self, request: Outgoing, url: &str) -> anyhow::Result<Value> {
        let (answer, _connection) = self.send(request).await.with_context(|| url.to_owned())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), limits::FEED_PAGE_BYTES).collect();
        let body = timeout(ANSWER, body)
            .await
            .context("the answer does not end")?;
        let body = body
            .map_err(|e| anyhow::anyhow!("the answer broke off: {e}"))?
            .to_bytes();
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        if !status.is_success() {
            // a problem's code and title are for callers
            bail!(
                "{url} answered {status} {} {}",
                value["code"],
                value["title"]
            );
        }
        Ok(value)
    }

    /// GET of a stream with its ticket.
    pub(super) async fn stream(&self, url: &str, ticket: &str) -> anyhow::Result<Answer> {
        let head = Request::builder().header(bex_proto::ticket::ATTACH_HEADER, ticket);
        let request = Outgoing {
            head,
            url: url.to_owned(),
            body: Bytes::new(),
        };
        let (answer, connection) = self.send(request).await.with_context(|| url.to_owned())?;
        let code = answer.headers().get("x-bex-error").cloned();
        ensure!(
            answer.status() == StatusCode::OK,
            "{url} answered {} {code:?}",
            answer.status()
        );
        Ok((answer, connection))
    }

    async fn send(&self, request: Outgoing) -> anyhow::Result<Answer> {
        timeout(ANSWER, self.connect_and_send(request))
            .await
            .map_err(|_| anyhow::anyhow!("no answer within {ANSWER:?}"))?
    }

    async fn connect_and_send(&self, request: Outgoing) -> anyhow::Result<Answer> {
        let uri: Uri = request.url.parse().context("not a URL")?;
        let authority = uri.authority().context("the URL names no host")?;
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let tls = match uri.scheme_str() {
            Some("https") => Some(Tls::to(&host, self.ca.as_deref())?),
            Some("http") => None,
            _ => bail!("the URL is neither http nor https"),
        };
        let port = authority
            .port_u16()
            .unwrap_or(if tls.is_some() { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = request
            .head
            .uri(path)
            .header(header::HOST, authority.as_str())
            .header(header::USER_AGENT, "bex-api smoke")
            .body(Full::new(request.body))?;
        let socket = TcpStream::connect((host.as_str(), port)).await?;
        match tls {
            Some(tls) => ask(TokioIo::new(tls.connect(socket).await?), request).await,
            None => ask(TokioIo::new(socket), request).await,
        }
    }
}

struct Outgoing {
    head: http::request::Builder,
    url: String,
    body: Bytes,
}

impl Outgoing {
    fn header(mut self, name: &str, value: &str) -> Self {
        self.head = self.head.header(name, value);
        self
    }
}

async fn ask(
    io: impl Read + Write + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<Answer> {
    let (mut sender, connection) = http1::handshake(io).await?;
    let connection = AbortOnDropHandle::new(tokio::spawn(connection));
    Ok((sender.send_request(request).await?, connection))
}
