//! An answer's body, whose request counts as open until it was handed over whole, or given up.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::activity::OpenRequest;

pub(crate) struct Counted<B> {
    body: B,
    _open: OpenRequest,
}

impl<B> Counted<B> {
    pub(crate) fn new(body: B, open: OpenRequest) -> Self {
        Self { body, _open: open }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
