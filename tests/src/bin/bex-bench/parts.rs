//! Parts of a realistic mix: 60 % text deltas, 30 % tool outputs, 10 % tool inputs, the same for every run.

use bex_proto::PartId;
use bex_proto::transcript::Part;
use bex_proto::ui_stream::ChunkHead;
use bytes::Bytes;
use serde_json::json;

/// A small generator of numbers: the bench needs the same input every time, not good randomness.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn text(&mut self, words: u64) -> String {
        let mut text = String::new();
        for _ in 0..words {
            for _ in 0..3 + self.below(7) {
                text.push(char::from(b'a' + self.below(26) as u8));
            }
            text.push(' ');
        }
        text
    }
}

/// One part's JSON. `lines` sets the size of tool outputs and with it the mean.
pub fn chunk(numbers: &mut Numbers, index: u32, lines: u64) -> String {
    match numbers.below(10) {
        0..6 => {
            let words = 1 + numbers.below(12);
            json!({"type": "text-delta", "id": format!("msg_{}", index / 50), "delta": numbers.text(words)})
        }
        6..9 => {
            let lines = 5 + numbers.below(lines);
            let stdout = (0..lines).map(|_| numbers.text(10)).collect::<Vec<_>>().join("\n");
            json!({"type": "tool-output-available", "toolCallId": format!("call_{index}"), "output": {"stdout": stdout, "exitCode": 0}})
        }
        _ => json!({"type": "tool-input-available", "toolCallId": format!("call_{index}"), "toolName": "bash",
                    "input": {"command": numbers.text(4)}}),
    }
    .to_string()
}

/// Tool outputs of this many lines at most give a mean of about 690 bytes: 80 000 parts stay inside a session's quota.
pub const SMALL_LINES: u64 = 46;
/// And this many a mean of about 830 bytes, as agents' logs have.
pub const USUAL_LINES: u64 = 57;

/// `count` parts of a turn.
pub fn parts(turn: u32, count: u32, lines: u64) -> Vec<Part> {
    let mut numbers = Numbers::new(u64::from(turn) + 20_261_130);
    (0..count)
        .map(|index| part(turn, index, chunk(&mut numbers, index, lines)))
        .collect()
}

/// Parts of a turn until they have `bytes` in all.
pub fn parts_of_bytes(turn: u32, bytes: usize, lines: u64) -> Vec<Part> {
    let mut numbers = Numbers::new(u64::from(turn) + 20_261_130);
    let (mut parts, mut sum) = (Vec::new(), 0);
    while sum < bytes {
        let index = parts.len() as u32;
        let part = part(turn, index, chunk(&mut numbers, index, lines));
        sum += part.bytes.len();
        parts.push(part);
    }
    parts
}

fn part(turn: u32, index: u32, json: String) -> Part {
    let head = ChunkHead::read(&json).expect("a generated chunk is one");
    Part {
        id: PartId::new(turn, index),
        head,
        bytes: Bytes::from(json),
        spoken_at: None,
    }
}

/// Bytes of all parts.
pub fn size(parts: &[Part]) -> usize {
    parts.iter().map(|p| p.bytes.len()).sum()
}
