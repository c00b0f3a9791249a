//! The parsing of a harvest alone: the reader of a log's window, from the bytes to the batches that are appended, beside a bare pass over
//! the same bytes in the same run.
//!
//! A *bare pass* goes over the bytes once, splits the lines and reads each as a frame with serde, its payload a borrowed `RawValue`: what
//! nobody can leave out. It checks no turn, looks into no payload (the harvest names each part's kind and id, and says of what it can not
//! store that it can not), and builds nothing.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, ensure};
use bex_api::completer::log::{Expected, Form, LogEnd, LogReader};
use bex_proto::TurnNo;
use bex_proto::exec::{LogWindow, WindowEnding};
use bex_proto::transcript::Part;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::RUNS;
use crate::harvest::log;
use bex_tests::bench::database::GENERATION;
use bex_tests::bench::report::{Figure, median};

const MIB: f64 = 1024.0 * 1024.0;
/// Passes of one run: one alone takes some 15 ms.
const PASSES: usize = 8;

pub fn run(parts: &[Part]) -> anyhow::Result<Figure> {
    let log = Bytes::from(log(parts));
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        ours.push(rate(&log, parts.len(), read)?);
        bare.push(rate(&log, parts.len(), pass)?);
    }
    let (ours, bare) = (median(ours), median(bare));
    Ok(Figure {
        name: "harvest of a 16 MiB log, parsing alone",
        value: format!("{ours:.0} MiB/s"),
        beside: format!(
            "a bare pass with borrowed payloads: {bare:.0} MiB/s ({:.0} %)",
            100.0 * ours / bare
        ),
        floor: "≥ 70 % of the bare pass",
        holds: ours >= 0.7 * bare,
    })
}

/// MiB of log a second.
fn rate(
    log: &Bytes,
    parts: usize,
    read: impl Fn(&Bytes) -> anyhow::Result<usize>,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    for _ in 0..PASSES {
        let found = read(log)?;
        ensure!(found == parts, "{found} of {parts} parts were read");
    }
    Ok((PASSES * log.len()) as f64 / MIB / begun.elapsed().as_secs_f64())
}

/// As the harvest reads a window.
fn read(log: &Bytes) -> anyhow::Result<usize> {
    let expected = Expected {
        turn: TurnNo(1),
        generation: GENERATION,
        form: Form::Current,
    };
    let window = LogWindow {
        generation: Some(GENERATION),
        log_id: "bench".into(),
        offset: 0,
        length: log.len() as u64,
        size: log.len() as u64,
        // proved where the answer is read
        sha256: String::new(),
        ending: WindowEnding::Line,
    };
    let mut reader = LogReader::new(expected, &window, log.clone());
    let mut parts = 0;
    while let Some(batch) = reader.next_batch() {
        parts += black_box(batch).parts.len();
    }
    let is_whole = matches!(reader.end(), Some(LogEnd::TurnEnd(_)));
    ensure!(is_whole, "the log was not read to its end");
    Ok(parts)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    at: Option<&'a RawValue>,
    turn: Option<u32>,
    part_index: Option<u32>,
    #[serde(borrow)]
    part: Option<&'a RawValue>,
}

fn pass(log: &Bytes) -> anyhow::Result<usize> {
    let (mut parts, mut rest) = (0, &log[..]);
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).context("a line without its end")?;
        let frame: Frame<'_> = serde_json::from_slice(&rest[..end])?;
        parts += usize::from(frame.part.is_some());
        black_box((
            frame.r#type,
            frame.at,
            frame.turn,
            frame.part_index,
            frame.part,
        ));
        rest = &rest[end + 1..];
    }
    Ok(parts)
}
