//! The dashboard's files under `/ui`. They are read once, at start; what is asked for is a key of a map and never a path of this machine.

mod files;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use bex_proto::problem::Code;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};

use super::ApiError;
use files::{File, Files};

pub use files::UiFault;

const ROOT: &str = "/ui/";
const PAGE: &str = "index.html";
/// Files below it carry their content's hash in their name.
const HASHED: &str = "assets/";

/// The built dashboard.
#[derive(Debug)]
pub struct Ui {
    files: Files,
    policy: HeaderValue,
}

impl Ui {
    /// Reads a directory that `make dashboard` built. `streams` is what every `streamUrl` begins with: the only other origin that
    /// the page may speak to.
    ///
    /// # Errors
    /// When the directory cannot be read, is too large, or has no page.
    pub fn load(dir: &std::path::Path, streams: &str) -> Result<Self, UiFault> {
        let files = Files::read(dir)?;
        if files.get(PAGE).is_none() {
            return Err(UiFault::NoPage);
        }
        let policy = policy(streams).ok_or(UiFault::Origin)?;
        Ok(Self { files, policy })
    }

    fn answer(&self, path: &str, request: &HeaderMap) -> Result<Response, ApiError> {
        let (file, caching) = match self.files.get(path) {
            Some(file) if path.starts_with(HASHED) => (file, "public, max-age=31536000, immutable"),
            Some(file) => (file, "no-cache"),
            // what the page itself calls a place; names of files have a dot
            None if !path.starts_with(HASHED) && !path.contains('.') => {
                (self.files.get(PAGE).ok_or(Code::NotFound)?, "no-cache")
            }
            None => return Err(Code::NotFound.into()),
        };
        let mut response = content(file, request);
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
        headers.insert(header::ETAG, file.tag.clone());
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        headers.insert(header::CONTENT_SECURITY_POLICY, self.policy.clone());
        for (name, value) in GUARDS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        Ok(response)
    }
}

const GUARDS: [(HeaderName, &str); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=()",
    ),
];

/// Scripts and styles only as files of this server, requests only to it and to the gateway, nothing from anywhere else.
fn policy(streams: &str) -> Option<HeaderValue> {
    let uri: Uri = streams.parse().ok()?;
    let origin = format!("{}://{}", uri.scheme_str()?, uri.authority()?);
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src data: blob:; \
         connect-src 'self' {origin}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'"
    );
    HeaderValue::from_str(&policy).ok()
}

fn content(file: &File, request: &HeaderMap) -> Response {
    let known = request.get(header::IF_NONE_MATCH);
    if known.is_some_and(|tags| has(tags, &file.tag)) {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    let packed = file.packed.as_ref().filter(|_| takes_gzip(request));
    let body: Bytes = packed.unwrap_or(&file.bytes).clone();
    let mut response = ([(header::CONTENT_TYPE, file.kind)], body).into_response();
    if packed.is_some() {
        response
            .headers_mut()
            .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// Whether a list of tags has this one; proxies may have made it weak.
fn has(tags: &HeaderValue, tag: &HeaderValue) -> bool {
    let (Ok(tags), Ok(tag)) = (tags.to_str(), tag.to_str()) else {
        return false;
    };
    tags.split(',')
        .map(|known| known.trim().trim_start_matches("W/"))
        .any(|known| known == tag || known == "*")
}

fn takes_gzip(request: &HeaderMap) -> bool {
    let accepted = request.get(header::ACCEPT_ENCODING);
    accepted
        .and_then(|value| value.to_str().ok())
        .is_some_and(|codings| {
            codings.split(',').any(|coding| {
                let mut words = coding.split(';').map(str::trim);
                let refused = |word: &str| matches!(word, "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
                words.next() == Some("gzip") && !words.any(refused)
            })
        })
}

/// Routes of a deployment's dashboard; none where it has none.
pub(super) fn routes(ui: Option<Ui>) -> Router {
    let Some(ui) = ui else {
        return Router::new();
    };
    Router::new()
        .route("/", get(|| async { Redirect::temporary(ROOT) }))
        .route("/ui", get(|| async { Redirect::permanent(ROOT) }))
        .route("/ui/", get(file))
        .route("/ui/{*path}", get(file))
        .with_state(Arc::new(ui))
}

async fn file(
    State(ui): State<Arc<Ui>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    // as it was sent: nothing is decoded, so that nothing can mean something else
    let path = uri.path().strip_prefix(ROOT).unwrap_or_default();
    let path = if path.is_empty() { PAGE } else { path };
    ui.answer(path, &headers)
}
