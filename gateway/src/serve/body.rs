//! Answers and their bodies.

use std::pin::Pin;
use std::task::{Context, Poll};

use bex_proto::problem::{self, Code, Problem};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};

use super::activity::OpenRequest;

/// Ends the connection (HTTP/1) or the stream (HTTP/2) abnormally, so that the reader knows that it has not seen everything.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;
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

/// `body`, whose request counts as open until it is dropped.
pub(super) fn counted(body: ResponseBody, open: OpenRequest) -> Counted {
    Counted { body, _open: open }
}

pub(super) struct Counted {
    body: ResponseBody,
    _open: OpenRequest,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
