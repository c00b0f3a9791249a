//! `GET /v1/agent-sessions/{id}/transcript`: the feed, in the order in which parts were stored.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bex_proto::{Seq, limits, time};
use bex_store::transcript::{FeedPage, StoredPart};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::extract::{Params, Segments};
use super::{Api, ApiError};
use crate::auth::Caller;

/// Stands before the first part.
const FROM_THE_START: i64 = -1;
const IMMUTABLE: &str = "private, max-age=31536000, immutable";
const REVALIDATE: &str = "private, no-cache";

/// One page of the feed.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TranscriptPage {
    parts: Vec<PartView>,
    /// The `afterSeq` of the next page.
    next_after_seq: i64,
    /// Nothing was stored behind this page when it was read. A page that is not caught up never changes.
    caught_up: bool,
}

/// One stored part.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Part)]
pub struct PartView {
    seq: i64,
    turn: u32,
    index: u32,
    /// The UI message chunk as it was spoken.
    #[schema(value_type = Object)]
    part: Box<RawValue>,
    /// The driver's clock, where known.
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    spoken_at: Option<Timestamp>,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// The handler.
pub async fn read(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    headers: HeaderMap,
    mut params: Params,
) -> Result<Response, ApiError> {
    let session = api.session_of(&caller, &id).await?;
    let after = params
        .read("afterSeq", "a whole number")?
        .unwrap_or(FROM_THE_START);
    let limit = params.limit(limits::FEED_DEFAULT, limits::FEED_LIMIT)?;
    params.done()?;
    if after < FROM_THE_START {
        return Err(ApiError::invalid("afterSeq must be at least -1"));
    }
    let page = api.db.read_feed(&session.id, Seq(after), limit).await?;
    let tag = tag(after, &page);
    let cache = [
        (header::ETAG, tag.clone()),
        (
            header::CACHE_CONTROL,
            HeaderValue::from_static(if page.caught_up {
                REVALIDATE
            } else {
                IMMUTABLE
            }),
        ),
        // another caller must not be answered from this one's cache
        (header::VARY, HeaderValue::from_static("authorization")),
    ];
    if knows(&headers, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, cache).into_response());
    }
    let page = TranscriptPage {
        parts: page.parts.into_iter().map(PartView::from).collect(),
        next_after_seq: page.next_after.0,
        caught_up: page.caught_up,
    };
    Ok((cache, Json(page)).into_response())
}

/// Stored parts never change and seqs have no gaps, so a page's ends say all of its content.
fn tag(after: i64, page: &FeedPage) -> HeaderValue {
    let end = if page.caught_up { "end" } else { "more" };
    let text = format!("\"{after}.{}.{end}\"", page.next_after.0);
    HeaderValue::try_from(text).expect("numbers and a word are a valid header")
}

fn knows(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let given = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok());
    given.flat_map(|value| value.split(',')).any(|one| {
        let one = one.trim();
        one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag
    })
}

impl From<StoredPart> for PartView {
    fn from(part: StoredPart) -> Self {
        Self {
            seq: part.seq.0,
            turn: part.id.turn.0,
            index: part.id.index.0,
            part: verbatim(&part.bytes),
            spoken_at: part.spoken_at,
            created_at: part.created_at,
        }
    }
}

/// The stored bytes as they are. What is no JSON, which no writer stores, is shown as a text rather than breaking its page.
fn verbatim(bytes: &[u8]) -> Box<RawValue> {
    let text = String::from_utf8_lossy(bytes);
    RawValue::from_string(text.clone().into_owned())
        .or_else(|_| serde_json::value::to_raw_value(&text))
        .expect("a text always serialises")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_shown_verbatim_and_never_break_their_page() {
        for odd in [
            r#"{"type":"a",  "x":1.00,"x":2}"#,
            r#"{"delta":"\u0000\ud800"}"#,
        ] {
            assert_eq!(verbatim(odd.as_bytes()).get(), odd);
        }
        assert_eq!(verbatim(b"{\"type\":").get(), r#""{\"type\":""#);
    }

    #[test]
    fn etags_are_compared_weakly_in_lists() {
        let tag = HeaderValue::from_static("\"-1.9.more\"");
        let given = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static(text));
            knows(&headers, &tag)
        };
        assert!(given("\"-1.9.more\"") && given("\"a\", W/\"-1.9.more\"") && given("*"));
        assert!(!given("\"-1.9.end\"") && !given("-1.9.more"));
        assert!(!knows(&HeaderMap::new(), &tag));
    }
}
