//! `GET /v1/agent-sessions/{id}/export`: a session as a file.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::problem::Code;
use http::{HeaderValue, header};

use super::extract::{Params, Segments};
use super::{Api, ApiError};
use crate::auth::Caller;
use crate::export::Format;

/// When a place for another export may be free.
const RETRY_SECONDS: u32 = 5;

/// The handler. What is written breaks off when the session is deleted meanwhile: the answer then does not end.
pub async fn read(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    mut params: Params,
) -> Result<Response, ApiError> {
    let session = api.session_of(&caller, &id).await?;
    let format = match params.one("format")?.as_deref() {
        None => Format::Jsonl,
        Some(word) => Format::parse(word)
            .ok_or_else(|| ApiError::invalid("format must be jsonl, markdown or ui-messages"))?,
    };
    params.done()?;
    let name = format!(
        "attachment; filename=\"{}.{}\"",
        session.id,
        format.extension()
    );
    let name = HeaderValue::try_from(name).expect("an id is a valid header");
    let row = session.clone();
    let body = api
        .exports
        .begin(session, format)
        .ok_or_else(|| ApiError::from(Code::Overloaded).retry_after(RETRY_SECONDS))?;
    api.audit(&caller, &row, "session.export").await;
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static(format.content_type()),
        ),
        (header::CONTENT_DISPOSITION, name),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
    ];
    Ok((headers, Body::from_stream(body)).into_response())
}
