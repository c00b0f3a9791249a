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
use super::streams::{self, Hand};

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
    Counted {
        body,
        last: None,
        _open: open,
    }
}

/// A longer frame is given in two, the second a single byte. HTTP/2 queues a frame as soon as there is room for its first byte
/// and then asks for the next, the end included: without the second frame a body could end, and give back what it holds, while a
/// reader that takes nothing keeps the frame in memory.
const WHOLE_FRAME: usize = 1024;

pub(super) struct Counted {
    body: ResponseBody,
    /// The end of the frame given last.
    last: Option<Bytes>,
    _open: OpenRequest,
}

impl Counted {
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(last) = self.last.take() {
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        Pin::new(&mut self.body).poll_frame(cx).map_ok(|frame| {
            frame.map_data(|mut bytes| {
                if bytes.len() > WHOLE_FRAME {
                    self.last = Some(bytes.split_off(bytes.len() - 1));
                }
                bytes
            })
        })
    }
}

impl Body for Counted {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = self.next(cx);
        streams::note(match polled {
            Poll::Ready(Some(Ok(_))) => Hand::Full,
            Poll::Ready(_) | Poll::Pending => Hand::Empty,
        });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let left = self.last.as_ref().map_or(0, |last| last.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + left);
        }
        hint.set_lower(hint.lower() + left);
        hint
    }
}
