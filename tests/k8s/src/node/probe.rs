//! Readiness probes.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One try.
const WAIT: Duration = Duration::from_secs(1);

/// [`answers`], within a bounded time.
pub(super) async fn is_ready(ip: IpAddr, probe: &Value) -> bool {
    let answered = tokio::time::timeout(WAIT, answers(ip, probe)).await;
    answered.unwrap_or(false)
}

/// Whether a readiness probe is satisfied. Without one a running container is ready.
async fn answers(ip: IpAddr, probe: &Value) -> bool {
    let port = |of: &Value| of["port"].as_u64().and_then(|p| u16::try_from(p).ok());
    let (target, path) = match (&probe["httpGet"], &probe["tcpSocket"]) {
        (get, _) if get.is_object() => (port(get), Some(get["path"].as_str().unwrap_or("/"))),
        (_, tcp) if tcp.is_object() => (port(tcp), None),
        _ => return true,
    };
    let Some(target) = target else { return false };
    let Ok(mut socket) = TcpStream::connect((ip, target)).await else {
        return false;
    };
    let Some(path) = path else { return true };
    let request = format!("GET {path} HTTP/1.1\r\nhost: {ip}\r\nconnection: close\r\n\r\n");
    let mut head = [0; 12];
    if socket.write_all(request.as_bytes()).await.is_err()
        || socket.read_exact(&mut head).await.is_err()
    {
        return false;
    }
    // "HTTP/1.1 200"
    matches!(head[9], b'2' | b'3')
}
