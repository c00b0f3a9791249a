//! Redaction of a stream of parts, joined text included.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::bounds::{CONTEXT, MAX_HELD, MAX_HOLDING_RUNS, UNRESOLVED};
use crate::engine::Redactor;
use crate::hit;
use crate::hold::Holding;
use crate::join::{Fields, RunKey, RunKind, Step, body_of, step};
use crate::json;
use crate::scan::Secrets;
use crate::switch::Stage;
use crate::{MARKER, REDACTED_PART};

/// Redacts the parts of one turn in order.
///
/// The deltas of one id are scanned as the text they join to. Of each delta the end that could still become a credential, or belong
/// to a secret, is held back and goes out in front of the next delta of the same id, or as a delta of its own when the run ends. Held
/// text never leaves because time passed: what is not decided within [`MAX_HELD`] bytes is taken out as [`UNRESOLVED`].
#[derive(Debug)]
pub struct StreamRedactor {
    secrets: Secrets,
    redactor: Option<Redactor>,
    runs: BTreeMap<RunKey, Held>,
}

/// The end of a run's text.
#[derive(Default)]
struct Held {
    /// What was shown last, to read the rest in its light, and what is not out yet.
    text: Vec<u8>,
    /// Bytes at the start of `text` that are out, or belong to a secret whose token is.
    done: usize,
    /// Whether the last of those belongs to such a secret.
    covered: bool,
    /// Too much was held: everything goes until this ends.
    swallows: Option<Holding>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({} bytes)", self.text.len())
    }
}

impl StreamRedactor {
    /// A redactor of known credentials at the start of a turn.
    pub fn new(secrets: Secrets) -> Self {
        Self {
            secrets,
            redactor: None,
            runs: BTreeMap::new(),
        }
    }

    /// The same, which also takes out what looks like a secret.
    #[must_use]
    pub fn with_rules(mut self, redactor: Redactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// Takes the next part, a JSON object's text, and appends to `out` what may be shown now, in order.
    pub fn push(&mut self, part: Bytes, out: &mut Vec<Bytes>) {
        if self.secrets.is_empty() && self.redactor.is_none() {
            out.push(part);
            return;
        }
        // a part whose fields cannot be told apart (a repeated one) might hide a delta
        let Ok(fields) = serde_json::from_slice::<Fields<'_>>(&part) else {
            out.push(Bytes::from_static(REDACTED_PART.as_bytes()));
            return;
        };
        match step(&fields) {
            Step::Delta(key, value) if self.joins() => {
                let text = json::decode(body_of(value)).text;
                let part = match self.extend(key, &text) {
                    None => part.clone(),
                    Some(released) => with_value(&part, value, &released),
                };
                out.push(self.clean(part));
                return;
            }
            Step::Ends(key) => self.end_run(&key, out),
            Step::EndsAll => self.end(out),
            Step::Delta(..) | Step::Other => {}
        }
        out.push(self.clean(part));
    }

    /// Ends every run: what is still held goes out, redacted where it is a secret.
    pub fn end(&mut self, out: &mut Vec<Bytes>) {
        while let Some((key, held)) = self.runs.pop_first() {
            self.let_go(&key, held, out);
        }
    }

    fn joins(&self) -> bool {
        self.redactor
            .as_ref()
            .is_none_or(|r| r.stages.runs(Stage::Join))
    }

    /// A part by itself.
    fn clean(&self, part: Bytes) -> Bytes {
        let part = self.secrets.redact_part(part);
        let hits = self
            .redactor
            .as_ref()
            .map(|r| r.hits(&part))
            .unwrap_or_default();
        if hits.is_empty() {
            part
        } else {
            hit::apply(&part, &hits).into()
        }
    }

    fn end_run(&mut self, key: &RunKey, out: &mut Vec<Bytes>) {
        if let Some(held) = self.runs.remove(key) {
            self.let_go(key, held, out);
        }
    }

    fn let_go(&self, key: &RunKey, held: Held, out: &mut Vec<Bytes>) {
        let length = held.text.len();
        if held.done >= length {
            return;
        }
        let (released, _) = self.release(held, length);
        if !released.is_empty() {
            out.push(self.clean(delta_part(key, &released)));
        }
    }

    /// Adds a delta's text to its run and says what may go out in its place; `None` when that is the delta itself.
    fn extend(&mut self, key: RunKey, delta: &[u8]) -> Option<Vec<u8>> {
        let mut held = match self.runs.remove(&key) {
            Some(held) => held,
            None if self.runs.len() < MAX_HOLDING_RUNS => Held::default(),
            None => return Some(UNRESOLVED.as_bytes().to_vec()),
        };
        let nothing_held = held.done >= held.text.len();
        held.text = json::join(held.text, delta);
        if held.swallows.is_some() {
            held.swallow();
        }
        let mut cut = self.secrets.held_from(&held.text);
        // half a character cannot be compared yet
        if json::ends_in_half_a_pair(&held.text) {
            cut = cut.min(held.text.len() - 3);
        }
        let mut too_much = None;
        if let Some(redactor) = &self.redactor {
            let (from, holding) = redactor.held_from(&held.text);
            let from = from.max(held.done);
            too_much = (held.text.len() - from.min(held.text.len()) > MAX_HELD).then_some(holding);
            cut = cut.min(from);
        }
        let (mut released, mut rest) = self.release(held, cut);
        if let Some(holding) = too_much {
            if rest.done < rest.text.len() {
                released.extend_from_slice(UNRESOLVED.as_bytes());
            }
            rest.done = rest.text.len();
            rest.covered = true;
            rest.swallows = Some(holding);
            rest.forget(rest.text.len());
        }
        if !rest.text.is_empty() || rest.swallows.is_some() {
            self.runs.insert(key, rest);
        }
        (!nothing_held || released != delta).then_some(released)
    }

    /// Where secrets stand and what is put there: in order, without overlaps.
    fn spans(&self, text: &[u8]) -> Vec<(Range<usize>, Vec<u8>)> {
        let known = self
            .secrets
            .spans(text)
            .into_iter()
            .map(|span| (span, MARKER.as_bytes().to_vec()));
        let looking = self
            .redactor
            .as_ref()
            .map(|r| r.hits(text))
            .unwrap_or_default();
        let mut all: Vec<(Range<usize>, Vec<u8>)> = known
            .chain(looking.into_iter().map(|hit| (hit.span, hit.with)))
            .collect();
        // the known ones come first in the list, and so give the name where two begin at one place
        all.sort_by_key(|(span, _)| span.start);
        let mut out: Vec<(Range<usize>, Vec<u8>)> = Vec::with_capacity(all.len());
        for (span, with) in all {
            match out.last_mut() {
                Some((last, _)) if span.start < last.end => last.end = last.end.max(span.end),
                _ => out.push((span, with)),
            }
        }
        out
    }

    /// Splits a run's text at `cut`: what goes out, secrets replaced, and what stays.
    fn release(&self, held: Held, cut: usize) -> (Vec<u8>, Held) {
        let Held {
            text,
            done,
            mut covered,
            swallows,
        } = held;
        let (mut out, mut at) = (Vec::with_capacity(cut.saturating_sub(done)), done);
        for (span, with) in self.spans(&text) {
            if span.end <= at {
                continue;
            }
            if span.start < at && covered {
                // continues a secret whose token is out
                at = span.end;
            } else if span.start.max(at) < cut {
                if span.start > at {
                    out.extend_from_slice(&text[at..span.start]);
                }
                out.extend_from_slice(&with);
                at = span.end;
                covered = true;
            }
        }
        if at < cut {
            out.extend_from_slice(&text[at..cut]);
            at = cut;
            covered = false;
        }
        let mut rest = Held {
            text,
            done: at,
            covered,
            swallows,
        };
        let keep = if self.redactor.is_some() { CONTEXT } else { 0 };
        rest.forget(cut.saturating_sub(keep));
        (out, rest)
    }
}

impl Held {
    /// Drops text from the start.
    fn forget(&mut self, bytes: usize) {
        let bytes = bytes.min(self.text.len());
        self.text.drain(..bytes);
        self.done = self.done.saturating_sub(bytes);
    }

    /// Moves over what belongs to the text that was too much.
    fn swallow(&mut self) {
        let new = &self.text[self.done..];
        let end = match self.swallows {
            Some(Holding::Token) => new
                .iter()
                .position(|b| b.is_ascii_whitespace() || b"\"'`".contains(b)),
            _ => new.iter().position(|b| {
                !(b.is_ascii_alphanumeric() || b.is_ascii_whitespace() || b"+/=-:,".contains(b))
            }),
        };
        self.done += end.unwrap_or(new.len());
        if end.is_some() {
            self.swallows = None;
        }
        // what was swallowed is no context: it would be found again
        self.forget(self.done);
        self.covered = true;
    }
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
