//! What a faulty driver says, and how its log and stream show it.

use bex_proto::driver::{
    TurnDigest, TurnEnd, TurnState, log_record, turn_end_record, write_part_record,
};
use bex_proto::ids::PartIndex;
use bex_proto::{Generation, TurnNo, limits};
use bytes::Bytes;
use jiff::Timestamp;

/// Parts of the one turn.
pub const PARTS: u32 = 7;
/// The part that part faults spoil.
pub const SPOILT: u32 = 3;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The stream is elsewhere, says a 302.
    Redirect,
    /// Its events have no ids.
    NoIds,
    /// It ends without `[DONE]`.
    NoDone,
    /// It says everything and stays open.
    NeverEnds,
    /// One part has 2 MiB.
    LongLine,
    /// One part has 15.9 MiB.
    HugeLine,
    /// One part has one byte too many.
    OneOver,
    /// One part holds a NUL byte.
    Nul,
    /// One part holds half a character.
    Torn,
    /// The log's lines end with CR LF.
    Crlf,
    /// The log's last line has no end.
    OpenEnd,
}

impl Fault {
    /// Every fault and its word in a prompt.
    pub const ALL: [(&'static str, Fault); 12] = [
        ("none", Self::None),
        ("redirect", Self::Redirect),
        ("no-ids", Self::NoIds),
        ("no-done", Self::NoDone),
        ("never-ends", Self::NeverEnds),
        ("long-line", Self::LongLine),
        ("huge-line", Self::HugeLine),
        ("one-over", Self::OneOver),
        ("nul", Self::Nul),
        ("torn", Self::Torn),
        ("crlf", Self::Crlf),
        ("open-end", Self::OpenEnd),
    ];

    fn of(prompt: &str) -> Self {
        let word = prompt
            .split_whitespace()
            .find_map(|w| w.strip_prefix("fault="));
        let found = Self::ALL.iter().find(|(name, _)| Some(*name) == word);
        found.map_or(Self::None, |(_, fault)| *fault)
    }
}

/// One turn's parts and fault.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) fault: Fault,
    pub(super) parts: Vec<Bytes>,
}

/// The parts of a turn without a fault.
pub fn parts() -> Vec<Bytes> {
    let texts = [
        r#"{"type":"start"}"#,
        r#"{"type":"text-start","id":"t"}"#,
        r#"{"type":"text-delta","id":"t","delta":"one "}"#,
        r#"{"type":"text-delta","id":"t","delta":"two "}"#,
        r#"{"type":"text-delta","id":"t","delta":"three"}"#,
        r#"{"type":"text-end","id":"t"}"#,
        r#"{"type":"finish"}"#,
    ];
    texts.map(|text| Bytes::from_static(text.as_bytes())).into()
}

/// A text part of exactly so many bytes.
fn text_of(bytes: usize) -> Bytes {
    let (head, tail) = (r#"{"type":"text-delta","id":"t","delta":""#, "\"}");
    let fill = "x".repeat(bytes - head.len() - tail.len());
    Bytes::from(format!("{head}{fill}{tail}"))
}

impl Script {
    pub(super) fn of(prompt: &str) -> Self {
        let fault = Fault::of(prompt);
        let spoilt = match fault {
            Fault::LongLine => Some(text_of(2 * limits::PART_BYTES)),
            Fault::HugeLine => Some(text_of(159 * limits::PART_BYTES / 10)),
            Fault::OneOver => Some(text_of(limits::PART_BYTES + 1)),
            Fault::Nul => Some(Bytes::from_static(
                b"{\"type\":\"text-delta\",\"id\":\"t\",\"delta\":\"a\0b\"}",
            )),
            Fault::Torn => Some(Bytes::from_static(
                b"{\"type\":\"text-delta\",\"id\":\"t\",\"delta\":\"a\xc3\"}",
            )),
            _ => None,
        };
        let mut parts = parts();
        if let Some(spoilt) = spoilt {
            parts[SPOILT as usize] = spoilt;
        }
        Self { fault, parts }
    }

    /// The turn's log.
    pub(super) fn log(&self, generation: Generation, turn: TurnNo) -> Vec<u8> {
        let at = Timestamp::UNIX_EPOCH;
        let mut log = log_record(generation, "fake", turn).into_bytes();
        let mut digest = TurnDigest::default();
        for (index, part) in (0..).map(PartIndex).zip(&self.parts) {
            write_part_record(&mut log, at, turn, index, part);
            digest.add(part);
        }
        let end = TurnEnd {
            turn,
            parts: PARTS,
            bytes: self.parts.iter().map(|p| p.len() as u64).sum(),
            sha256: digest.hex(),
            state: TurnState::Succeeded,
            dropped: None,
        };
        log.extend_from_slice(turn_end_record(at, &end).as_bytes());
        match self.fault {
            Fault::Crlf => {
                log.split_inclusive(|b| *b == b'\n')
                    .fold(Vec::new(), |mut out, line| {
                        out.extend_from_slice(&line[..line.len() - 1]);
                        out.extend_from_slice(b"\r\n");
                        out
                    })
            }
            Fault::OpenEnd => {
                log.pop();
                log
            }
            _ => log,
        }
    }

    /// The stream's events from an index on.
    pub(super) fn events(&self, turn: u32, from: u32) -> Vec<Bytes> {
        let mut events = Vec::new();
        for (index, part) in (0u32..).zip(&self.parts).skip(from as usize) {
            let mut event = Vec::with_capacity(part.len() + 32);
            if self.fault != Fault::NoIds {
                event.extend_from_slice(format!("id: {turn}.{index}\n").as_bytes());
            }
            event.extend_from_slice(b"data: ");
            event.extend_from_slice(part);
            event.extend_from_slice(b"\n\n");
            events.push(event.into());
        }
        if !matches!(self.fault, Fault::NoDone | Fault::NeverEnds) {
            events.push(Bytes::from_static(b"data: [DONE]\n\n"));
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spoilt_part_has_the_size_its_fault_names() {
        let script = Script::of("please fault=one-over");
        assert_eq!(script.parts[SPOILT as usize].len(), limits::PART_BYTES + 1);
        assert_eq!(script.parts.len(), PARTS as usize);
        assert_eq!(Script::of("plain").fault, Fault::None);
    }

    #[test]
    fn log_faults_are_in_the_log() {
        let log = |word: &str| Script::of(&format!("fault={word}")).log(Generation(1), TurnNo(1));
        assert!(log("none").ends_with(b"}\n"));
        assert!(log("open-end").ends_with(b"}"));
        assert!(log("crlf").ends_with(b"}\r\n"));
        assert_eq!(
            log("none").iter().filter(|b| **b == b'\n').count(),
            PARTS as usize + 2
        );
    }
}
