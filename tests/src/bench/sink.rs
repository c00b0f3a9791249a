//! The one client that everything is measured with: a raw HTTP/1.1 GET that counts and looks, and does nothing else.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(60);

/// What one read-through saw.
pub struct Sunk {
    /// Bytes after the head, chunk framing included.
    pub bytes: u64,
    /// From the request to the byte that reached `enough`.
    pub took: Duration,
}

/// Opens a GET and gives the connection behind its head, with what came of the body.
///
/// # Errors
/// When nothing answers, or not with 200.
pub async fn open(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> anyhow::Result<(TcpStream, Vec<u8>)> {
    let mut stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let mut request = format!("GET {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    loop {
        ensure!(
            stream.read_buf(&mut head).await? > 0,
            "{path}: closed before its head: {}",
            String::from_utf8_lossy(&head)
        );
        if let Some(end) = head.windows(4).position(|w| w == b"\r\n\r\n") {
            ensure!(
                head.starts_with(b"HTTP/1.1 200"),
                "{path}: {}",
                String::from_utf8_lossy(&head)
            );
            return Ok((stream, head.split_off(end + 4)));
        }
    }
}

/// Reads until `enough` bytes came, and says how long it took from the request on.
///
/// # Errors
/// When the answer is no 200, ends before, or takes longer than a minute.
pub async fn drink(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    enough: u64,
) -> anyhow::Result<Sunk> {
    let begun = Instant::now();
    let reading = async {
        let (mut stream, first) = open(to, path, headers).await?;
        let mut bytes = first.len() as u64;
        let mut buffer = vec![0u8; 256 * 1024];
        while bytes < enough {
            let n = stream.read(&mut buffer).await?;
            ensure!(n > 0, "{path}: ended after {bytes} of {enough} bytes");
            bytes += n as u64;
        }
        Ok(Sunk {
            bytes,
            took: begun.elapsed(),
        })
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .with_context(|| format!("{path}: not done in {PATIENCE:?}"))?
}

/// Reads events as they come and gives the instant of each `id: <turn>.<index>` line's index, in order, until `count` came.
///
/// # Errors
/// When one is missing or the stream ends before.
pub async fn arrivals(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    count: usize,
) -> anyhow::Result<Vec<Instant>> {
    numbered(to, path, headers, count, "id: 1.").await
}

/// The same with `id: <index>` lines, of a remote session's events.
///
/// # Errors
/// As [`arrivals`].
pub async fn event_arrivals(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    count: usize,
) -> anyhow::Result<Vec<Instant>> {
    numbered(to, path, headers, count, "id: ").await
}

async fn numbered(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    count: usize,
    before: &str,
) -> anyhow::Result<Vec<Instant>> {
    let (mut stream, mut held) = open(to, path, headers).await?;
    let mut seen = Vec::with_capacity(count);
    loop {
        let now = Instant::now();
        let mut used = 0;
        while let Some(at) = memchr::memmem::find(&held[used..], before.as_bytes()) {
            let start = used + at + before.len();
            let Some(end) = memchr::memchr(b'\n', &held[start..]) else {
                break;
            };
            let index: usize = std::str::from_utf8(&held[start..start + end])?.parse()?;
            ensure!(
                index == seen.len(),
                "part {index} came where {} was due",
                seen.len()
            );
            seen.push(now);
            used = start + end;
        }
        if seen.len() >= count {
            return Ok(seen);
        }
        // keep what may be the beginning of the next id line
        held.drain(..used.max(held.len().saturating_sub(16)).min(held.len()));
        ensure!(
            stream.read_buf(&mut held).await? > 0,
            "{path}: ended after {} of {count} parts",
            seen.len()
        );
    }
}
