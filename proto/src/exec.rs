//! The exec RPC: operations, the answer's frames, and how the in-sandbox side frames what it prints.
//!
//! An answer of the gateway is a run of *frames*: `kind u8 · length u32 big-endian · payload`. Exactly one exit or error
//! frame is last; a body without one is an error to its reader. What the driver's binary prints inside the sandbox is
//! framed the same way with kinds of its own, so that lost output can never be taken for a short one.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::ids::{Generation, TurnNo};
use crate::limits;
use crate::problem::Code;

/// Content type of an exec answer.
pub const CONTENT_TYPE: &str = "application/vnd.bex.exec";
/// Header of the exec ticket.
pub const TICKET_HEADER: &str = "x-bex-exec-ticket";
const HEAD_BYTES: usize = 5;

/// What the api may ask; the trusted subject cannot run anything else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// status.json and the turn's log from an offset.
    Observe {
        /// The turn whose log is read.
        turn: TurnNo,
        /// First byte wanted.
        offset: u64,
    },
    /// The turn's log from an offset.
    ReadTranscript {
        /// The turn whose log is read.
        turn: TurnNo,
        /// First byte wanted.
        offset: u64,
    },
    /// Delivers a recorded turn. The gateway reads the prompt from the store.
    Turn {
        /// The turn to deliver.
        turn: TurnNo,
        /// What earlier turns said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priming: Option<String>,
    },
    /// Stops a turn.
    Stop {
        /// The turn to stop.
        turn: TurnNo,
    },
    /// A user's command.
    Run {
        /// Program and arguments.
        argv: Vec<String>,
        /// Its standard input.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stdin: Option<String>,
    },
}

impl Operation {
    /// The operation's name, as tickets name it.
    pub fn name(&self) -> OperationName {
        match self {
            Self::Observe { .. } => OperationName::Observe,
            Self::ReadTranscript { .. } => OperationName::ReadTranscript,
            Self::Turn { .. } => OperationName::Turn,
            Self::Stop { .. } => OperationName::Stop,
            Self::Run { .. } => OperationName::Run,
        }
    }
}

crate::session::words! {
    /// The operation a ticket allows.
    #[expect(missing_docs, reason = "each is documented at its operation")]
    OperationName {
        Observe = "observe",
        ReadTranscript = "read-transcript",
        Turn = "turn",
        Stop = "stop",
        Run = "run",
    }
}

/// What the in-sandbox side is told, as a length-prefixed JSON frame (`length u32 big-endian · JSON`) on its standard input,
/// which is held open until the end mark was read: when it closes, the process ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxRequest {
    /// Echoed in the end mark, so that an old answer is never taken for this one.
    pub nonce: String,
    /// Only observe, read-transcript and run go through the sandbox's binary.
    pub operation: Operation,
}

/// The first thing an answer to observe and read-transcript says: what the bytes after it are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowHeader {
    /// The text of status.json, when asked for and there; at most [`limits::STATUS_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The turn's log; `None` while the driver has not begun it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogWindow>,
}

/// A window of one log, cut at its last newline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogWindow {
    /// From the log's first line; `None` in the old form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// Identity of the file: its first line's logId, or device and inode in the old form. Another value means another log.
    pub log_id: String,
    /// First byte of the window.
    pub offset: u64,
    /// Bytes of the window: what follows the header.
    pub length: u64,
    /// Size of the whole log when it was read.
    pub size: u64,
    /// SHA-256 of the window's bytes, computed inside the sandbox; lower-case hexadecimal.
    pub sha256: String,
    /// What stands at the window's end.
    pub ending: WindowEnding,
}

/// How a window ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowEnding {
    /// With a newline, or empty.
    Line,
    /// With an unterminated rest that will never be finished: the turn is no longer running.
    Unterminated,
    /// The whole window has no newline: the line is longer than a window. The window's bytes are not given; the reader
    /// skips by offset (`offset + length`).
    LineTooLong,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// See [`FrameKind`].
    pub kind: FrameKind,
    /// At most [`limits::EXEC_FRAME_BYTES`], a header frame excepted ([`limits::STATUS_BYTES`] and its escapes).
    pub payload: Bytes,
}

/// The kinds of frames: 1 to 4 between gateway and api, 2 and up to 17 inside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// Bytes of standard output; for observe and read-transcript the log window's bytes.
    Stdout = 1,
    /// Bytes of standard error.
    Stderr = 2,
    /// [`Exit`]; last.
    Exit = 3,
    /// [`ExecError`]; last.
    Error = 4,
    /// [`WindowHeader`]; before the first byte of a window.
    Header = 5,
    /// [`EndMark`]; only inside the sandbox, last.
    End = 17,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Stdout,
            Self::Stderr,
            Self::Exit,
            Self::Error,
            Self::Header,
            Self::End,
        ]
        .into_iter()
        .find(|k| *k as u8 == byte)
    }

    fn limit(self) -> usize {
        match self {
            // every byte of a status may become a six-byte escape
            Self::Header => limits::STATUS_BYTES * 6 + limits::EXEC_FRAME_BYTES,
            _ => limits::EXEC_FRAME_BYTES,
        }
    }
}

/// Payload of the exit frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// The command's exit code.
    pub exit_code: i32,
    /// Why, where the pod tells: `container_restarted`, `pod_deleted`, `deadline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Payload of the error frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecError {
    /// The stable code.
    pub code: ExecCode,
    /// For people; never a status text of the cluster, which echoes argv.
    pub message: String,
}

crate::session::words! {
    /// Codes of the exec RPC.
    ExecCode {
        /// The target is gone for good.
        SandboxTerminated = "sandbox_terminated",
        /// The caller may not.
        Revoked = "revoked",
        /// The transport broke or the end mark is missing; read on from the bytes received.
        ExecTransport = "exec_transport",
        /// Out of time.
        ExecTimeout = "exec_timeout",
        /// More output than allowed.
        OutputLimit = "output_limit",
        /// The target cannot do that.
        Unsupported = "unsupported",
        /// The driver is busy with another turn.
        Busy = "busy",
    }
}

/// The refusal that an exec code is when no frame was sent yet.
impl From<ExecCode> for Code {
    fn from(code: ExecCode) -> Self {
        match code {
            ExecCode::SandboxTerminated => Self::SandboxTerminated,
            ExecCode::Revoked => Self::Revoked,
            ExecCode::ExecTransport => Self::ExecTransport,
            ExecCode::ExecTimeout => Self::ExecTimeout,
            ExecCode::OutputLimit => Self::OutputLimit,
            ExecCode::Unsupported => Self::Unsupported,
            ExecCode::Busy => Self::TurnInFlight,
        }
    }
}

/// Last frame of the in-sandbox side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndMark {
    /// The request's.
    pub nonce: String,
    /// The command's, or 0.
    pub exit_code: i32,
}

/// Writes one frame; payloads over the frame limit must be split by the caller ([`write_bytes`] does).
pub fn write_frame(out: &mut BytesMut, kind: FrameKind, payload: &[u8]) {
    debug_assert!(
        payload.len() <= kind.limit(),
        "a writer splits its payloads"
    );
    out.reserve(HEAD_BYTES + payload.len());
    out.put_u8(kind as u8);
    out.put_u32(payload.len() as u32);
    out.put_slice(payload);
}

/// Writes bytes as frames of at most [`limits::EXEC_FRAME_BYTES`].
pub fn write_bytes(out: &mut BytesMut, kind: FrameKind, bytes: &[u8]) {
    for chunk in bytes.chunks(limits::EXEC_FRAME_BYTES) {
        write_frame(out, kind, chunk);
    }
}

/// Writes a frame with a JSON payload.
pub fn write_json<T: Serialize>(out: &mut BytesMut, kind: FrameKind, payload: &T) {
    let json =
        serde_json::to_vec(payload).expect("frame payloads are plain data and always serialise");
    write_frame(out, kind, &json);
}

/// Why bytes are not frames.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    /// An unknown kind.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// A length over the kind's limit.
    #[error("frame of {0} bytes")]
    Length(u32),
}

/// Turns a byte stream into frames. Holds at most one unfinished frame.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: BytesMut,
}

impl FrameDecoder {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if it is there.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameFault> {
        if self.buffer.len() < HEAD_BYTES {
            return Ok(None);
        }
        let kind = FrameKind::from_byte(self.buffer[0]).ok_or(FrameFault::Kind(self.buffer[0]))?;
        let length = u32::from_be_bytes([
            self.buffer[1],
            self.buffer[2],
            self.buffer[3],
            self.buffer[4],
        ]);
        if length as usize > kind.limit() {
            return Err(FrameFault::Length(length));
        }
        if self.buffer.len() < HEAD_BYTES + length as usize {
            return Ok(None);
        }
        self.buffer.advance(HEAD_BYTES);
        Ok(Some(Frame {
            kind,
            payload: self.buffer.split_to(length as usize).freeze(),
        }))
    }

    /// Whether bytes of an unfinished frame are held.
    pub fn is_torn(&self) -> bool {
        !self.buffer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn frames_survive_any_chunking(bytes in proptest::collection::vec(any::<u8>(), 0..150_000), chunk in 1000usize..70_000) {
            let mut wire = BytesMut::new();
            write_bytes(&mut wire, FrameKind::Stdout, &bytes);
            write_json(&mut wire, FrameKind::Exit, &Exit { exit_code: 3, hint: None });
            let (mut decoder, mut read, mut exit) = (FrameDecoder::default(), Vec::new(), None);
            for piece in wire.chunks(chunk) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().expect("well-formed") {
                    match frame.kind {
                        FrameKind::Stdout => read.extend_from_slice(&frame.payload),
                        _ => exit = serde_json::from_slice::<Exit>(&frame.payload).ok(),
                    }
                }
            }
            prop_assert_eq!(read, bytes);
            prop_assert_eq!(exit.map(|e| e.exit_code), Some(3));
            prop_assert!(!decoder.is_torn());
        }
    }

    #[test]
    fn a_lying_length_is_refused_before_it_is_buffered() {
        let mut decoder = FrameDecoder::default();
        decoder.push(&[1, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(decoder.next_frame(), Err(FrameFault::Length(u32::MAX)));
        let mut decoder = FrameDecoder::default();
        decoder.push(&[9, 0, 0, 0, 0]);
        assert_eq!(decoder.next_frame(), Err(FrameFault::Kind(9)));
    }

    #[test]
    fn operations_have_one_spelling() {
        let op: Operation = serde_json::from_str(r#"{"op":"read-transcript","turn":2,"offset":7}"#)
            .expect("an operation");
        assert_eq!(
            op,
            Operation::ReadTranscript {
                turn: TurnNo(2),
                offset: 7
            }
        );
        assert!(
            serde_json::from_str::<Operation>(
                r#"{"op":"observe","turn":2,"offset":0,"path":"/etc/passwd"}"#
            )
            .is_err()
        );
    }
}
