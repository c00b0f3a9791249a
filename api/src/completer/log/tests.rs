use bex_proto::PartIndex;
use bex_proto::driver::{
    TurnDigest, TurnState, dropped_record, log_record, turn_end_record, write_part_record,
};
use bex_proto::ids::PartId;
use bex_proto::transcript::Unstorable;
use bex_proto::transcript::{sha256_hex, unstorable_stand_in_of};
use jiff::Timestamp;

use super::*;

const EXPECTED: Expected = Expected {
    turn: TurnNo(2),
    generation: Generation(3),
    form: Form::Current,
};

fn at() -> Timestamp {
    "2026-01-02T03:04:05.006Z".parse().expect("a time")
}

fn record(turn: u32, index: u32, part: &[u8]) -> Vec<u8> {
    let mut line = Vec::new();
    write_part_record(&mut line, at(), TurnNo(turn), PartIndex(index), part);
    line
}

fn delta(n: u32) -> Vec<u8> {
    format!(r#"{{"type":"text-delta","id":"t","delta":"word {n}"}}"#).into_bytes()
}

fn turn_end(parts: u32) -> TurnEnd {
    let sha256 = TurnDigest::default().hex();
    TurnEnd {
        turn: TurnNo(2),
        parts,
        bytes: 1,
        sha256,
        state: TurnState::Succeeded,
        dropped: None,
    }
}

fn head() -> Vec<u8> {
    log_record(Generation(3), "log-a", TurnNo(2)).into_bytes()
}

struct Read {
    parts: Vec<Part>,
    unstorable: bool,
    to: u64,
    end: Option<LogEnd>,
    batches: usize,
}

fn read_as(expected: Expected, log: &[u8], offset: u64, ending: WindowEnding) -> Read {
    let length = log.len() as u64;
    let window = LogWindow {
        generation: (expected.form == Form::Current).then_some(Generation(3)),
        log_id: "log-a".into(),
        offset,
        length,
        size: offset + length,
        sha256: sha256_hex(log),
        ending,
    };
    let bytes = if ending == WindowEnding::LineTooLong {
        Bytes::new()
    } else {
        Bytes::copy_from_slice(log)
    };
    let mut reader = LogReader::new(expected, &window, bytes);
    let mut read = Read {
        parts: Vec::new(),
        unstorable: false,
        to: offset,
        end: None,
        batches: 0,
    };
    while let Some(batch) = reader.next_batch() {
        assert_eq!(batch.from, read.to, "batches join without a gap");
        assert!(batch.parts.len() <= limits::HARVEST_BATCH_PARTS);
        let bytes: usize = batch.parts.iter().map(|p| p.bytes.len()).sum();
        assert!(bytes <= limits::HARVEST_BATCH_BYTES);
        read.to = batch.to;
        read.unstorable |= batch.marks == Marks::Unstorable;
        read.parts.extend(batch.parts);
        read.batches += 1;
    }
    read.end = reader.end().cloned();
    read
}

fn read(log: &[u8]) -> Read {
    read_as(EXPECTED, log, 0, WindowEnding::Line)
}

fn ids(read: &Read) -> Vec<u32> {
    read.parts.iter().map(|p| p.id.index.0).collect()
}

#[test]
fn a_plain_log_gives_its_parts_byte_for_byte_and_stops_before_its_end() {
    let mut log = head();
    for n in 0..5 {
        log.extend(record(2, n, &delta(n)));
    }
    let before_end = log.len() as u64;
    log.extend(turn_end_record(at(), &turn_end(5)).into_bytes());
    let read = read(&log);
    assert_eq!(ids(&read), [0, 1, 2, 3, 4]);
    for (n, part) in read.parts.iter().enumerate() {
        assert_eq!(part.bytes, delta(n as u32));
        assert_eq!((part.id.turn, part.spoken_at), (TurnNo(2), Some(at())));
    }
    assert_eq!(read.end, Some(LogEnd::TurnEnd(turn_end(5))));
    assert_eq!((read.to, read.unstorable), (before_end, false));
}

#[test]
fn what_cannot_be_stored_keeps_its_place_and_fails_nobody() {
    let big = {
        let mut part = br#"{"type":"text-delta","id":"t","delta":""#.to_vec();
        part.resize(limits::PART_BYTES + 1 - 2, b'x');
        part.extend(br#""}"#);
        part
    };
    let huge = {
        let mut part = br#"{"type":"text-delta","id":"t","delta":""#.to_vec();
        part.resize(15_900 * 1024, b'y');
        part.extend(br#""}"#);
        part
    };
    let cases: [(&[u8], Unstorable); 6] = [
        (&big, Unstorable::TooLarge),
        (&huge, Unstorable::TooLarge),
        (
            b"{\"type\":\"text-delta\",\"id\":\"t\",\"delta\":\"a\0b\"}",
            Unstorable::NulByte,
        ),
        (
            b"{\"type\":\"text-delta\",\"id\":\"t\",\"delta\":\"\xe2\x82\"}",
            Unstorable::NotUtf8,
        ),
        (b"{\"type\":\"text-delta\",\"id\":", Unstorable::NotJson),
        (b"[1,2]", Unstorable::NotJson),
    ];
    assert_eq!(big.len(), limits::PART_BYTES + 1);
    for (part, reason) in cases {
        let mut log = head();
        log.extend(record(2, 0, &delta(0)));
        log.extend(record(2, 1, part));
        log.extend(record(2, 2, &delta(2)));
        let read = read(&log);
        assert_eq!(ids(&read), [0, 1, 2], "{reason}");
        assert_eq!(
            read.parts[1].bytes,
            unstorable_stand_in_of(reason, part.len() as u64, &sha256_hex(part))
        );
        assert_eq!(
            (read.parts[0].bytes.to_vec(), read.parts[2].bytes.to_vec()),
            (delta(0), delta(2))
        );
        assert!(read.unstorable, "{reason}");
        assert_eq!(read.to, log.len() as u64);
    }
}

#[test]
fn odd_but_harmless_lines_change_nothing() {
    let crlf = |mut line: Vec<u8>| {
        line.pop();
        line.extend(b"\r\n");
        line
    };
    let mut log = crlf(head());
    log.extend(b"\n\r\n   \n");
    log.extend(crlf(record(2, 0, &delta(0))));
    log.extend(record(1, 7, &delta(7)));
    log.extend(b"{\"type\":\"checkpoint\",\"n\":1}\n");
    log.extend(record(2, 1, &delta(1)));
    log.extend(crlf(turn_end_record(at(), &turn_end(2)).into_bytes()));
    let read = read(&log);
    assert_eq!(ids(&read), [0, 1]);
    assert_eq!(read.parts[0].bytes, delta(0));
    assert!(!read.unstorable && matches!(read.end, Some(LogEnd::TurnEnd(_))));
}

#[test]
fn holes_repeats_and_a_dropped_record_come_as_they_are() {
    let mut log = head();
    for n in [0, 3, 3, 1] {
        log.extend(record(2, n, &delta(n)));
    }
    log.extend(dropped_record(TurnNo(2), PartIndex(4)).into_bytes());
    let read = read(&log);
    assert_eq!(ids(&read), [0, 3, 3, 1]);
    assert!(!read.unstorable);
    assert_eq!(
        (read.end, read.to),
        (Some(LogEnd::WindowEnd), log.len() as u64)
    );
}

#[test]
fn lines_that_name_no_part_are_stepped_over_and_mark_the_turn() {
    for garbage in [
        &b"not a record"[..],
        b"\x00\x01\x02",
        b"{\"type\":\"ui-message\",\"turn\":2,\"part\":{\"type\":\"x\"}}",
        b"{\"type\":\"ui-message\",\"turn\":2,\"partIndex\":4294967295,\"part\":{\"type\":\"x\"}}",
        b"{\"type\":\"turn-end\",\"turn\":2}",
        b"ta\":\"rest of a line that began before this window\"}}",
    ] {
        let mut log = garbage.to_vec();
        log.push(b'\n');
        log.extend(record(2, 5, &delta(5)));
        let read = read(&log);
        assert_eq!(
            (ids(&read), read.unstorable),
            (vec![5], true),
            "{}",
            garbage.escape_ascii()
        );
    }
}

#[test]
fn another_turns_or_generations_log_gives_nothing() {
    for first in [
        log_record(Generation(2), "log-a", TurnNo(2)),
        log_record(Generation(3), "log-a", TurnNo(1)),
    ] {
        let mut log = first.into_bytes();
        log.extend(record(2, 0, &delta(0)));
        let read = read(&log);
        assert!(read.end == Some(LogEnd::Foreign) && read.parts.is_empty() && read.batches == 0);
    }
    let window = LogWindow {
        generation: Some(Generation(9)),
        log_id: "x".into(),
        offset: 0,
        length: 0,
        size: 0,
        sha256: sha256_hex(b""),
        ending: WindowEnding::Line,
    };
    let foreign = LogReader::new(EXPECTED, &window, Bytes::new());
    assert_eq!(foreign.end(), Some(&LogEnd::Foreign));
    let ours = LogWindow {
        generation: Some(Generation(3)),
        ..window.clone()
    };
    assert_eq!(LogReader::new(EXPECTED, &ours, Bytes::new()).end(), None);
    let legacy = Expected {
        form: Form::Legacy,
        ..EXPECTED
    };
    let foreign = LogReader::new(legacy, &window, Bytes::new());
    assert_eq!(foreign.end(), Some(&LogEnd::Foreign));
}

#[test]
fn a_last_line_without_newline_is_read_when_whole_and_flagged_when_torn() {
    let mut log = head();
    log.extend(record(2, 0, &delta(0)));
    let whole_lines = log.len() as u64;
    let end = turn_end_record(at(), &turn_end(1)).into_bytes();
    let unterminated = [&log[..], end.trim_ascii_end()].concat();
    let read = read_as(EXPECTED, &unterminated, 0, WindowEnding::Unterminated);
    assert_eq!(read.end, Some(LogEnd::TurnEnd(turn_end(1))));

    let part = record(2, 1, &delta(1));
    let whole = [&log[..], part.trim_ascii_end()].concat();
    let read = read_as(EXPECTED, &whole, 0, WindowEnding::Unterminated);
    assert_eq!(
        (ids(&read), read.end, read.to),
        (vec![0, 1], Some(LogEnd::WindowEnd), whole.len() as u64)
    );

    let torn = [&log[..], &part[..part.len() - 9]].concat();
    let read = read_as(EXPECTED, &torn, 0, WindowEnding::Unterminated);
    assert_eq!(
        (ids(&read), read.end, read.to),
        (vec![0], Some(LogEnd::Torn), whole_lines)
    );
}

#[test]
fn a_line_longer_than_a_window_is_stepped_over_by_offset() {
    let read = read_as(
        EXPECTED,
        &vec![b'x'; 70_000],
        500,
        WindowEnding::LineTooLong,
    );
    assert_eq!((read.to, read.unstorable, read.batches), (70_500, true, 1));
}

#[test]
fn batches_are_bounded_in_parts_and_bytes() {
    let mut log = head();
    for n in 0..2500 {
        log.extend(record(2, n, &delta(n)));
    }
    let small = read(&log);
    assert_eq!((small.parts.len(), small.batches), (2500, 3));
    let large = format!(
        r#"{{"type":"text-delta","id":"t","delta":"{}"}}"#,
        "z".repeat(400_000)
    )
    .into_bytes();
    let mut log = head();
    for n in 0..7 {
        log.extend(record(2, n, &large));
    }
    let large = read(&log);
    assert_eq!((large.parts.len(), large.batches), (7, 4));
}

#[test]
fn the_old_form_takes_records_without_a_turn_but_none_without_an_index() {
    let legacy = Expected {
        turn: TurnNo(4),
        generation: Generation(1),
        form: Form::Legacy,
    };
    let mut log = Vec::new();
    log.extend(record(4, 0, &delta(0)));
    log.extend(record(0, 1, &delta(1)));
    log.extend(b"{\"type\":\"ui-message\",\"partIndex\":2,\"part\":{\"type\":\"x\"}}\n");
    log.extend(record(3, 9, &delta(9)));
    let read = read_as(legacy, &log, 0, WindowEnding::Line);
    assert_eq!((ids(&read), read.unstorable), (vec![0, 1, 2], false));
    assert!(read.parts.iter().all(|p| p.id.turn == TurnNo(4)));
    let nameless = b"{\"type\":\"ui-message\",\"part\":{\"type\":\"x\"}}\n";
    let read = read_as(legacy, nameless, 0, WindowEnding::Line);
    assert_eq!((ids(&read), read.unstorable), (vec![], true));
    assert_eq!(PartId::new(4, 0).to_string(), "4.0");
}
