//! The answer that lasts: an event stream over HTTP/1.1.
//!
//! hyper keeps a buffer of 8 KiB for reading and one for writing as long as it has a connection, which is more than a viewer who
//! waits for the next event may cost. So an event stream's connection is taken from hyper when its answer begins: the head and
//! the body's frames, each a chunk, are written straight to the socket, and the connection is closed behind the last.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;
use http::{Response, Version};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::ReadHalf;

use crate::BodyError;
use crate::activity::Activity;
use crate::socket::Watched;

/// The chunk behind the last.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Whether the answer to a request of this version is told here.
pub(crate) fn is_one<B>(asked: Version, answer: &Response<B>) -> bool {
    let is_stream = answer
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    // a client of HTTP/1.0 knows no chunks
    asked == Version::HTTP_11 && is_stream && !answer.headers().contains_key(CONTENT_LENGTH)
}

/// Writes the answer to its end, or until the peer leaves or takes nothing for too long.
///
/// # Errors
/// What broke the socket or the body. The reader is not told an end then.
pub(crate) async fn tell<B>(
    mut socket: TcpStream,
    activity: Arc<Activity>,
    answer: Response<B>,
) -> io::Result<()>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError> + Send,
{
    let (mut read, write) = socket.split();
    let mut write = Watched::new(write, activity);
    let (parts, mut body) = answer.into_parts();
    let head = head(parts);
    let telling = pin!(async {
        write.write_all(&head).await?;
        drop(head);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(io::Error::other)?.into_data() else {
                continue;
            };
            // an empty chunk would be the end
            if data.has_remaining() {
                let size = Bytes::from(format!("{:x}\r\n", data.len()));
                let mut chunk = size.chain(data).chain(&b"\r\n"[..]);
                write.write_all_buf(&mut chunk).await?;
            }
        }
        write.write_all(LAST_CHUNK).await?;
        write.shutdown().await
    });
    tokio::select! {
        told = telling => told,
        () = left(&mut read) => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

fn head(parts: Parts) -> Vec<u8> {
    let (code, reason) = (parts.status.as_u16(), parts.status.canonical_reason());
    let date = httpdate::fmt_http_date(SystemTime::now());
    let mut head = format!(
        "HTTP/1.1 {code} {}\r\ndate: {date}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n",
        reason.unwrap_or_default()
    )
    .into_bytes();
    for (name, value) in &parts.headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Until the peer closes its side. What it says instead is read and not heeded: unread, it would make the kernel reset the connection
/// at its end, and the last events be lost with it.
async fn left(read: &mut ReadHalf<'_>) {
    let mut unheeded = [0; 64];
    while read.read(&mut unheeded).await.is_ok_and(|bytes| bytes > 0) {}
}
