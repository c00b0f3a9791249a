//! Reading short answers.

use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::CallError;

/// An answer whose body is ignored; a longer one is not this contract's.
const ANSWER_BYTES: usize = 16 * 1024;

/// What a proved answer's status means.
pub(super) fn outcome(status: StatusCode) -> Result<(), CallError> {
    match status.as_u16() {
        200..=299 => Ok(()),
        404 => Err(CallError::NotSpoken),
        409 => Err(CallError::Busy),
        other => Err(CallError::Status(other)),
    }
}

pub(super) async fn drain(mut body: Incoming) -> Result<(), CallError> {
    let mut seen = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(CallError::Transport)?;
        seen += frame.data_ref().map_or(0, bytes::Bytes::len);
        if seen > ANSWER_BYTES {
            return Err(CallError::AnswerTooLong);
        }
    }
    Ok(())
}
