//! Well-formed turns, as an agent of a current SDK speaks them.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::numbers::Numbers;
use crate::transcript::{Sort, Transcript, Turn};

/// Texts as they come, also cut inside a character's two halves, which JSON can carry and Unicode cannot.
const WORDS: [&str; 8] = [
    r#""word ""#,
    r#""\n\n- a line""#,
    r#""Zürich, 東京 \u2028""#,
    r#""\ud83d""#,
    r#""\ude00""#,
    r#""""#,
    r#""\"quoted\" \\ and \/""#,
    r#""\u0000""#,
];

/// One turn of a few steps.
pub fn turn(numbers: &mut Numbers, turn: usize) -> Turn {
    let mut speech = Speech {
        numbers,
        chunks: Vec::new(),
        ids: turn * 1000,
    };
    speech.say(json!({"type": "start", "messageId": format!("m{turn}"), "messageMetadata": {"turn": turn}}));
    for _ in 0..1 + speech.numbers.below(3) {
        speech.step();
    }
    speech.say(json!({"type": "finish"}));
    Turn(speech.chunks.into_iter().map(Some).collect())
}

/// One answer of many small deltas.
pub fn bulk(deltas: u32) -> Transcript {
    let mut chunks = vec![
        json!({"type": "start", "messageId": "m"}),
        json!({"type": "start-step"}),
        json!({"type": "text-start", "id": "t"}),
    ];
    let delta = |_| json!({"type": "text-delta", "id": "t", "delta": "word "});
    chunks.extend((0..deltas).map(delta));
    chunks.push(json!({"type": "text-end", "id": "t"}));
    chunks.push(json!({"type": "finish-step"}));
    chunks.push(json!({"type": "finish"}));
    let spoken = chunks.iter().map(|c| Some(Bytes::from(c.to_string())));
    Transcript {
        name: format!("replay of {deltas} deltas"),
        sort: Sort::Timed,
        turns: vec![Turn(spoken.collect())],
    }
}

struct Speech<'a> {
    numbers: &'a mut Numbers,
    chunks: Vec<Bytes>,
    ids: usize,
}

impl Speech<'_> {
    fn say(&mut self, chunk: Value) {
        self.chunks.push(Bytes::from(chunk.to_string()));
    }

    fn id(&mut self, of: &str) -> String {
        self.ids += 1;
        format!("{of}{}", self.ids)
    }

    fn step(&mut self) {
        self.say(json!({"type": "start-step"}));
        for _ in 0..1 + self.numbers.below(4) {
            match self.numbers.below(6) {
                0 | 1 => self.prose(&["text"]),
                2 => self.prose(&["reasoning", "text"]),
                3 | 4 => self.call(),
                _ => self.aside(),
            }
        }
        self.say(json!({"type": "finish-step"}));
    }

    /// Runs of these sorts, their deltas mixed.
    fn prose(&mut self, sorts: &[&str]) {
        let open: Vec<_> = sorts.iter().map(|sort| (*sort, self.id("p"))).collect();
        for (sort, id) in &open {
            self.say(json!({"type": format!("{sort}-start"), "id": id}));
        }
        for _ in 0..self.numbers.below(9) {
            let (sort, id) = self.numbers.pick(&open);
            let word = self.numbers.pick(&WORDS);
            let chunk = format!(r#"{{"type":"{sort}-delta","id":"{id}","delta":{word}}}"#);
            self.chunks.push(Bytes::from(chunk));
        }
        for (sort, id) in &open {
            self.say(json!({"type": format!("{sort}-end"), "id": id}));
        }
    }

    fn call(&mut self) {
        let id = self.id("c");
        let input = json!({"path": format!("/tmp/{id}"), "lines": [1, 2, {"deep": null}]});
        let dynamic = self.numbers.once_in(3);
        let with = |mut chunk: Value| {
            if dynamic {
                chunk["dynamic"] = Value::Bool(true);
            }
            chunk
        };
        if !self.numbers.once_in(3) {
            self.say(with(
                json!({"type": "tool-input-start", "toolCallId": id, "toolName": "read"}),
            ));
            let text: Vec<char> = input.to_string().chars().collect();
            for piece in text.chunks(1 + self.numbers.below(20)) {
                let piece: String = piece.iter().collect();
                self.say(
                    json!({"type": "tool-input-delta", "toolCallId": id, "inputTextDelta": piece}),
                );
            }
        }
        let mut call = with(
            json!({"type": "tool-input-available", "toolCallId": id, "toolName": "read", "input": input}),
        );
        match self.numbers.below(5) {
            0 => call["providerExecuted"] = Value::Bool(true),
            1 => call["providerMetadata"] = json!({"agent": {"n": 1}}),
            _ => {}
        }
        self.say(call);
        if self.numbers.once_in(4) {
            self.prose(&["text"]);
        }
        let output = if self.numbers.once_in(3) {
            json!({"type": "tool-output-error", "toolCallId": id, "errorText": "no such file"})
        } else {
            json!({"type": "tool-output-available", "toolCallId": id, "output": {"ok": [id]}})
        };
        self.say(with(output));
    }

    fn aside(&mut self) {
        let id = self.id("d");
        let asides = [
            json!({"type": "data-plan", "id": id, "data": {"n": 1}}),
            json!({"type": "data-note", "data": null}),
            json!({"type": "source-url", "sourceId": id, "url": "https://example.test/"}),
            json!({"type": "file", "url": "data:,x", "mediaType": "text/plain"}),
            json!({"type": "message-metadata", "messageMetadata": {"tokens": 7}}),
        ];
        let chosen = self.numbers.pick(&asides).clone();
        self.say(chosen);
    }
}
