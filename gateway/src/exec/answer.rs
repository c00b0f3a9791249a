//! Answers of the exec listener.

use std::pin::Pin;
use std::task::{Context, Poll};

use bex_proto::exec::{CONTENT_TYPE, ExecCode, ExecError, Exit, FrameKind, write_json};
use bex_proto::problem::{Code, Problem};
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Response, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use super::RETRY_AFTER_SECONDS;
use super::admission::Seat;
use crate::sandbox::ExitHint;
use crate::serve::{self, BodyError, ResponseBody};

/// Why there is no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    code: Code,
    detail: Option<&'static str>,
}

impl Refusal {
    pub(super) fn new(code: Code) -> Self {
        Self { code, detail: None }
    }

    pub(super) fn because(code: Code, detail: &'static str) -> Self {
        Self {
            code,
            detail: Some(detail),
        }
    }

    pub(super) fn code(self) -> Code {
        self.code
    }

    pub(super) fn response(self) -> Response<ResponseBody> {
        let mut problem = Problem::new(self.code);
        if let Some(detail) = self.detail {
            problem = problem.detail(detail);
        }
        let mut response = serve::problem(self.code, &problem);
        let headers = response.headers_mut();
        match self.code {
            Code::MethodNotAllowed => {
                headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
            }
            Code::Overloaded => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
            }
            _ => {}
        }
        response
    }
}

impl From<ExecCode> for Refusal {
    fn from(code: ExecCode) -> Self {
        Self::new(code.into())
    }
}

/// The last frame of an operation that ended.
pub(super) fn exit(exit_code: i32, hint: Option<ExitHint>) -> Bytes {
    let mut out = BytesMut::new();
    let exit = Exit {
        exit_code,
        hint: hint.map(|hint| hint.as_str().to_owned()),
    };
    write_json(&mut out, FrameKind::Exit, &exit);
    out.freeze()
}

/// The last frame of an operation that failed.
pub(super) fn error(code: ExecCode) -> Bytes {
    let mut out = BytesMut::new();
    let message = match code {
        ExecCode::Busy => "The driver is busy with another turn.",
        other => Code::from(other).title(),
    };
    let error = ExecError {
        code,
        message: message.to_owned(),
    };
    write_json(&mut out, FrameKind::Error, &error);
    out.freeze()
}

pub(super) fn exit_zero() -> Response<ResponseBody> {
    framed(serve::full(exit(0, None)))
}

pub(super) fn error_frame(code: ExecCode) -> Response<ResponseBody> {
    framed(serve::full(error(code)))
}

/// `first` and then what comes; `seat` is kept until the body is gone.
pub(super) fn streamed(
    first: Bytes,
    rest: mpsc::Receiver<Message>,
    seat: Seat,
) -> Response<ResponseBody> {
    let body = Frames {
        first: Some(first),
        rest,
        _seat: seat,
    };
    framed(body.boxed_unsync())
}

fn framed(body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// What a running operation says: whole frames, or why there will be none. A code comes first or never.
pub(super) type Message = Result<Bytes, ExecCode>;

struct Frames {
    first: Option<Bytes>,
    rest: mpsc::Receiver<Message>,
    _seat: Seat,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.rest.poll_recv(cx).map(|message| {
            message.map(|m| {
                m.map(Frame::data)
                    .map_err(|_| BodyError::from("an operation failed without a frame"))
            })
        })
    }
}
