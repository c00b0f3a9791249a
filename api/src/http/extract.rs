//! What a handler takes from a request: the caller, a body that is read only when it is time to, query parameters that
//! all must be known, and the idempotency key.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use bex_proto::limits;
use bex_proto::problem::Code;
use bex_proto::transcript::sha256_hex;
use bex_store::idempotency::Idempotency;
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{Api, ApiError};
use crate::auth::Caller;

/// Header that makes a repeated POST the same request.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Until a body is complete: the largest one over a slow line. Below [`limits::API_TIMEOUT`], so that the caller hears the cause.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// When the keys of access tokens may be there again.
const KEYS_RETRY_SECONDS: u32 = 5;
/// Text of a parser that is passed on; it may quote the caller's own body.
const DETAIL_BYTES: usize = 200;
/// What of a body over its limit is read and thrown away, so that a client that still sends hears the answer.
const DISCARDED_BYTES: usize = 3 * limits::API_BODY;

impl FromRequestParts<Arc<Api>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let header = parts.headers.get(header::AUTHORIZATION);
        let header = header.map(http::HeaderValue::as_bytes);
        api.auth
            .authenticate(header)
            .await
            .map_err(|code| match code {
                Code::Unavailable => ApiError::from(code).retry_after(KEYS_RETRY_SECONDS),
                code => code.into(),
            })
    }
}

/// What stands in a path. A segment that does not decode names nothing.
pub struct Segments<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segments<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(segments)) => Ok(Self(segments)),
            Err(_) => Err(Code::NotFound.into()),
        }
    }
}

/// A body that nobody has read yet.
pub struct Payload {
    headers: HeaderMap,
    body: Body,
}

/// A parsed body and the digest of its bytes.
pub struct Parsed<T> {
    /// What it says.
    pub value: T,
    sha256: String,
    headers: HeaderMap,
}

impl<S: Send + Sync> FromRequest<S> for Payload {
    type Rejection = std::convert::Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Self, Self::Rejection> {
        let (parts, body) = request.into_parts();
        Ok(Self {
            headers: parts.headers,
            body,
        })
    }
}

impl Payload {
    /// Reads the body as JSON; an empty one is an empty object.
    pub async fn json<T: DeserializeOwned>(mut self) -> Result<Parsed<T>, ApiError> {
        let bytes = self.read(limits::API_BODY).await?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let value = serde_json::from_slice(text).map_err(|e| json_fault(&e))?;
        Ok(Parsed {
            value,
            sha256: sha256_hex(text),
            headers: self.headers,
        })
    }

    /// The body as it is, at most `most` bytes.
    pub async fn bytes(mut self, most: usize) -> Result<Bytes, ApiError> {
        self.read(most).await
    }

    async fn read(&mut self, most: usize) -> Result<Bytes, ApiError> {
        timeout(BODY_TIMEOUT, self.read_on(most))
            .await
            .map_err(|_| ApiError::invalid("the body did not arrive in time"))?
    }

    async fn read_on(&mut self, most: usize) -> Result<Bytes, ApiError> {
        let mut kept = BytesMut::new();
        let mut seen = 0;
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|_| ApiError::invalid("the body did not arrive"))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            seen += data.len();
            if seen <= most {
                kept.extend_from_slice(&data);
            } else if seen > most + DISCARDED_BYTES {
                break;
            }
        }
        if seen > most {
            return Err(ApiError::from(Code::BodyTooLarge).with("limit", most as u64));
        }
        Ok(kept.freeze())
    }
}

impl<T> Parsed<T> {
    /// The caller's key for this request, if one was sent. A key belongs to the subject that chose it.
    pub fn idempotency(
        &self,
        verb: &str,
        caller: &Caller,
    ) -> Result<Option<Idempotency>, ApiError> {
        let Some(header) = self.headers.get(IDEMPOTENCY_KEY) else {
            return Ok(None);
        };
        let key = header
            .to_str()
            .ok()
            .filter(|k| (1..=limits::IDEMPOTENCY_KEY_BYTES).contains(&k.len()));
        let key = key.ok_or_else(|| {
            ApiError::invalid("Idempotency-Key must be 1 to 255 visible ASCII characters")
        })?;
        Ok(Some(Idempotency {
            scope: format!("{verb} {}", caller.subject),
            key: key.to_owned(),
            body_sha256: self.sha256.clone(),
        }))
    }
}

pub(super) fn json_fault(error: &serde_json::Error) -> ApiError {
    if !error.is_data() {
        return ApiError::from(Code::InvalidJson).detail(format!(
            "at line {}, column {}",
            error.line(),
            error.column()
        ));
    }
    let text = error.to_string();
    if let Some(field) = text
        .strip_prefix("unknown field `")
        .and_then(|t| t.split('`').next())
    {
        return unknown_field(field);
    }
    ApiError::invalid(shortened(&text))
}

fn unknown_field(field: &str) -> ApiError {
    let field = shortened(field);
    ApiError::from(Code::UnknownField)
        .detail(format!("{field} is not known here"))
        .with("field", field)
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(DETAIL_BYTES)]
}

/// Query parameters; each is taken once and what is left over is refused.
pub struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|axum::extract::Query(pairs)| Self(pairs))
            .map_err(|_| ApiError::invalid("the query does not parse"))
    }
}

impl Params {
    /// Every value of a parameter that may be repeated.
    pub fn all(&mut self, name: &str) -> Vec<String> {
        let (taken, rest) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(key, _)| key == name);
        self.0 = rest;
        let taken: Vec<(String, String)> = taken;
        taken.into_iter().map(|(_, value)| value).collect()
    }

    /// The value of a parameter that may stand once.
    pub fn one(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        let mut values = self.all(name);
        match values.len() {
            0 | 1 => Ok(values.pop()),
            _ => Err(ApiError::invalid(format!("{name} may stand once"))),
        }
    }

    /// As [`Params::one`], read as `what`.
    pub fn read<T: std::str::FromStr>(
        &mut self,
        name: &str,
        what: &str,
    ) -> Result<Option<T>, ApiError> {
        self.one(name)?
            .map(|text| {
                text.parse()
                    .map_err(|_| ApiError::invalid(format!("{name} must be {what}")))
            })
            .transpose()
    }

    /// A page's size: between 1 and `most`.
    pub fn limit(&mut self, default: u32, most: u32) -> Result<u32, ApiError> {
        let fault = || ApiError::invalid(format!("limit must be 1 to {most}"));
        match self.one("limit")? {
            None => Ok(default),
            Some(text) => text
                .parse()
                .ok()
                .filter(|n| (1..=most).contains(n))
                .ok_or_else(fault),
        }
    }

    /// Refuses what nobody took.
    pub fn done(self) -> Result<(), ApiError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(unknown_field(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[serde(rename = "n")]
        _n: u32,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(rename = "inner")]
        _inner: Inner,
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let never = futures::stream::pending::<Result<Bytes, std::io::Error>>();
        let payload = Payload {
            headers: HeaderMap::new(),
            body: Body::from_stream(never),
        };
        let refused = payload.json::<serde_json::Value>().await.err();
        assert_eq!(refused.map(|e| e.code()), Some(Code::InvalidRequest));
        assert!(BODY_TIMEOUT < limits::API_TIMEOUT);
    }

    #[test]
    fn parser_words_become_codes() {
        for (body, code) in [
            (r#"{"inner":{"n":1},"x":2}"#, Code::UnknownField),
            (r#"{"inner":{"n":1,"a`b":2}}"#, Code::UnknownField),
            (r#"{"inner":{"n":"1"}}"#, Code::InvalidRequest),
            (r#"{"inner":{}}"#, Code::InvalidRequest),
            (r#"{"inner":{"n":1}"#, Code::InvalidJson),
            (r#"{"inner":tru}"#, Code::InvalidJson),
            ("{} {}", Code::InvalidRequest),
        ] {
            let error = serde_json::from_str::<Outer>(body).expect_err("refused");
            assert_eq!(json_fault(&error).code(), code, "{body}: {error}");
        }
        let long = format!(r#"{{"inner":"{}"}}"#, "é".repeat(5000));
        let error = serde_json::from_str::<Outer>(&long).expect_err("refused");
        let response = json_fault(&error).into_response();
        assert_eq!(response.status(), 400);
    }

    #[test]
    fn parameters_are_taken_once_and_strangers_refused() {
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        let mut params = Params(vec![
            pair("phase", "a"),
            pair("limit", "7"),
            pair("phase", "b"),
            pair("x", ""),
        ]);
        assert_eq!(params.all("phase"), ["a", "b"]);
        assert_eq!(params.limit(5, 9).ok(), Some(7));
        assert_eq!(
            params.done().err().map(|e| e.code()),
            Some(Code::UnknownField)
        );
        let mut twice = Params(vec![pair("limit", "1"), pair("limit", "2")]);
        assert_eq!(
            twice.limit(5, 9).err().map(|e| e.code()),
            Some(Code::InvalidRequest)
        );
        let mut large = Params(vec![pair("limit", "10")]);
        assert!(large.limit(5, 9).is_err());
    }
}
