//! Answers and their bodies.

use bex_proto::problem::{self, Code, Problem};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};

use super::BodyError;

/// The body of every answer.
pub type ResponseBody = UnsyncBoxBody<Bytes, BodyError>;

/// A body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> ResponseBody {
    Full::new(bytes.into())
        .map_err(|e| match e {})
        .boxed_unsync()
}

/// A refusal as a problem document.
pub fn problem(code: Code, problem: &Problem) -> Response<ResponseBody> {
    let json = serde_json::to_vec(problem).expect("a problem is plain data");
    let mut response = Response::new(full(json));
    *response.status_mut() =
        StatusCode::from_u16(code.status()).expect("every code's status is a valid one");
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(problem::CONTENT_TYPE),
    );
    response
}

/// No body.
pub fn empty() -> ResponseBody {
    Empty::new().map_err(|e| match e {}).boxed_unsync()
}
