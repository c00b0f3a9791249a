//! Redaction of a stream of parts, joined text included.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json;
use crate::scan::Secrets;
use crate::{MARKER, REDACTED_PART};

/// Runs that may hold text back at once. An agent that opens more has the held end of the newest redacted at once.
const MAX_HOLDING_RUNS: usize = 1024;

/// Redacts the parts of one turn in order.
///
/// The deltas of one id are scanned as the text they join to. Of each delta the longest end that could still become a
/// credential is held back and goes out in front of the next delta of the same id, or as a delta of its own when the run
/// ends. Held text never leaves because time passed.
#[derive(Debug)]
pub struct StreamRedactor {
    secrets: Secrets,
    holding: BTreeMap<RunKey, Held>,
}

/// What kind of deltas a run has; ids of different kinds are different.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RunKind {
    Text,
    Reasoning,
    ToolInput,
}

type RunKey = (RunKind, Vec<u8>);

/// The end of a run's text that is not out yet.
#[derive(Default)]
struct Held {
    text: Vec<u8>,
    /// Bytes at the start of `text` that belong to a credential whose marker is already out.
    covered: usize,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({} bytes)", self.text.len())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    #[serde(borrow)]
    r#type: &'a RawValue,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    input_text_delta: Option<&'a RawValue>,
}

/// What a part means for the runs.
enum Step<'a> {
    /// The next piece of a run; its text as the raw JSON string.
    Delta(RunKey, &'a RawValue),
    /// The run is over, or begins anew.
    Ends(RunKey),
    /// All runs are over.
    EndsAll,
    /// Nothing.
    Other,
}

impl StreamRedactor {
    /// A redactor at the start of a turn.
    pub fn new(secrets: Secrets) -> Self {
        Self {
            secrets,
            holding: BTreeMap::new(),
        }
    }

    /// Takes the next part, a JSON object's text, and appends to `out` what may be shown now, in order.
    pub fn push(&mut self, part: Bytes, out: &mut Vec<Bytes>) {
        if self.secrets.is_empty() {
            out.push(part);
            return;
        }
        // a part whose fields cannot be told apart (a repeated one) might hide a delta
        let Ok(fields) = serde_json::from_slice::<Fields<'_>>(&part) else {
            out.push(Bytes::from_static(REDACTED_PART.as_bytes()));
            return;
        };
        match step(&fields) {
            Step::Delta(key, value) => {
                let text = json::decode(body_of(value)).text;
                let part = match self.extend(key, &text) {
                    None => part.clone(),
                    Some(released) => with_value(&part, value, &released),
                };
                out.push(self.secrets.redact_part(part));
                return;
            }
            Step::Ends(key) => self.end_run(&key, out),
            Step::EndsAll => self.end(out),
            Step::Other => {}
        }
        out.push(self.secrets.redact_part(part));
    }

    /// Ends every run: what is still held goes out, redacted where it is a whole credential.
    pub fn end(&mut self, out: &mut Vec<Bytes>) {
        while let Some((key, held)) = self.holding.pop_first() {
            self.let_go(&key, held, out);
        }
    }

    fn end_run(&mut self, key: &RunKey, out: &mut Vec<Bytes>) {
        if let Some(held) = self.holding.remove(key) {
            self.let_go(key, held, out);
        }
    }

    fn let_go(&self, key: &RunKey, held: Held, out: &mut Vec<Bytes>) {
        let length = held.text.len();
        let (released, _) = self.release(held, length);
        if !released.is_empty() {
            out.push(self.secrets.redact_part(delta_part(key, &released)));
        }
    }

    /// Adds a delta's text to its run and says what may go out in its place; `None` when that is the delta itself.
    fn extend(&mut self, key: RunKey, delta: &[u8]) -> Option<Vec<u8>> {
        let before = self.holding.remove(&key);
        let nothing_held = before.is_none();
        let mut held = before.unwrap_or_default();
        held.text = json::join(held.text, delta);
        let mut cut = self.secrets.held_from(&held.text);
        // half a character cannot be compared yet
        if json::ends_in_half_a_pair(&held.text) {
            cut = cut.min(held.text.len() - 3);
        }
        let (mut released, rest) = self.release(held, cut);
        if !rest.text.is_empty() {
            if self.holding.len() < MAX_HOLDING_RUNS {
                self.holding.insert(key, rest);
            } else {
                released.extend_from_slice(MARKER.as_bytes());
            }
        }
        (!nothing_held || released != delta).then_some(released)
    }

    /// Splits a run's text at `cut`: what goes out, credentials replaced, and what stays.
    fn release(&self, held: Held, cut: usize) -> (Vec<u8>, Held) {
        let Held { mut text, covered } = held;
        let (mut out, mut at) = (Vec::with_capacity(cut), covered);
        for span in self.secrets.spans(&text) {
            if span.start < at {
                // continues a credential whose marker is out
                at = at.max(span.end);
            } else if span.start < cut {
                out.extend_from_slice(&text[at..span.start]);
                out.extend_from_slice(MARKER.as_bytes());
                at = span.end;
            }
        }
        if at < cut {
            out.extend_from_slice(&text[at..cut]);
            at = cut;
        }
        let rest = Held {
            text: text.split_off(cut),
            covered: at - cut,
        };
        (out, rest)
    }
}

fn step<'a>(fields: &Fields<'a>) -> Step<'a> {
    let kind = json::decode(body_of(fields.r#type)).text;
    let key = |kind, id: Option<&RawValue>| {
        id.map(|id| (kind, json::decode(body_of(id)).text.into_owned()))
    };
    let delta = |key: Option<RunKey>, value: Option<&'a RawValue>| match (key, value) {
        (Some(key), Some(value)) if value.get().starts_with('"') => Step::Delta(key, value),
        _ => Step::Other,
    };
    let ends = |key: Option<RunKey>| key.map_or(Step::Other, Step::Ends);
    match &kind[..] {
        b"text-delta" => delta(key(RunKind::Text, fields.id), fields.delta),
        b"reasoning-delta" => delta(key(RunKind::Reasoning, fields.id), fields.delta),
        b"tool-input-delta" => delta(
            key(RunKind::ToolInput, fields.tool_call_id),
            fields.input_text_delta,
        ),
        b"text-start" | b"text-end" => ends(key(RunKind::Text, fields.id)),
        b"reasoning-start" | b"reasoning-end" => ends(key(RunKind::Reasoning, fields.id)),
        b"tool-input-start" | b"tool-input-available" | b"tool-input-error" => {
            ends(key(RunKind::ToolInput, fields.tool_call_id))
        }
        // a client forgets its open runs here, so nothing can follow for their ids
        b"finish-step" | b"finish" | b"abort" => Step::EndsAll,
        _ => Step::Other,
    }
}

/// A JSON string without its quotes; any other value as it is.
fn body_of(value: &RawValue) -> &[u8] {
    let text = value.get();
    text.strip_prefix('"')
        .and_then(|t| t.strip_suffix('"'))
        .unwrap_or(text)
        .as_bytes()
}

/// The part with another text in the place of one of its string values.
fn with_value(part: &[u8], value: &RawValue, text: &[u8]) -> Bytes {
    let start = value.get().as_ptr() as usize - part.as_ptr() as usize + 1;
    let end = start + value.get().len() - 2;
    let mut out = part[..start].to_vec();
    out.extend_from_slice(&json::encode(text));
    out.extend_from_slice(&part[end..]);
    out.into()
}

/// A delta of its own for what a run held at its end.
fn delta_part(key: &RunKey, text: &[u8]) -> Bytes {
    let (kind, id) = key;
    let (kind, id_name, text_name) = match kind {
        RunKind::Text => ("text-delta", "id", "delta"),
        RunKind::Reasoning => ("reasoning-delta", "id", "delta"),
        RunKind::ToolInput => ("tool-input-delta", "toolCallId", "inputTextDelta"),
    };
    let mut out = format!(r#"{{"type":"{kind}","{id_name}":""#).into_bytes();
    out.extend_from_slice(&json::encode(id));
    out.extend_from_slice(format!(r#"","{text_name}":""#).as_bytes());
    out.extend_from_slice(&json::encode(text));
    out.extend_from_slice(b"\"}");
    out.into()
}
