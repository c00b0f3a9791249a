use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::head::{ChunkHead, ChunkKind, Form};
use crate::ids::PartId;
use crate::limits;

/// A part as it leaves the folding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folded {
    /// The cursor behind this part; `None` while anything before it is still held back, so that no cursor skips it.
    pub id: Option<PartId>,
    /// Its head.
    pub head: ChunkHead,
    /// Its chunk.
    pub bytes: Bytes,
}

/// Folds a replay (`?compact=1`): one delta per text, reasoning and tool input, and finished calls in the form that does not
/// make a page run its tools again (`tool-input-start`, one `tool-input-delta`, the output, but no `tool-input-available`).
///
/// A client copies its whole message with every chunk, so twenty thousand deltas cost it seconds and one costs nothing. Holds at
/// most [`limits::COMPACT_BYTES`]; more is given out as a further delta.
#[derive(Debug, Default)]
pub struct Compact {
    /// Runs and calls by the id they have on the wire, texts and tools apart.
    runs: BTreeMap<(Family, Box<str>), Held>,
    held_bytes: usize,
    /// Calls of whose input something went out already: their whole input must not follow as a delta.
    spilled: BTreeSet<Box<str>>,
    last: Option<PartId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    Text,
    Reasoning,
    Input,
    Call,
}

/// What is held back of one run.
#[derive(Debug)]
struct Held {
    /// The order in which runs began.
    since: PartId,
    what: What,
}

#[derive(Debug)]
enum What {
    /// The inside of a JSON string, escapes and all: joined raw, it is what a client would have joined.
    Delta(Vec<u8>),
    /// A whole call that waits for its output.
    Call(ChunkHead, Bytes),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Delta<'a> {
    #[serde(rename = "type")]
    _type: &'a RawValue,
    #[serde(borrow, rename = "id", alias = "toolCallId")]
    _id: &'a RawValue,
    #[serde(borrow, alias = "inputTextDelta")]
    delta: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input<'a> {
    #[serde(borrow)]
    tool_name: &'a RawValue,
    #[serde(borrow)]
    input: &'a RawValue,
    #[serde(default)]
    provider_executed: bool,
    #[serde(default)]
    dynamic: bool,
}

impl Compact {
    /// Takes the next stored part and appends what can go out now.
    pub fn push(&mut self, id: PartId, head: &ChunkHead, bytes: &Bytes, out: &mut Vec<Folded>) {
        if self.last.is_some_and(|last| last.turn != id.turn) {
            self.flush(out);
        }
        let chunk_id = head
            .chunk_id
            .as_deref()
            .filter(|_| head.form == Form::Clean);
        self.last = Some(id);
        match (family(&head.kind), chunk_id) {
            (Some(family), Some(chunk_id)) if self.hold_delta(family, chunk_id, id, bytes) => {
                if self.held_bytes > limits::COMPACT_BYTES {
                    self.flush(out);
                }
            }
            (_, Some(chunk_id)) if head.kind == ChunkKind::ToolInputAvailable => {
                self.call(chunk_id, id, head, bytes, out)
            }
            (_, chunk_id) => {
                match &head.kind {
                    ChunkKind::ToolOutputAvailable | ChunkKind::ToolOutputError => {
                        if let Some(held) =
                            chunk_id.and_then(|c| self.runs.remove(&(Family::Call, c.into())))
                        {
                            self.held_bytes -= held.size();
                        }
                    }
                    kind => self.release(kind, chunk_id, out),
                }
                self.give(head.clone(), bytes.clone(), out);
            }
        }
    }

    /// Gives out all that is held back, in the order in which it began: the replay ends here.
    pub fn flush(&mut self, out: &mut Vec<Folded>) {
        let mut held: Vec<_> = std::mem::take(&mut self.runs).into_iter().collect();
        held.sort_by_key(|(_, held)| held.since);
        let mut rest = held.len();
        for ((family, chunk_id), held) in held {
            rest -= 1;
            if family == Family::Input {
                self.spilled.insert(chunk_id.clone());
            }
            let (head, bytes) = held.what.chunk(family, &chunk_id);
            out.push(Folded {
                id: self.last.filter(|_| rest == 0),
                head,
                bytes,
            });
        }
        self.held_bytes = 0;
    }

    /// Whether the part is a plain delta, which is then held.
    fn hold_delta(&mut self, family: Family, chunk_id: &str, id: PartId, bytes: &[u8]) -> bool {
        let Ok(delta) = serde_json::from_slice::<Delta<'_>>(bytes) else {
            return false;
        };
        let quoted = delta.delta.get();
        let inside = &quoted.as_bytes()[1..quoted.len() - 1];
        let held = self
            .runs
            .entry((family, chunk_id.into()))
            .or_insert_with(|| Held {
                since: id,
                what: What::Delta(Vec::new()),
            });
        if let What::Delta(joined) = &mut held.what {
            joined.extend_from_slice(inside);
            self.held_bytes += inside.len();
        }
        true
    }

    /// A whole call: its input becomes the run's one delta, the call itself waits for its output.
    fn call(
        &mut self,
        chunk_id: &str,
        id: PartId,
        head: &ChunkHead,
        bytes: &Bytes,
        out: &mut Vec<Folded>,
    ) {
        let input = serde_json::from_slice::<Input<'_>>(bytes)
            .ok()
            .filter(|i| !i.provider_executed && !self.spilled.contains(chunk_id));
        let Some(input) = input else {
            self.release(&head.kind, Some(chunk_id), out);
            return self.give(head.clone(), bytes.clone(), out);
        };
        let streamed = self.runs.remove(&(Family::Input, chunk_id.into()));
        let quoted = serde_json::to_string(input.input.get()).expect("a text always serialises");
        let id_json = serde_json::to_string(chunk_id).expect("a text always serialises");
        self.held_bytes += bytes.len();
        self.runs.insert(
            (Family::Call, chunk_id.into()),
            Held {
                since: id,
                what: What::Call(head.clone(), bytes.clone()),
            },
        );
        match streamed {
            Some(held) => self.held_bytes -= held.size(),
            None => {
                let dynamic = if input.dynamic {
                    ",\"dynamic\":true"
                } else {
                    ""
                };
                let start = format!(
                    r#"{{"type":"tool-input-start","toolCallId":{id_json},"toolName":{}{dynamic}}}"#,
                    input.tool_name.get()
                );
                self.give_written(start, out);
            }
        }
        self.give_written(
            format!(
                r#"{{"type":"tool-input-delta","toolCallId":{id_json},"inputTextDelta":{quoted}}}"#
            ),
            out,
        );
        if self.held_bytes > limits::COMPACT_BYTES {
            self.flush(out);
        }
    }

    /// What must be out before a part of this kind: the run it ends, or everything at a step's border.
    fn release(&mut self, kind: &ChunkKind, chunk_id: Option<&str>, out: &mut Vec<Folded>) {
        let ended = match kind {
            ChunkKind::TextStart | ChunkKind::TextDelta | ChunkKind::TextEnd => Family::Text,
            ChunkKind::ReasoningStart | ChunkKind::ReasoningDelta | ChunkKind::ReasoningEnd => {
                Family::Reasoning
            }
            ChunkKind::ToolInputStart
            | ChunkKind::ToolInputDelta
            | ChunkKind::ToolInputAvailable
            | ChunkKind::ToolInputError => Family::Input,
            ChunkKind::StartStep
            | ChunkKind::FinishStep
            | ChunkKind::Finish
            | ChunkKind::Abort
            | ChunkKind::Error => return self.flush_before(out),
            _ => return,
        };
        let Some(chunk_id) = chunk_id else { return };
        if let Some(held) = self.runs.remove(&(ended, chunk_id.into())) {
            self.held_bytes -= held.size();
            let (head, bytes) = held.what.chunk(ended, chunk_id);
            out.push(Folded {
                id: None,
                head,
                bytes,
            });
        }
    }

    /// As [`Compact::flush`], when another part follows at once and carries the cursor.
    fn flush_before(&mut self, out: &mut Vec<Folded>) {
        let from = out.len();
        self.flush(out);
        for folded in &mut out[from..] {
            folded.id = None;
        }
    }

    fn give(&self, head: ChunkHead, bytes: Bytes, out: &mut Vec<Folded>) {
        out.push(Folded {
            id: self.last.filter(|_| self.runs.is_empty()),
            head,
            bytes,
        });
    }

    fn give_written(&self, json: String, out: &mut Vec<Folded>) {
        let head = ChunkHead::read(&json).expect("written chunks are chunks");
        out.push(Folded {
            id: None,
            head,
            bytes: Bytes::from(json),
        });
    }
}

impl Held {
    fn size(&self) -> usize {
        match &self.what {
            What::Delta(joined) => joined.len(),
            What::Call(_, bytes) => bytes.len(),
        }
    }
}

impl What {
    fn chunk(self, family: Family, chunk_id: &str) -> (ChunkHead, Bytes) {
        let (kind, id_field, text_field) = match family {
            Family::Text => ("text-delta", "id", "delta"),
            Family::Reasoning => ("reasoning-delta", "id", "delta"),
            Family::Input | Family::Call => ("tool-input-delta", "toolCallId", "inputTextDelta"),
        };
        match self {
            What::Call(head, bytes) => (head, bytes),
            What::Delta(joined) => {
                let id_json = serde_json::to_string(chunk_id).expect("a text always serialises");
                let mut json =
                    format!(r#"{{"type":"{kind}","{id_field}":{id_json},"{text_field}":""#)
                        .into_bytes();
                json.extend_from_slice(&joined);
                json.extend_from_slice(b"\"}");
                (
                    ChunkHead::from_columns(kind, Some(chunk_id)),
                    Bytes::from(json),
                )
            }
        }
    }
}

fn family(kind: &ChunkKind) -> Option<Family> {
    match kind {
        ChunkKind::TextDelta => Some(Family::Text),
        ChunkKind::ReasoningDelta => Some(Family::Reasoning),
        ChunkKind::ToolInputDelta => Some(Family::Input),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(chunks: &[&str]) -> Vec<(Option<String>, String)> {
        let (mut compact, mut out) = (Compact::default(), Vec::new());
        for (i, chunk) in chunks.iter().enumerate() {
            let head = ChunkHead::read(chunk).expect("a chunk");
            compact.push(
                PartId::new(1, i as u32),
                &head,
                &Bytes::copy_from_slice(chunk.as_bytes()),
                &mut out,
            );
        }
        compact.flush(&mut out);
        out.into_iter()
            .map(|f| {
                (
                    f.id.map(|id| id.to_string()),
                    String::from_utf8(f.bytes.to_vec()).expect("json"),
                )
            })
            .collect()
    }

    fn texts(chunks: &[&str]) -> Vec<String> {
        fold(chunks).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn deltas_become_one_and_escapes_stay_as_they_were() {
        let folded = fold(&[
            r#"{"type":"text-start","id":"t"}"#,
            r#"{"type":"text-delta","id":"t","delta":"a\ud83d"}"#,
            r#"{"type":"text-delta","id":"t","delta":"\ude00\n"}"#,
            r#"{"type":"text-end","id":"t"}"#,
        ]);
        assert_eq!(
            folded[1],
            (
                None,
                r#"{"type":"text-delta","id":"t","delta":"a\ud83d\ude00\n"}"#.to_owned()
            )
        );
        assert_eq!(
            folded[2],
            (
                Some("1.3".to_owned()),
                r#"{"type":"text-end","id":"t"}"#.to_owned()
            )
        );
    }

    #[test]
    fn no_cursor_skips_what_is_held() {
        let folded = fold(&[
            r#"{"type":"text-start","id":"a"}"#,
            r#"{"type":"reasoning-start","id":"b"}"#,
            r#"{"type":"text-delta","id":"a","delta":"1"}"#,
            r#"{"type":"reasoning-delta","id":"b","delta":"2"}"#,
            r#"{"type":"text-end","id":"a"}"#,
            r#"{"type":"data-x","data":1}"#,
        ]);
        let cursors: Vec<_> = folded.iter().map(|(id, _)| id.as_deref()).collect();
        assert_eq!(
            cursors,
            [Some("1.0"), Some("1.1"), None, None, None, Some("1.5")],
            "{folded:?}"
        );
    }

    const START: &str = r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x"}"#;
    const CALL: &str =
        r#"{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":{"a":"b"}}"#;
    const OUTPUT: &str = r#"{"type":"tool-output-available","toolCallId":"c","output":1}"#;
    const WHOLE: &str =
        r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{\"a\":\"b\"}"}"#;

    #[test]
    fn a_finished_call_does_not_run_again() {
        assert_eq!(texts(&[CALL, OUTPUT]), [START, WHOLE, OUTPUT]);
        let streamed = r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{\"a\""}"#;
        assert_eq!(
            texts(&[START, streamed, streamed, CALL, OUTPUT]),
            [START, WHOLE, OUTPUT]
        );
    }

    #[test]
    fn an_unfinished_call_is_a_call() {
        assert_eq!(texts(&[CALL]), [START, WHOLE, CALL]);
        assert_eq!(
            texts(&[CALL, r#"{"type":"finish-step"}"#, OUTPUT]),
            [START, WHOLE, CALL, r#"{"type":"finish-step"}"#, OUTPUT]
        );
    }

    #[test]
    fn what_says_more_than_a_delta_stands_alone() {
        let odd = r#"{"type":"text-delta","id":"t","delta":"b","providerMetadata":{"x":{}}}"#;
        let plain = r#"{"type":"text-delta","id":"t","delta":"a"}"#;
        assert_eq!(texts(&[plain, odd, plain]), [plain, odd, plain]);
    }

    #[test]
    fn the_bound_holds() {
        let chunk = format!(
            r#"{{"type":"text-delta","id":"t","delta":"{}"}}"#,
            "x".repeat(900_000)
        );
        let (mut compact, mut out) = (Compact::default(), Vec::new());
        for i in 0..20 {
            compact.push(
                PartId::new(1, i),
                &ChunkHead::read(&chunk).expect("a chunk"),
                &Bytes::from(chunk.clone()),
                &mut out,
            );
            assert!(compact.held_bytes <= limits::COMPACT_BYTES);
        }
        assert!(!out.is_empty());
    }
}
