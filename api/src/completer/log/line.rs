//! One line of a log.

use bex_proto::driver::{LogRecord, PartRecord, TurnEnd};
use bex_proto::ids::PartId;
use bex_proto::transcript::{Part, UNSTORABLE_KIND, inspect, storable};
use bex_proto::ui_stream::ChunkHead;
use bex_proto::{PartIndex, TurnNo};
use bytes::Bytes;
use jiff::Timestamp;
use memchr::memmem;

use super::{Expected, Form};

/// A part is the last field of its record.
const PART_KEY: &[u8] = br#""part":"#;

pub(super) enum Line {
    Part(Part),
    /// Blank, the log's own head, a marker, another turn's record, a record of a later release.
    Nothing,
    TurnEnd(TurnEnd),
    /// The log belongs to somebody else.
    Foreign,
    /// Not a record, or a part without a usable id.
    Garbage,
}

/// What a line of the window comes to; a part shares the window's bytes.
pub(super) fn read(expected: &Expected, window: &Bytes, text: &[u8]) -> Line {
    if text.trim_ascii().is_empty() {
        return Line::Nothing;
    }
    usual(expected, window, text).unwrap_or_else(|| any(expected, window, text))
}

fn any(expected: &Expected, window: &Bytes, text: &[u8]) -> Line {
    match LogRecord::parse(text) {
        Some(LogRecord::Log {
            generation, turn, ..
        }) => {
            if generation == expected.generation && turn == expected.turn {
                Line::Nothing
            } else {
                Line::Foreign
            }
        }
        Some(LogRecord::UiMessage {
            at,
            turn,
            part_index,
            part,
        }) => numbered(expected, turn, part_index, |id| {
            part_of(id, at, window.slice_ref(part.as_bytes()))
        }),
        // the turn-end that must follow says it again, with its bounds
        Some(LogRecord::Dropped { .. }) => Line::Nothing,
        Some(LogRecord::TurnEnd(end))
            if end.turn == expected.turn && expected.form == Form::Current =>
        {
            Line::TurnEnd(end)
        }
        Some(LogRecord::TurnEnd(_)) => Line::Nothing,
        None => match salvage(text) {
            Some(found) => numbered(expected, found.turn, found.index, |id| {
                part_of(id, found.at, window.slice_ref(found.part))
            }),
            None if is_later_record(text) => Line::Nothing,
            None => Line::Garbage,
        },
    }
}

/// A part as our driver writes it: its text is gone through once, and is the record's part where it is one JSON object. What is
/// anything else is read the long way.
fn usual(expected: &Expected, window: &Bytes, text: &[u8]) -> Option<Line> {
    let record = PartRecord::read(text)?;
    let head = inspect(record.part).ok()?;
    let (turn, index) = (Some(record.turn), Some(record.index));
    Some(numbered(expected, turn, index, |id| Part {
        id,
        head,
        bytes: window.slice_ref(record.part),
        spoken_at: record.at,
    }))
}

pub(super) fn is_stand_in(part: &Part) -> bool {
    part.head.kind.as_str() == UNSTORABLE_KIND
}

/// Gives the part its id, if the record is this turn's and has one. An index is never invented.
fn numbered(
    expected: &Expected,
    turn: Option<TurnNo>,
    index: Option<PartIndex>,
    part: impl FnOnce(PartId) -> Part,
) -> Line {
    let ours = match (expected.form, turn) {
        (_, Some(turn)) if turn == expected.turn => true,
        (Form::Legacy, None | Some(TurnNo(0))) => true,
        _ => false,
    };
    match index {
        _ if !ours => Line::Nothing,
        // what a signed column cannot hold is no id of the wire
        Some(index) if i32::try_from(index.0).is_ok() => Line::Part(part(PartId {
            turn: expected.turn,
            index,
        })),
        _ => Line::Garbage,
    }
}

fn part_of(id: PartId, spoken_at: Option<Timestamp>, bytes: Bytes) -> Part {
    let (head, bytes) = storable(bytes);
    Part {
        id,
        head,
        bytes,
        spoken_at,
    }
}

struct Salvaged<'a> {
    at: Option<Timestamp>,
    turn: Option<TurnNo>,
    index: Option<PartIndex>,
    part: &'a [u8],
}

/// A record whose part breaks it: a NUL byte, bytes that are not UTF-8, text that is not JSON. Its head still names it.
fn salvage(line: &[u8]) -> Option<Salvaged<'_>> {
    let key = memmem::find(line, PART_KEY)?;
    let part = line[key + PART_KEY.len()..]
        .trim_ascii()
        .strip_suffix(b"}")?
        .trim_ascii_end();
    let head = [&line[..key + PART_KEY.len()], b"0}"].concat();
    match LogRecord::parse(&head)? {
        LogRecord::UiMessage {
            at,
            turn,
            part_index,
            ..
        } if inspect(part).is_err() => Some(Salvaged {
            at,
            turn,
            index: part_index,
            part,
        }),
        _ => None,
    }
}

/// Whole JSON objects with a type are records, also when this release does not know them.
fn is_later_record(line: &[u8]) -> bool {
    const KNOWN: [&str; 4] = ["log", "ui-message", "dropped", "turn-end"];
    std::str::from_utf8(line)
        .ok()
        .and_then(ChunkHead::read)
        .is_some_and(|head| !KNOWN.contains(&head.kind.as_str()))
}

#[cfg(test)]
mod tests {
    use bex_proto::Generation;
    use bex_proto::driver::write_part_record;

    use super::*;

    /// Everything that a line comes to.
    fn told(line: &Line) -> String {
        match line {
            Line::Part(part) => format!("{part:?}"),
            Line::Nothing => "nothing".into(),
            Line::TurnEnd(end) => format!("{end:?}"),
            Line::Foreign => "foreign".into(),
            Line::Garbage => "garbage".into(),
        }
    }

    #[test]
    fn the_short_way_and_the_long_way_come_to_the_same() {
        let at = "2026-01-02T03:04:05.006Z".parse().expect("a time");
        let parts = [
            r#"{"type":"text-delta","id":"1","delta":"a } \" b"}"#,
            r#"{"type":"data-x","data":{"deep":[1,{"x":"\ud800"}]}}"#,
            r#"{"type":"tool-output-available","toolCallId":"c","output":"é"}"#,
        ];
        // pieces that are put into lines, beside single bytes
        const PIECES: [&[u8]; 8] = [
            b"{",
            b"}",
            b"\"",
            b",\"part\":{}",
            b"\\",
            b" ",
            b"\0",
            b"\xff",
        ];
        let mut state = 20_261_130_u64;
        let mut below = |bound: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        let (mut short, mut long) = (0, 0);
        for _ in 0..50_000 {
            let mut line = Vec::new();
            let part = parts[below(parts.len())].as_bytes();
            let turn = TurnNo(1 + below(2) as u32);
            write_part_record(&mut line, at, turn, PartIndex(below(20) as u32), part);
            line.pop();
            for _ in 0..below(3) {
                let here = below(line.len());
                match below(3) {
                    0 => drop(line.remove(here)),
                    1 => line[here] = line[below(line.len())],
                    _ => drop(line.splice(here..here, PIECES[below(8)].iter().copied())),
                }
            }
            let line = Bytes::from(line);
            for form in [Form::Current, Form::Legacy] {
                let expected = Expected {
                    turn: TurnNo(1),
                    generation: Generation(1),
                    form,
                };
                match usual(&expected, &line, &line) {
                    Some(usual) => {
                        assert_eq!(
                            told(&usual),
                            told(&any(&expected, &line, &line)),
                            "{line:?}"
                        );
                        short += 1;
                    }
                    None => long += 1,
                }
            }
        }
        assert!(short > 10_000 && long > 10_000, "{short} {long}");
    }
}
