//! From refusals to RFC 9457 answers. The only place where a failure becomes a status.

use axum::response::{IntoResponse, Response};
use bex_proto::Chain;
use bex_proto::problem::{self, Code, Problem};
use bex_store::StoreError;
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

/// A refusal with its code; what else the caller may know is added where it is known.
#[derive(Debug)]
pub struct ApiError {
    code: Code,
    problem: Box<Problem>,
    retry_after: Option<u32>,
}

impl ApiError {
    /// Says what is wrong with this request.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.problem = Box::new(self.problem.detail(detail));
        self
    }

    /// A field of its own, e.g. `limit`.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.problem = Box::new(self.problem.with(field, value));
        self
    }

    /// Seconds after which a retry may succeed.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// A request that is not valid, with a sentence that names the field.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::from(Code::InvalidRequest).detail(detail)
    }
}

impl From<Code> for ApiError {
    fn from(code: Code) -> Self {
        Self {
            code,
            problem: Box::new(Problem::new(code)),
            retry_after: None,
        }
    }
}

/// Store trouble is logged here, once; its text is not for callers.
impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        if error.is_transient() {
            tracing::warn!(error = %Chain(&error), "the store is not reachable");
            Self::from(Code::Unavailable).retry_after(1)
        } else {
            tracing::error!(error = %Chain(&error), "the store failed");
            Self::from(Code::Internal)
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.code.status()).expect("every code has a valid status");
        let body = serde_json::to_vec(&self.problem)
            .expect("a problem is plain data and always serialises");
        let mut response = (
            status,
            [
                (header::CONTENT_TYPE, problem::CONTENT_TYPE),
                (header::CACHE_CONTROL, "no-store"),
            ],
            body,
        )
            .into_response();
        // for whoever counts
        response.extensions_mut().insert(self.code);
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.code == Code::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
