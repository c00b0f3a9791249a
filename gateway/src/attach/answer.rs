//! The attach listener's path and what its answers look like.

use bex_proto::problem::{CODE_HEADER, Code};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::serve::{ResponseBody, empty, full};

/// The id in `/v1/agent-sessions/{id}/stream`.
pub(super) fn session_of(path: &str) -> Option<&str> {
    let id = path
        .strip_prefix("/v1/agent-sessions/")?
        .strip_suffix("/stream")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

/// Every header of every event stream of an agent's session.
pub(super) fn stream_headers() -> HeaderMap {
    let mut headers = event_headers();
    headers.insert(
        http::HeaderName::from_static("x-vercel-ai-ui-message-stream"),
        HeaderValue::from_static("v1"),
    );
    headers
}

/// Those of a remote session's: no AI SDK reads it.
pub(super) fn event_headers() -> HeaderMap {
    let fixed = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache, no-transform"),
        (http::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    fixed
        .into_iter()
        .map(|(name, value)| (name, HeaderValue::from_static(value)))
        .collect()
}

/// One line of text: an AI SDK page shows it to its user. `methods` are those served there.
pub(super) fn refusal(code: Code, methods: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(full(format!("{}\n", code.title())));
    *response.status_mut() =
        StatusCode::from_u16(code.status()).expect("every code's status is a valid one");
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CODE_HEADER, HeaderValue::from_static(code.as_str()));
    if code == Code::MethodNotAllowed {
        headers.insert(ALLOW, HeaderValue::from_static(methods));
    }
    response
}

pub(super) fn bare(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(empty());
    *response.status_mut() = status;
    response
}
