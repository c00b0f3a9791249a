//! The exec request, up to the upgraded connection.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::channel::{READ_BUFFER_BYTES, SERVER_MESSAGE_BYTES};
use crate::sandbox::TargetRef;

/// Every release has one of them; the newer one is taken where both are known. They differ in how standard input can be closed alone,
/// which is never done here.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// What is read of a refusal.
const REFUSAL_BYTES: usize = 64 * 1024;
/// A client's frames are small but for the request; nothing is gained by gathering them.
const WRITE_BUFFER_BYTES: usize = 0;

pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Why nothing was upgraded. No text of the cluster is kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// 403 without a body: neither of our subprotocols.
    #[error("the subprotocol is refused")]
    Subprotocol,
    /// 403 with a status.
    #[error("{0} is lacking")]
    Forbidden(Lacking),
    /// 401.
    #[error("the credentials are refused")]
    Unauthorized,
    /// 404.
    #[error("the pod is not found")]
    NotFound,
    /// Anything else, as a 500 for a container that does not run.
    #[error("the API server answered {0}")]
    Status(StatusCode),
    /// A 101 that is not the answer to our request.
    #[error("the API server's upgrade is not one to a known subprotocol")]
    Malformed,
    /// No connection, or it broke.
    #[error("the API server cannot be reached")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No answer in time.
    #[error("the API server did not answer in time")]
    Late,
}

/// The verb on pods/exec that the gateway was not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lacking {
    Get,
    /// Asked for from 1.35 on; the refusal then has no reason.
    Create,
}

impl std::fmt::Display for Lacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Get => "get on pods/exec",
            Self::Create => "create on pods/exec",
        })
    }
}

/// Asks for a process `argv` with standard input and output; the caller bounds the time.
pub(super) async fn open(
    client: &Client,
    target: &TargetRef,
    argv: &[String],
) -> Result<Socket, Refused> {
    let key = generate_key();
    let request = request(target, argv, &key);
    let mut response = client
        .send(request)
        .await
        .map_err(|e| Refused::Transport(e.into()))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refusal(response).await);
    }
    if !is_answer(response.headers(), &key) {
        return Err(Refused::Malformed);
    }
    let upgraded = hyper::upgrade::on(&mut response)
        .await
        .map_err(|e| Refused::Transport(e.into()))?;
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(Some(SERVER_MESSAGE_BYTES))
        .max_frame_size(Some(SERVER_MESSAGE_BYTES));
    Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(config)).await)
}

fn request(target: &TargetRef, argv: &[String], key: &str) -> Request<Body> {
    let mut uri = format!(
        "/api/v1/namespaces/{}/pods/{}/exec?container={}&stdin=true&stdout=true",
        encode(&target.namespace),
        encode(&target.pod),
        encode(&target.container)
    );
    for word in argv {
        uri.push_str("&command=");
        uri.push_str(&encode(word));
    }
    Request::get(uri)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, key)
        // one header: of several only the first would be read
        .header(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOLS.join(", "))
        .body(Body::empty())
        .expect("everything is percent-encoded")
}

/// Percent-encodes all but RFC 3986's unreserved characters.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn is_answer(headers: &HeaderMap, key: &str) -> bool {
    let word = |name: header::HeaderName| {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
    };
    word(header::UPGRADE).eq_ignore_ascii_case("websocket")
        && headers.get(header::SEC_WEBSOCKET_ACCEPT)
            == HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
                .ok()
                .as_ref()
        && PROTOCOLS.contains(&word(header::SEC_WEBSOCKET_PROTOCOL))
}

#[derive(Deserialize)]
struct Status {
    reason: Option<String>,
    message: Option<String>,
}

async fn refusal(response: Response<Body>) -> Refused {
    let status = response.status();
    let body = Limited::new(response.into_body(), REFUSAL_BYTES)
        .collect()
        .await;
    let body = body.map(http_body_util::Collected::to_bytes).ok();
    match status {
        StatusCode::FORBIDDEN => forbidden(body.as_ref()),
        StatusCode::UNAUTHORIZED => Refused::Unauthorized,
        StatusCode::NOT_FOUND => Refused::NotFound,
        other => Refused::Status(other),
    }
}

/// Two faults with one code: what has no body is about the subprotocol, what has a status is about rights.
fn forbidden(body: Option<&Bytes>) -> Refused {
    let Some(body) = body else {
        return Refused::Status(StatusCode::FORBIDDEN);
    };
    if body.is_empty() {
        return Refused::Subprotocol;
    }
    match serde_json::from_slice::<Status>(body) {
        Ok(status) if status.reason.as_deref() == Some("Forbidden") => {
            let has_no_reason = status
                .message
                .is_some_and(|m| m.trim_end().ends_with("is forbidden:"));
            Refused::Forbidden(if has_no_reason {
                Lacking::Create
            } else {
                Lacking::Get
            })
        }
        _ => Refused::Status(StatusCode::FORBIDDEN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_403_is_read_for_what_it_is() {
        let read = |body: &'static str| forbidden(Some(&Bytes::from_static(body.as_bytes())));
        assert!(matches!(read(""), Refused::Subprotocol));
        let get_only = r#"{"kind":"Status","status":"Failure","message":"pods \"run\" is forbidden: ","reason":"Forbidden","code":403}"#;
        assert!(matches!(
            read(get_only),
            Refused::Forbidden(Lacking::Create)
        ));
        let create_only = r#"{"kind":"Status","message":"pods \"run\" is forbidden: User \"x\" cannot get resource \"pods/exec\"","reason":"Forbidden"}"#;
        assert!(matches!(
            read(create_only),
            Refused::Forbidden(Lacking::Get)
        ));
        assert!(
            matches!(read("<html>"), Refused::Status(StatusCode::FORBIDDEN)),
            "a proxy's"
        );
        assert!(matches!(
            forbidden(None),
            Refused::Status(StatusCode::FORBIDDEN)
        ));
    }

    #[test]
    fn argv_is_encoded_word_by_word() {
        assert_eq!(
            encode("/opt/a b&c=d+\n%ä"),
            "%2Fopt%2Fa%20b%26c%3Dd%2B%0A%25%C3%A4"
        );
    }
}
