//! Reading an exec answer: its frames, its one end, and refusals before the first frame.

use bex_proto::exec::{
    CONTENT_TYPE, ExecCode, ExecError, Exit, Frame, FrameDecoder, FrameKind, WindowHeader,
};
use bex_proto::limits;
use bex_proto::problem::{CODE_HEADER, Code};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use hyper::Response;
use hyper::body::{Body, Incoming};
use serde::Deserialize;
use tokio::time::Instant;

use super::{ExecFailure, Room};

/// The text of a refusal is not read further.
const REFUSAL_BYTES: usize = 64 * 1024;

/// What came of an answer to observe or read-transcript. The bytes before a failure are kept: a reader goes on from them.
#[derive(Debug, Clone)]
pub struct ReadAnswer {
    /// The header frame.
    pub header: Option<WindowHeader>,
    /// The bytes after it, at most what one answer may have.
    pub bytes: Bytes,
    /// Whether the exit frame was the last thing read.
    pub end: Result<(), ExecFailure>,
}

impl ReadAnswer {
    /// An answer that failed before it began.
    pub fn failed(failure: ExecFailure) -> Self {
        Self {
            header: None,
            bytes: Bytes::new(),
            end: Err(failure),
        }
    }
}

pub(super) async fn read(body: Incoming) -> ReadAnswer {
    read_until(
        body,
        Instant::now() + limits::EXEC_READ_TIMEOUT,
        Room::Small,
    )
    .await
}

/// Reads until the end, the deadline or the bound, which is known as soon as the header is. Whatever was received before stays in the answer.
pub(super) async fn read_until<B>(mut body: B, deadline: Instant, room: Room) -> ReadAnswer
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut reader = AnswerReader::new(room);
    let end = loop {
        match tokio::time::timeout_at(deadline, body.frame()).await {
            Err(_) => break Err(ExecFailure::Timeout),
            Ok(Some(Err(_))) => break Err(ExecFailure::Transport),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data()
                    && let Err(failure) = reader.push(&data)
                {
                    break Err(failure);
                }
            }
            // a body that ends without an exit or error frame is an error to its reader, also in the middle of a frame
            Ok(None) => break reader.end.take().unwrap_or(Err(ExecFailure::Transport)),
        }
    };
    ReadAnswer {
        header: reader.header,
        bytes: reader.bytes.freeze(),
        end,
    }
}

struct AnswerReader {
    room: Room,
    decoder: FrameDecoder,
    header: Option<WindowHeader>,
    bytes: BytesMut,
    end: Option<Result<(), ExecFailure>>,
}

impl AnswerReader {
    fn new(room: Room) -> Self {
        Self {
            room,
            decoder: FrameDecoder::default(),
            header: None,
            bytes: BytesMut::new(),
            end: None,
        }
    }

    fn push(&mut self, data: &[u8]) -> Result<(), ExecFailure> {
        self.decoder.push(data);
        while let Some(frame) = self
            .decoder
            .next_frame()
            .map_err(|_| ExecFailure::Transport)?
        {
            self.take(frame)?;
        }
        // bytes behind the last frame are no answer
        if self.end.is_some() && self.decoder.is_torn() {
            Err(ExecFailure::Transport)
        } else {
            Ok(())
        }
    }

    fn take(&mut self, frame: Frame) -> Result<(), ExecFailure> {
        if self.end.is_some() {
            return Err(ExecFailure::Transport);
        }
        match frame.kind {
            FrameKind::Header if self.header.is_none() && self.bytes.is_empty() => {
                let header: WindowHeader =
                    serde_json::from_slice(&frame.payload).map_err(|_| ExecFailure::Transport)?;
                let promised = header.log.as_ref().map_or(0, |log| log.length);
                self.header = Some(header);
                if promised > self.room.bytes() {
                    return Err(ExecFailure::OutputLimit);
                }
                // as much as will come, not twice as much by growing
                self.bytes.reserve(usize::try_from(promised).unwrap_or(0));
            }
            FrameKind::Stdout => {
                if (self.bytes.len() + frame.payload.len()) as u64 > self.room.bytes() {
                    return Err(ExecFailure::OutputLimit);
                }
                self.bytes.extend_from_slice(&frame.payload);
            }
            FrameKind::Stderr => {}
            FrameKind::Exit => {
                let exit: Exit =
                    serde_json::from_slice(&frame.payload).map_err(|_| ExecFailure::Transport)?;
                self.end = Some(if exit.exit_code == 0 {
                    Ok(())
                } else {
                    Err(ExecFailure::Transport)
                });
            }
            FrameKind::Error => {
                let error: ExecError =
                    serde_json::from_slice(&frame.payload).map_err(|_| ExecFailure::Transport)?;
                self.end = Some(Err(error.code.into()));
            }
            FrameKind::Header | FrameKind::End => return Err(ExecFailure::Transport),
        }
        Ok(())
    }
}

/// Why the gateway refused. A bare 404 is no word about the sandbox: only the code is.
pub(super) async fn refusal(response: Response<Incoming>) -> ExecFailure {
    let status = response.status().as_u16();
    let said = response
        .headers()
        .get(CODE_HEADER)
        .and_then(|v| v.to_str().ok())
        .and_then(code_of);
    if let Some(code) = said {
        return code.into();
    }
    let framed = response
        .headers()
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|t| t == CONTENT_TYPE);
    let read = Limited::new(response.into_body(), REFUSAL_BYTES).collect();
    let Ok(Ok(body)) = tokio::time::timeout(limits::DRIVER_CALL_TIMEOUT, read).await else {
        return ExecFailure::Transport;
    };
    let body = body.to_bytes();
    if framed {
        let mut reader = AnswerReader::new(Room::Small);
        if let (Ok(()), Some(Err(failure))) = (reader.push(&body), reader.end.take()) {
            return failure;
        }
    }
    #[derive(Deserialize)]
    struct Coded {
        code: String,
    }
    serde_json::from_slice::<Coded>(&body)
        .ok()
        .and_then(|c| code_of(&c.code))
        .map_or(ExecFailure::Refused(status), ExecFailure::from)
}

/// The word of an exec code, or of the problem that stands for it before the first frame.
fn code_of(word: &str) -> Option<ExecCode> {
    if word == Code::TurnInFlight.as_str() {
        return Some(ExecCode::Busy);
    }
    word.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bex_proto::exec::{write_bytes, write_frame, write_json};
    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame as BodyFrame;

    use super::*;

    async fn answer_of(wire: BytesMut) -> ReadAnswer {
        let chunks: Vec<_> = wire
            .chunks(7000)
            .map(|c| Ok::<_, Infallible>(BodyFrame::data(Bytes::copy_from_slice(c))))
            .collect();
        read_until(
            StreamBody::new(stream::iter(chunks)),
            Instant::now() + limits::EXEC_READ_TIMEOUT,
            Room::Window,
        )
        .await
    }

    fn exit(wire: &mut BytesMut, exit_code: i32) {
        write_json(
            wire,
            FrameKind::Exit,
            &Exit {
                exit_code,
                hint: None,
            },
        );
    }

    #[tokio::test]
    async fn an_answer_is_whole_only_with_its_exit_frame() {
        let payload = vec![7u8; 200_000];
        let mut wire = BytesMut::new();
        write_json(
            &mut wire,
            FrameKind::Header,
            &WindowHeader {
                status: Some("{}".into()),
                log: None,
            },
        );
        write_bytes(&mut wire, FrameKind::Stdout, &payload);
        let cut = wire.clone();
        exit(&mut wire, 0);
        let whole = answer_of(wire.clone()).await;
        assert_eq!((whole.end, whole.bytes.len()), (Ok(()), payload.len()));
        assert_eq!(whole.header.and_then(|h| h.status).as_deref(), Some("{}"));

        let lost = answer_of(cut.clone()).await;
        assert_eq!(
            (lost.end, lost.bytes.len()),
            (Err(ExecFailure::Transport), payload.len())
        );

        let mut torn = cut.clone();
        torn.truncate(150_000);
        let torn = answer_of(torn).await;
        assert_eq!(torn.end, Err(ExecFailure::Transport));
        assert!(
            torn.bytes.len() >= 65_536,
            "the whole frames before the cut are kept"
        );

        exit(&mut wire, 0);
        assert_eq!(
            answer_of(wire).await.end,
            Err(ExecFailure::Transport),
            "nothing follows the end"
        );
    }

    #[tokio::test]
    async fn error_frames_are_typed_and_bounds_hold() {
        let mut wire = BytesMut::new();
        let error = ExecError {
            code: ExecCode::SandboxTerminated,
            message: "gone".into(),
        };
        write_json(&mut wire, FrameKind::Error, &error);
        assert_eq!(answer_of(wire).await.end, Err(ExecFailure::Terminated));

        let mut wire = BytesMut::new();
        exit(&mut wire, 3);
        assert_eq!(answer_of(wire).await.end, Err(ExecFailure::Transport));

        let mut wire = BytesMut::new();
        write_frame(&mut wire, FrameKind::End, b"{}");
        assert_eq!(
            answer_of(wire).await.end,
            Err(ExecFailure::Transport),
            "an end mark is no end for the api"
        );

        let mut wire = BytesMut::new();
        write_bytes(
            &mut wire,
            FrameKind::Stdout,
            &vec![0; limits::HARVEST_ANSWER_BYTES as usize + 1],
        );
        let flood = answer_of(wire).await;
        assert_eq!(flood.end, Err(ExecFailure::OutputLimit));
        assert!(flood.bytes.len() as u64 <= limits::HARVEST_ANSWER_BYTES);
    }
}
