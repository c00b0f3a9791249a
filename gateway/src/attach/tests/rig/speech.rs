//! What is said, as a driver sends it, as the store has it, and as a viewer is sent it.

use bex_proto::ids::PartId;
use bex_proto::transcript::{Part, inspect};
use bytes::Bytes;

pub(in crate::attach::tests) fn chunk(turn: u32, index: u32, text: impl Into<String>) -> Part {
    let text = text.into();
    let head = inspect(text.as_bytes()).expect("a part");
    Part {
        id: PartId::new(turn, index),
        head,
        bytes: Bytes::from(text),
        spoken_at: None,
    }
}

/// A whole text part: start, deltas, end. `n` chunks.
pub(in crate::attach::tests) fn speech(n: u32) -> Vec<String> {
    (0..n)
        .map(|i| match i {
            0 => r#"{"type":"text-start","id":"t"}"#.to_owned(),
            i if i + 1 == n => r#"{"type":"text-end","id":"t"}"#.to_owned(),
            i => format!(r#"{{"type":"text-delta","id":"t","delta":"{i} "}}"#),
        })
        .collect()
}

pub(in crate::attach::tests) fn parts(turn: u32, said: &[String]) -> Vec<Part> {
    said.iter()
        .zip(0..)
        .map(|(text, index)| chunk(turn, index, text.clone()))
        .collect()
}

/// What a viewer is sent for stored parts.
pub(in crate::attach::tests) fn events(turn: u32, said: &[String]) -> Vec<String> {
    said.iter()
        .enumerate()
        .map(|(index, text)| format!("{turn}.{index} {text}"))
        .collect()
}

/// The driver's side of the same.
pub(in crate::attach::tests) fn wire(turn: u32, said: &[String], from: usize) -> String {
    said.iter()
        .enumerate()
        .skip(from)
        .map(|(index, text)| format!("id: {turn}.{index}\ndata: {text}\n\n"))
        .collect()
}

/// Only the events of parts.
pub(in crate::attach::tests) fn of_parts(all: &[String]) -> Vec<String> {
    all.iter()
        .filter(|event| event.starts_with(|c: char| c.is_ascii_digit()))
        .cloned()
        .collect()
}

/// Only the ids, for messages that a person can read.
pub(in crate::attach::tests) fn ids(events: &[String]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| event.split(' ').next())
        .collect()
}
