//! Parts of a realistic mix: 60 % text deltas, 30 % tool outputs, 10 % tool inputs, the same for every run.

use std::collections::VecDeque;

use bex_proto::PartId;
use bex_proto::transcript::Part;
use bex_proto::ui_stream::ChunkHead;
use bytes::Bytes;
use serde_json::{Value, json};

/// A small generator of numbers: the bench needs the same input every time, not good randomness.
pub struct Numbers(u64);

impl Numbers {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one, below `bound`.
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

/// A stream as agents speak it: every text begins before its deltas and every output follows its call, so that what is measured is
/// the usual way and not the repair of odd ones.
struct Speech {
    turn: u32,
    numbers: Numbers,
    lines: u64,
    position: u32,
    text: Option<u32>,
    waiting: VecDeque<Value>,
}

impl Speech {
    /// `lines` sets the size of tool outputs and with it the mean.
    fn new(turn: u32, lines: u64) -> Self {
        let numbers = Numbers::new(u64::from(turn) + 20_261_130);
        Self {
            turn,
            numbers,
            lines,
            position: 0,
            text: None,
            waiting: VecDeque::new(),
        }
    }

    fn next_chunk(&mut self) -> String {
        loop {
            if let Some(chunk) = self.waiting.pop_front() {
                return chunk.to_string();
            }
            let at = self.position;
            self.position += 1;
            match self.numbers.below(10) {
                0..6 => self.delta(at / 50),
                6..9 => {
                    let lines = 5 + self.numbers.below(self.lines);
                    let stdout: Vec<String> = (0..lines).map(|_| self.numbers.text(10)).collect();
                    self.call(
                        at,
                        json!({}),
                        json!({"stdout": stdout.join("\n"), "exitCode": 0}),
                    );
                }
                _ => {
                    let command = self.numbers.text(4);
                    self.call(at, json!({"command": command}), json!(""));
                }
            }
        }
    }

    fn delta(&mut self, message: u32) {
        // one message may hold many turns
        let turn = self.turn;
        let id = |message| format!("msg_{turn}_{message}");
        if self.text != Some(message) {
            if let Some(last) = self.text.replace(message) {
                self.waiting
                    .push_back(json!({"type": "text-end", "id": id(last)}));
            }
            self.waiting
                .push_back(json!({"type": "text-start", "id": id(message)}));
        }
        let words = 1 + self.numbers.below(12);
        let delta = self.numbers.text(words);
        self.waiting
            .push_back(json!({"type": "text-delta", "id": id(message), "delta": delta}));
    }

    fn call(&mut self, at: u32, input: Value, output: Value) {
        let id = format!("call_{}_{at}", self.turn);
        self.waiting.push_back(json!({"type": "tool-input-available", "toolCallId": id, "toolName": "bash", "input": input}));
        self.waiting.push_back(
            json!({"type": "tool-output-available", "toolCallId": id, "output": output}),
        );
    }
}

/// Tool outputs of this many lines at most keep 80 000 parts inside a session's quota.
pub const SMALL_LINES: u64 = 46;
/// And this many are what agents' logs have.
pub const USUAL_LINES: u64 = 57;

/// `count` parts of a turn.
pub fn parts(turn: u32, count: u32, lines: u64) -> Vec<Part> {
    let mut speech = Speech::new(turn, lines);
    (0..count)
        .map(|index| part(turn, index, speech.next_chunk()))
        .collect()
}

/// Parts of a turn until they have `bytes` in all.
pub fn parts_of_bytes(turn: u32, bytes: usize, lines: u64) -> Vec<Part> {
    let mut speech = Speech::new(turn, lines);
    let (mut parts, mut sum) = (Vec::new(), 0);
    while sum < bytes {
        let part = part(turn, parts.len() as u32, speech.next_chunk());
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
