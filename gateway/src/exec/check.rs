//! The rules of what an in-sandbox process may say, frame by frame. Pure.
//!
//! ```text
//! window (observe, read-transcript):  Header · Stdout* (exactly the header's length) · End(nonce)
//! run:                                (Stdout | Stderr)* · End(nonce)
//! ```
//!
//! Anything else, and every end but the end mark, is a broken transport: lost output must never pass for a short one.

use bex_proto::exec::{
    EndMark, ExecCode, Frame, FrameKind, Operation, WindowEnding, WindowHeader, write_frame,
};
use bex_proto::limits;
use bytes::{Bytes, BytesMut};

/// What is done with a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// These bytes go to the caller.
    Pass(Bytes),
    /// The end mark, with the process's exit code.
    Done(i32),
    /// Too much: what still fits goes to the caller, then the failure.
    Overflow(Bytes),
    /// Not what such a process says.
    Broken,
}

/// The state of one answer.
#[derive(Debug)]
pub(super) struct Check {
    nonce: String,
    shape: Shape,
    /// Payload bytes so far.
    passed: u64,
}

#[derive(Debug)]
enum Shape {
    /// Before the header.
    WindowHead,
    /// So many bytes are still to come.
    WindowBytes {
        missing: u64,
    },
    Run,
}

impl Check {
    pub(super) fn new(operation: &Operation, nonce: &str) -> Self {
        Self {
            nonce: nonce.to_owned(),
            shape: match operation {
                Operation::Run { .. } => Shape::Run,
                _ => Shape::WindowHead,
            },
            passed: 0,
        }
    }

    pub(super) fn step(&mut self, frame: Frame) -> Step {
        let length = frame.payload.len() as u64;
        match (&mut self.shape, frame.kind) {
            (Shape::WindowHead, FrameKind::Header) => {
                let Some(missing) = window_length(&frame.payload) else {
                    return Step::Broken;
                };
                self.shape = Shape::WindowBytes { missing };
                self.pass(frame, limits::HARVEST_ANSWER_BYTES)
            }
            (Shape::WindowBytes { missing }, FrameKind::Stdout) if length <= *missing => {
                *missing -= length;
                self.pass(frame, limits::HARVEST_ANSWER_BYTES)
            }
            (Shape::WindowBytes { missing: 0 }, FrameKind::End) => self.end(&frame.payload),
            (Shape::Run, FrameKind::Stdout | FrameKind::Stderr) => {
                self.pass(frame, limits::RUN_OUTPUT_BYTES)
            }
            (Shape::Run, FrameKind::End) => self.end(&frame.payload),
            _ => Step::Broken,
        }
    }

    fn pass(&mut self, frame: Frame, limit: u64) -> Step {
        let room = limit.saturating_sub(self.passed);
        let fits = usize::try_from(room)
            .unwrap_or(usize::MAX)
            .min(frame.payload.len());
        self.passed += fits as u64;
        let mut out = BytesMut::new();
        if fits == frame.payload.len() {
            write_frame(&mut out, frame.kind, &frame.payload);
            return Step::Pass(out.freeze());
        }
        if fits > 0 {
            write_frame(&mut out, frame.kind, &frame.payload[..fits]);
        }
        Step::Overflow(out.freeze())
    }

    fn end(&self, payload: &[u8]) -> Step {
        match serde_json::from_slice::<EndMark>(payload) {
            Ok(end) if end.nonce == self.nonce => Step::Done(end.exit_code),
            _ => Step::Broken,
        }
    }
}

/// How many bytes follow a header.
fn window_length(payload: &[u8]) -> Option<u64> {
    let header: WindowHeader = serde_json::from_slice(payload).ok()?;
    Some(match header.log {
        Some(log) if log.ending != WindowEnding::LineTooLong => log.length,
        _ => 0,
    })
}

/// The code of a [`Step::Overflow`].
pub(super) const OVERFLOW: ExecCode = ExecCode::OutputLimit;

#[cfg(test)]
mod tests {
    use bex_proto::TurnNo;
    use bex_proto::exec::{FrameDecoder, LogWindow};

    use super::*;

    fn window(length: u64, ending: WindowEnding) -> Frame {
        let header = WindowHeader {
            status: None,
            log: Some(LogWindow {
                generation: None,
                log_id: "l".into(),
                offset: 0,
                length,
                size: length,
                sha256: String::new(),
                ending,
            }),
        };
        frame(
            FrameKind::Header,
            &serde_json::to_vec(&header).expect("plain data"),
        )
    }

    fn frame(kind: FrameKind, payload: &[u8]) -> Frame {
        Frame {
            kind,
            payload: Bytes::copy_from_slice(payload),
        }
    }

    fn end(nonce: &str) -> Frame {
        frame(
            FrameKind::End,
            format!(r#"{{"nonce":"{nonce}","exitCode":3}}"#).as_bytes(),
        )
    }

    fn observe() -> Check {
        let operation = Operation::Observe {
            turn: TurnNo(1),
            offset: 0,
        };
        Check::new(&operation, "n")
    }

    fn run() -> Check {
        let operation = Operation::Run {
            argv: vec!["x".into()],
            stdin: None,
        };
        Check::new(&operation, "n")
    }

    fn passes(step: &Step) -> bool {
        matches!(step, Step::Pass(_))
    }

    #[test]
    fn a_window_is_as_long_as_its_header_says() {
        let mut check = observe();
        assert!(passes(&check.step(window(5, WindowEnding::Line))));
        assert!(passes(&check.step(frame(FrameKind::Stdout, b"abc"))));
        assert_eq!(observe().step(end("n")), Step::Broken, "no header");
        let mut short = observe();
        short.step(window(5, WindowEnding::Line));
        assert_eq!(short.step(end("n")), Step::Broken, "bytes are missing");
        assert_eq!(
            check.step(frame(FrameKind::Stdout, b"def")),
            Step::Broken,
            "too many bytes"
        );
        let mut check = observe();
        check.step(window(5, WindowEnding::Line));
        check.step(frame(FrameKind::Stdout, b"abcde"));
        assert_eq!(check.step(end("n")), Step::Done(3));
    }

    #[test]
    fn a_window_without_a_line_has_no_bytes() {
        let mut check = observe();
        assert!(passes(&check.step(window(16, WindowEnding::LineTooLong))));
        assert_eq!(check.step(end("n")), Step::Done(3));
    }

    #[test]
    fn an_end_mark_needs_this_requests_nonce() {
        assert_eq!(run().step(end("other")), Step::Broken);
        assert_eq!(run().step(frame(FrameKind::End, b"{}")), Step::Broken);
        assert_eq!(run().step(end("n")), Step::Done(3));
    }

    #[test]
    fn a_process_cannot_speak_for_the_gateway() {
        for kind in [FrameKind::Exit, FrameKind::Error, FrameKind::Header] {
            assert_eq!(run().step(frame(kind, b"{}")), Step::Broken, "{kind:?}");
        }
        let mut check = observe();
        check.step(window(0, WindowEnding::Line));
        for kind in [
            FrameKind::Exit,
            FrameKind::Error,
            FrameKind::Stderr,
            FrameKind::Header,
        ] {
            assert_eq!(check.step(frame(kind, b"{}")), Step::Broken, "{kind:?}");
        }
    }

    #[test]
    fn a_command_may_print_its_limit_and_not_a_byte_more() {
        let (mut check, mut got) = (run(), 0);
        let chunk = vec![b'x'; 60_000];
        let last = loop {
            match check.step(frame(FrameKind::Stdout, &chunk)) {
                Step::Pass(_) => got += chunk.len(),
                other => break other,
            }
        };
        let Step::Overflow(rest) = last else {
            panic!("{last:?}")
        };
        let mut decoder = FrameDecoder::default();
        decoder.push(&rest);
        let rest = decoder.next_frame().expect("well-formed").expect("whole");
        assert_eq!((got + rest.payload.len()) as u64, limits::RUN_OUTPUT_BYTES);
    }
}
