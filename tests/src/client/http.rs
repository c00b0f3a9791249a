//! One request over one connection: no pool, so nothing is shared between a test's steps.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The longest an answer's head or whole small body takes.
pub const PATIENCE: Duration = Duration::from_secs(45);
/// The largest answer read as a whole: a feed page of 4 MiB in JSON escapes, with room.
pub const ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// Sends a request and gives the answer's head; its body is read by the caller, or not.
///
/// # Errors
/// When the connection fails or nothing answers within [`PATIENCE`].
pub async fn send(
    to: SocketAddr,
    mut request: Request<Full<Bytes>>,
) -> anyhow::Result<Response<Incoming>> {
    if !request.headers().contains_key(http::header::HOST) {
        request
            .headers_mut()
            .insert(http::header::HOST, to.to_string().parse()?);
    }
    let answer = async {
        let stream = TcpStream::connect(to).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // ends with the response's body, or with the connection
        tokio::spawn(connection);
        Ok::<_, anyhow::Error>(sender.send_request(request).await?)
    };
    tokio::time::timeout(PATIENCE, answer)
        .await
        .with_context(|| format!("no answer from {to} within {PATIENCE:?}"))?
}

/// Sends a request and reads the whole answer.
///
/// # Errors
/// As [`send`], or when the body breaks, is over [`ANSWER_BYTES`], or takes longer than [`PATIENCE`].
pub async fn fetch(
    to: SocketAddr,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<Response<Bytes>> {
    let (head, body) = send(to, request).await?.into_parts();
    let body = tokio::time::timeout(PATIENCE, Limited::new(body, ANSWER_BYTES).collect())
        .await
        .context("the answer's body did not end")?
        .map_err(|e| anyhow::anyhow!("the answer's body broke: {e}"))?
        .to_bytes();
    Ok(Response::from_parts(head, body))
}
