//! Objects of the local store, by the URLs that this process signed. Whoever has one needs no token; each fetch is written down.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::Chain;
use bex_proto::problem::Code;
use bex_store::audit::AuditEvent;
use http::{HeaderValue, Method, header};
use jiff::Timestamp;
use tokio_util::io::ReaderStream;

use crate::http::extract::{Params, Segments};
use crate::http::{Api, ApiError};
use crate::metrics::FetchResult;
use crate::package::{LocalObjects, ObjectKey, Objects, UrlRefused};

/// Who fetched, as far as is known: whoever had the URL.
const SUBJECT: &str = "signed-url";

/// `GET /replay/objects/{org}/{of}/{file}`
pub async fn fetch(
    State(api): State<Arc<Api>>,
    method: Method,
    Segments((org, of, file)): Segments<(String, String, String)>,
    params: Params,
) -> Result<Response, ApiError> {
    // a URL is signed for GET; the router would answer HEAD too
    if method != Method::GET {
        return Err(Code::MethodNotAllowed.into());
    }
    let packager = api.packages.clone().ok_or(Code::NotConfigured)?;
    let Objects::Local(objects) = packager.objects() else {
        return Err(Code::NotFound.into());
    };
    let given = given(&api, objects, &format!("{org}/{of}/{file}"), params).await;
    packager.metrics().fetched(match &given {
        Ok(_) => FetchResult::Given,
        Err(error) => match error.code() {
            Code::UrlInvalid => FetchResult::Refused,
            Code::NotFound => FetchResult::Gone,
            _ => FetchResult::Failed,
        },
    });
    given
}

async fn given(
    api: &Api,
    objects: &LocalObjects,
    key: &str,
    params: Params,
) -> Result<Response, ApiError> {
    let key = good(objects, key, params).map_err(|_| Code::UrlInvalid)?;
    let found = objects.get(&key).await.map_err(|error| {
        tracing::error!(error = %Chain(&error), %key, "a package could not be read");
        ApiError::from(Code::Internal)
    })?;
    let (file, bytes) = found.ok_or(Code::NotFound)?;
    let workspace = key.workspace();
    let event = AuditEvent {
        workspace: &workspace,
        subject: SUBJECT,
        action: "package.fetch",
        session: None,
        result: "ok",
        detail: Some(key.as_str()),
    };
    // nothing is given that nobody wrote down
    api.db.audit_event(&event).await?;
    let name = key.as_str().rsplit('/').next().unwrap_or_default();
    let name = format!("attachment; filename=\"{name}\"");
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        ),
        (header::CONTENT_LENGTH, HeaderValue::from(bytes)),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::try_from(name).expect("an id is a valid header"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
    ];
    let body = Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
    Ok((headers, body).into_response())
}

/// The key of a URL that is good. What is wrong with another is nobody's to know.
fn good(objects: &LocalObjects, key: &str, mut params: Params) -> Result<ObjectKey, UrlRefused> {
    let key: ObjectKey = key.parse().map_err(|_| UrlRefused)?;
    let mut one = |name: &str| params.one(name).ok().flatten().ok_or(UrlRefused);
    let (expires, kid, signature) = (one("expires")?, one("kid")?, one("signature")?);
    params.done().map_err(|_| UrlRefused)?;
    let expires = expires.parse().map_err(|_| UrlRefused)?;
    objects.verify(&key, (expires, &kid, &signature), Timestamp::now())?;
    Ok(key)
}
