//! Which pages may read: an exact list of origins. An origin that is not listed gets no allow header at all.

use std::collections::HashSet;

use bex_proto::problem::CODE_HEADER;
use bex_proto::ticket::ATTACH_HEADER;
use bex_proto::trace::TRACE_HEADER;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ORIGIN,
    VARY,
};
use http::{HeaderMap, HeaderValue};

/// How long a browser may remember a preflight.
const MAX_AGE: &str = "600";

/// The listed origins.
#[derive(Debug, Clone, Default)]
pub struct Cors {
    origins: HashSet<String>,
}

impl Cors {
    /// Origins as browsers write them: `https://app.example`.
    pub fn new(origins: impl IntoIterator<Item = String>) -> Self {
        Self {
            origins: origins.into_iter().collect(),
        }
    }

    /// The headers of an answer to a request with these headers.
    pub fn answer(&self, request: &HeaderMap) -> HeaderMap {
        let mut headers = HeaderMap::new();
        // also for those not listed, so that no cache gives one page's answer to another
        headers.insert(VARY, HeaderValue::from_static("Origin"));
        let Some(origin) = request.get(ORIGIN) else {
            return headers;
        };
        if !origin
            .to_str()
            .is_ok_and(|origin| self.origins.contains(origin))
        {
            return headers;
        }
        let fixed =
            |text: String| HeaderValue::from_str(&text).expect("header names are visible ascii");
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, POST, OPTIONS"),
        );
        headers.insert(
            ACCESS_CONTROL_ALLOW_HEADERS,
            fixed(format!(
                "{ATTACH_HEADER}, content-type, last-event-id, {TRACE_HEADER}"
            )),
        );
        headers.insert(
            ACCESS_CONTROL_ALLOW_CREDENTIALS,
            HeaderValue::from_static("true"),
        );
        headers.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            fixed(format!("x-vercel-ai-ui-message-stream, {CODE_HEADER}")),
        );
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(origin: Option<&'static str>) -> (Option<String>, usize) {
        let cors = Cors::new(["https://app.example".to_owned()]);
        let mut request = HeaderMap::new();
        if let Some(origin) = origin {
            request.insert(ORIGIN, HeaderValue::from_static(origin));
        }
        let headers = cors.answer(&request);
        assert_eq!(
            headers.get(VARY).map(HeaderValue::as_bytes),
            Some(&b"Origin"[..])
        );
        let origin = headers.get(ACCESS_CONTROL_ALLOW_ORIGIN);
        (
            origin.and_then(|o| o.to_str().ok()).map(str::to_owned),
            headers.len(),
        )
    }

    #[test]
    fn only_listed_origins_are_echoed() {
        assert_eq!(
            allowed(Some("https://app.example")),
            (Some("https://app.example".into()), 7)
        );
        for other in [
            None,
            Some("https://app.example.evil"),
            Some("http://app.example"),
            Some("null"),
        ] {
            assert_eq!(allowed(other), (None, 1), "{other:?}");
        }
    }
}
