//! A turn's log: its records, written and read, and the digest over its parts.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::Sha256;

use crate::ids::{Generation, PartIndex, TurnNo};

crate::session::words! {
    /// How a turn ended, in the driver's words.
    TurnState {
        /// The agent came to its end.
        Succeeded = "succeeded",
        /// The agent or the driver failed.
        Failed = "failed",
        /// Somebody stopped it.
        Stopped = "stopped",
    }
}

/// Parts a full log did not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// First dropped index.
    pub first: PartIndex,
    /// Last dropped index.
    pub last: PartIndex,
    /// How many.
    pub count: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// A digest in hexadecimal. What is longer is none, and would be kept with its turn outside every quota.
const DIGEST_CHARS: usize = 64;

/// The last record of a turn's log: what was said, as computed inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnEnd {
    /// The turn.
    pub turn: TurnNo,
    /// Number of emitted parts, dropped ones too.
    pub parts: u32,
    /// Their bytes.
    pub bytes: u64,
    /// SHA-256 over every emitted part in order, each followed by a newline; lower-case hexadecimal.
    pub sha256: String,
    /// How it ended.
    pub state: TurnState,
    /// What the log did not keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Dropped>,
}

/// One line of a turn's log, its part borrowed verbatim.
#[derive(Debug)]
pub enum LogRecord<'a> {
    /// First line.
    Log {
        /// The generation that wrote it.
        generation: Generation,
        /// Identity of this file: a rewritten log has another.
        log_id: String,
        /// The turn.
        turn: TurnNo,
    },
    /// One part.
    UiMessage {
        /// The driver's clock.
        at: Option<Timestamp>,
        /// The turn; 0 or absent in old logs.
        turn: Option<TurnNo>,
        /// Absent in very old logs; never invented by a reader.
        part_index: Option<PartIndex>,
        /// The part's bytes.
        part: &'a str,
    },
    /// The log is full from here on.
    Dropped {
        /// The turn.
        turn: TurnNo,
        /// First part that is not here.
        first: PartIndex,
    },
    /// Last line.
    TurnEnd(TurnEnd),
}

/// A line's fields. A tagged enum would copy the whole record to find its tag, and cannot borrow the part.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    #[serde(borrow)]
    r#type: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    at: Option<&'a RawValue>,
    turn: Option<TurnNo>,
    part_index: Option<PartIndex>,
    #[serde(borrow)]
    part: Option<&'a RawValue>,
    generation: Option<Generation>,
    log_id: Option<String>,
    first: Option<PartIndex>,
}

impl<'a> LogRecord<'a> {
    /// Reads one line, with or without its newline. `None` for what is no record of this contract.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let fields: Fields<'a> = serde_json::from_slice(line).ok()?;
        match fields.r#type.as_ref() {
            "log" => Some(Self::Log {
                generation: fields.generation?,
                log_id: fields.log_id?,
                turn: fields.turn?,
            }),
            "ui-message" => Some(Self::UiMessage {
                at: fields.at.and_then(time_of),
                turn: fields.turn,
                part_index: fields.part_index,
                part: fields.part?.get(),
            }),
            "dropped" => Some(Self::Dropped {
                turn: fields.turn?,
                first: fields.first?,
            }),
            "turn-end" => serde_json::from_slice(line)
                .ok()
                .filter(|end: &TurnEnd| is_digest(&end.sha256))
                .map(Self::TurnEnd),
            _ => None,
        }
    }
}

/// Whether it is a SHA-256 as the contract writes one: a column may not hold what a sandbox puts in its place.
fn is_digest(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.len() == DIGEST_CHARS && text.bytes().all(hex)
}

/// A time that cannot be read is none: it must not cost the part beside it.
fn time_of(at: &RawValue) -> Option<Timestamp> {
    let text: std::borrow::Cow<'_, str> = serde_json::from_str(at.get()).ok()?;
    text.parse().ok()
}

/// Writes one part record: `{"at","type":"ui-message","turn","partIndex","part"}` and a newline.
pub fn write_part_record(
    out: &mut Vec<u8>,
    at: Timestamp,
    turn: TurnNo,
    index: PartIndex,
    part: &[u8],
) {
    out.extend_from_slice(br#"{"at":""#);
    out.extend_from_slice(crate::time::format(at).as_bytes());
    out.extend_from_slice(
        format!(r#"","type":"ui-message","turn":{turn},"partIndex":{index},"part":"#).as_bytes(),
    );
    out.extend_from_slice(part);
    out.extend_from_slice(b"}\n");
}

/// A line exactly as [`write_part_record`] writes one, its part not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartRecord<'a> {
    /// The driver's clock, if it can be read.
    pub at: Option<Timestamp>,
    /// The turn.
    pub turn: TurnNo,
    /// The index.
    pub index: PartIndex,
    /// From its first brace to its last. Where this is one JSON object, the line is a record and this its part.
    pub part: &'a [u8],
}

impl<'a> PartRecord<'a> {
    /// Reads a line without its newline. `None` for every other form, which [`LogRecord::parse`] may still know.
    pub fn read(line: &'a [u8]) -> Option<Self> {
        let line = line.strip_prefix(br#"{"at":""#)?;
        let (at, line) = line.split_at(memchr::memchr(b'"', line)?);
        let line = line.strip_prefix(br#"","type":"ui-message","turn":"#)?;
        let (turn, line) = number(line)?;
        let line = line.strip_prefix(br#","partIndex":"#)?;
        let (index, line) = number(line)?;
        let part = line.strip_prefix(br#","part":"#)?.strip_suffix(b"}")?;
        let is_plain = |b: &u8| b.is_ascii_graphic() && *b != b'\\';
        if !at.iter().all(is_plain) || part.first() != Some(&b'{') || part.last() != Some(&b'}') {
            return None;
        }
        let long_way = || std::str::from_utf8(at).ok()?.parse().ok();
        Some(Self {
            at: crate::time::read(at).or_else(long_way),
            turn: TurnNo(turn),
            index: PartIndex(index),
            part,
        })
    }
}

/// A number as JSON writes one that is whole and not negative, and what is behind it.
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (number, behind) = text.split_at(digits);
    if digits > 1 && number[0] == b'0' {
        return None;
    }
    let add = |sum: u32, digit: &u8| sum.checked_mul(10)?.checked_add(u32::from(digit - b'0'));
    let value = number.iter().try_fold(0, add)?;
    (digits > 0).then_some((value, behind))
}

/// The first line of a turn's log, newline included.
pub fn log_record(generation: Generation, log_id: &str, turn: TurnNo) -> String {
    format!(
        "{{\"type\":\"log\",\"generation\":{generation},\"logId\":\"{log_id}\",\"turn\":{turn}}}\n"
    )
}

/// The record that closes a log for parts, newline included.
pub fn dropped_record(turn: TurnNo, first: PartIndex) -> String {
    format!("{{\"type\":\"dropped\",\"turn\":{turn},\"first\":{first}}}\n")
}

/// The last record, newline included.
pub fn turn_end_record(at: Timestamp, end: &TurnEnd) -> String {
    #[derive(Serialize)]
    struct Record<'a> {
        #[serde(with = "crate::time")]
        at: Timestamp,
        r#type: &'static str,
        #[serde(flatten)]
        end: &'a TurnEnd,
    }
    let mut line = serde_json::to_string(&Record {
        at,
        r#type: "turn-end",
        end,
    })
    .expect("a turn end is plain data and always serialises");
    line.push('\n');
    line
}

/// The digest of a turn: every part followed by a newline.
#[derive(Debug, Clone, Default)]
pub struct TurnDigest(Sha256);

impl TurnDigest {
    /// Adds the next part.
    pub fn add(&mut self, part: &[u8]) {
        use sha2::Digest;
        self.0.update(part);
        self.0.update(b"\n");
    }

    /// Lower-case hexadecimal.
    pub fn hex(&self) -> String {
        use sha2::Digest;
        hex::encode(self.0.clone().finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_back_and_keep_the_parts_bytes() {
        let at: Timestamp = "2026-01-02T03:04:05.006Z".parse().expect("a time");
        let part = r#"{"type":"text-delta","id":"1","delta":"a\u0000 \/ é"}"#;
        let mut line = Vec::new();
        write_part_record(&mut line, at, TurnNo(3), PartIndex(7), part.as_bytes());
        match LogRecord::parse(&line).expect("a record") {
            LogRecord::UiMessage {
                at: Some(read),
                turn: Some(TurnNo(3)),
                part_index: Some(PartIndex(7)),
                part: raw,
            } => {
                assert_eq!((read, raw), (at, part));
            }
            other => panic!("{other:?}"),
        }
        let end = TurnEnd {
            turn: TurnNo(3),
            parts: 8,
            bytes: 9,
            sha256: "ab".repeat(DIGEST_CHARS / 2),
            state: TurnState::Stopped,
            dropped: None,
        };
        let line = turn_end_record(at, &end);
        assert_eq!(
            line,
            "{\"at\":\"2026-01-02T03:04:05.006Z\",\"type\":\"turn-end\",\"turn\":3,\"parts\":8,\"bytes\":9,\"sha256\":\"DIGEST\",\"state\":\"stopped\"}\n"
                .replace("DIGEST", &end.sha256)
        );
        assert!(
            matches!(LogRecord::parse(line.as_bytes()), Some(LogRecord::TurnEnd(read)) if read == end)
        );
        assert!(matches!(
            LogRecord::parse(log_record(Generation(2), "x", TurnNo(3)).as_bytes()),
            Some(LogRecord::Log {
                generation: Generation(2),
                ..
            })
        ));
        assert!(matches!(
            LogRecord::parse(dropped_record(TurnNo(3), PartIndex(9)).as_bytes()),
            Some(LogRecord::Dropped {
                first: PartIndex(9),
                ..
            })
        ));
    }

    #[test]
    fn the_usual_form_is_read_as_every_form_is() {
        let at: Timestamp = "2026-01-02T03:04:05.006Z".parse().expect("a time");
        let part = r#"{"type":"text-delta","id":"1","delta":"a } \" b"}"#;
        let mut line = Vec::new();
        write_part_record(&mut line, at, TurnNo(3), PartIndex(0), part.as_bytes());
        line.pop();
        let read = PartRecord::read(&line).expect("the usual form");
        assert_eq!(
            (read.at, read.turn, read.index),
            (Some(at), TurnNo(3), PartIndex(0))
        );
        assert_eq!(read.part, part.as_bytes());
        let text = String::from_utf8(line).expect("text");
        for (from, to) in [
            ("\"at\":", "\"at\": "),
            ("2026", "20\\u00326"),
            ("2026", "20 26"),
            ("ui-message", "ui-messages"),
            ("\"turn\":3", "\"turn\":03"),
            ("\"turn\":3", "\"turn\":-3"),
            ("\"turn\":3", "\"turn\":"),
            ("\"turn\":3", "\"turn\":4294967296"),
            ("\"partIndex\":0", "\"partIndex\":0.0"),
            ("\"partIndex\":0,", ""),
            ("\"part\":{", "\"part\": {"),
            ("\"part\":{", "\"part\":[{"),
        ] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text);
            assert_eq!(PartRecord::read(other.as_bytes()), None, "{other}");
        }
        assert_eq!(PartRecord::read(format!("{text} ").as_bytes()), None);
        let late = text.replacen("2026", "soon", 1);
        let late = PartRecord::read(late.as_bytes()).expect("the usual form");
        assert_eq!((late.at, late.index), (None, PartIndex(0)));
    }

    #[test]
    fn odd_fields_cost_no_part_and_no_memory() {
        for at in [r#""yesterday""#, "7", "null", r#""2026-01-02""#] {
            let line = format!(
                r#"{{"at":{at},"type":"ui-message","turn":1,"partIndex":2,"part":{{"type":"x"}}}}"#
            );
            match LogRecord::parse(line.as_bytes()) {
                Some(LogRecord::UiMessage { at: None, part, .. }) => {
                    assert_eq!(part, r#"{"type":"x"}"#);
                }
                other => panic!("{at}: {other:?}"),
            }
        }
        for sha256 in [
            "a".repeat(DIGEST_CHARS + 1),
            "a".repeat(DIGEST_CHARS - 1),
            "A".repeat(DIGEST_CHARS),
            "\0".repeat(DIGEST_CHARS),
        ] {
            let end = TurnEnd {
                turn: TurnNo(1),
                parts: 1,
                bytes: 1,
                sha256,
                state: TurnState::Succeeded,
                dropped: None,
            };
            let line = turn_end_record(Timestamp::UNIX_EPOCH, &end);
            assert!(LogRecord::parse(line.as_bytes()).is_none(), "{line}");
        }
    }
}
