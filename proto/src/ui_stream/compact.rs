//! Folding what is stored, so that a page copies its message a few times and not thousands of times.

mod call;
mod role;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::chunk;
use super::head::{ChunkHead, ChunkKind, Form};
use super::profile::Profile;
use super::shape;
use crate::ids::PartId;
use crate::limits;
use call::{bare, folded_call, restarted};
use role::{Family, Role, ends_a_step, role};

/// What may be begun and not ended: as much as the guard behind it remembers.
const MOST_BEGUN: usize = 2 * limits::OPEN_RUNS + limits::KNOWN_CALLS;

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
/// A client copies its whole message with every chunk, so twenty thousand deltas cost it seconds and one costs nothing. A page
/// ends up with the same parts in the same order. Holds at most [`limits::COMPACT_BYTES`], of as many runs as the guard remembers; more is
/// given out as a further delta.
#[derive(Debug, Default)]
pub struct Compact {
    /// Runs and calls by the id they have on the wire, texts and tools apart.
    runs: BTreeMap<(Family, Box<str>), Held>,
    held_bytes: usize,
    /// What was begun here, so that a client has its part in its place: deltas of nothing else are held.
    begun: BTreeMap<(Family, Box<str>), Begun>,
    last: Option<PartId>,
}

/// How much a client has of what was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Begun {
    /// The start of a call of this tool (as JSON) alone, behind which a whole input may stand.
    Bare(Box<str>),
    /// More: a whole input must not follow as a delta, unless it begins anew.
    Filled,
}

/// A part that belongs to a run or call.
#[derive(Clone, Copy)]
struct Stored<'a> {
    id: PartId,
    chunk_id: &'a str,
    head: &'a ChunkHead,
    bytes: &'a Bytes,
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

impl Compact {
    /// Takes the next stored part and appends what can go out now.
    pub fn push(&mut self, id: PartId, head: &ChunkHead, bytes: &Bytes, out: &mut Vec<Folded>) {
        if self.last.is_some_and(|last| last.turn != id.turn) {
            self.flush(out);
            self.begun.clear();
        }
        self.last = Some(id);
        // what clients cannot take is shown as data, and is part of nothing
        let chunk_id = head
            .chunk_id
            .as_deref()
            .filter(|_| head.form != Form::Broken);
        let Some((role, chunk_id)) = role(&head.kind).zip(chunk_id) else {
            if ends_a_step(&head.kind) && head.form != Form::Broken {
                self.flush_before(out);
            }
            if head.kind == ChunkKind::StartStep {
                self.begun.clear();
            }
            return self.give(head.clone(), bytes.clone(), out);
        };
        let part = Stored {
            id,
            chunk_id,
            head,
            bytes,
        };
        match role {
            Role::Start(family) => self.start(family, part, out),
            Role::Delta(family) => self.delta(family, part, out),
            Role::End(family) => {
                self.release(family, chunk_id, out);
                self.begun.remove(&(family, chunk_id.into()));
                self.give(head.clone(), bytes.clone(), out);
            }
            Role::Call => self.call(part, out),
            Role::Answer => {
                if self.take(Family::Call, chunk_id).is_none() {
                    self.release(Family::Input, chunk_id, out);
                }
                self.begun.remove(&(Family::Input, chunk_id.into()));
                self.give(head.clone(), bytes.clone(), out);
            }
        }
        let is_too_many = self.begun.len() > MOST_BEGUN;
        if is_too_many || self.held_bytes > limits::COMPACT_BYTES {
            self.flush(out);
        }
        if is_too_many {
            // what goes on of it is not folded any more, as if its start had been lost
            self.begun.clear();
        }
    }

    /// Gives out all that is held back, in the order in which it began: the replay ends here, or what follows does not continue it.
    pub fn flush(&mut self, out: &mut Vec<Folded>) {
        let mut held: Vec<_> = std::mem::take(&mut self.runs).into_iter().collect();
        held.sort_by_key(|(_, held)| held.since);
        let mut rest = held.len();
        for ((family, chunk_id), held) in held {
            rest -= 1;
            self.fill(family, &chunk_id);
            let (head, bytes) = held.what.chunk(family, &chunk_id);
            out.push(Folded {
                id: self.last.filter(|_| rest == 0),
                head,
                bytes,
            });
        }
        self.held_bytes = 0;
        // the next delta of a text may begin another part, whose place is where it stands
        self.begun.retain(|(family, _), _| *family == Family::Input);
    }

    fn start(&mut self, family: Family, part: Stored<'_>, out: &mut Vec<Folded>) {
        if self.is_called(family, part.chunk_id) {
            return;
        }
        self.release(family, part.chunk_id, out);
        let begun = match family {
            Family::Input => bare(part.bytes),
            _ => None,
        };
        let begun = begun.unwrap_or(Begun::Filled);
        self.begun.insert((family, part.chunk_id.into()), begun);
        self.give(part.head.clone(), part.bytes.clone(), out);
    }

    /// A delta is held if it is nothing but one, and continues what was begun.
    fn delta(&mut self, family: Family, part: Stored<'_>, out: &mut Vec<Folded>) {
        if self.is_called(family, part.chunk_id) {
            return;
        }
        let key = (family, part.chunk_id.into());
        if part.head.form == Form::Clean
            && self.begun.contains_key(&key)
            && let Ok(delta) = serde_json::from_slice::<Delta<'_>>(part.bytes)
        {
            let quoted = delta.delta.get();
            let inside = &quoted.as_bytes()[1..quoted.len() - 1];
            let held = self.runs.entry(key).or_insert_with(|| Held {
                since: part.id,
                what: What::Delta(Vec::new()),
            });
            if let What::Delta(joined) = &mut held.what {
                joined.extend_from_slice(inside);
                self.held_bytes += inside.len();
            }
            return;
        }
        self.release(family, part.chunk_id, out);
        if family == Family::Input {
            self.fill(family, part.chunk_id);
        } else {
            self.begun.insert(key, Begun::Filled);
        }
        self.give(part.head.clone(), part.bytes.clone(), out);
    }

    /// A whole call: its input becomes the run's one delta, the call itself waits for its output.
    fn call(&mut self, part: Stored<'_>, out: &mut Vec<Folded>) {
        if self.is_called(Family::Input, part.chunk_id) {
            return;
        }
        let begun = self.begun.remove(&(Family::Input, part.chunk_id.into()));
        let call = match part.head.form {
            Form::Clean => None,
            _ => shape::clean(part.bytes, &part.head.kind, Profile::Current, None),
        };
        let call = call.map_or_else(|| part.bytes.clone(), Bytes::from);
        let Some(delta) = folded_call(&call) else {
            self.release(Family::Input, part.chunk_id, out);
            return self.give(part.head.clone(), part.bytes.clone(), out);
        };
        self.take(Family::Input, part.chunk_id);
        let restart = restarted(&call);
        if restart.says_more || begun.is_none() || begun != bare(&call) {
            self.give_written(restart.start, out);
        }
        self.give_written(delta, out);
        self.held_bytes += call.len();
        let head = ChunkHead {
            form: Form::Clean,
            ..part.head.clone()
        };
        let held = Held {
            since: part.id,
            what: What::Call(head, call),
        };
        self.runs.insert((Family::Call, part.chunk_id.into()), held);
    }

    /// Whether a whole call of this id waits for its output: what else says its input says it again.
    fn is_called(&self, family: Family, chunk_id: &str) -> bool {
        family == Family::Input && self.runs.contains_key(&(Family::Call, chunk_id.into()))
    }

    fn fill(&mut self, family: Family, chunk_id: &str) {
        if let Some(begun) = self.begun.get_mut(&(family, chunk_id.into())) {
            *begun = Begun::Filled;
        }
    }

    fn take(&mut self, family: Family, chunk_id: &str) -> Option<Held> {
        let held = self.runs.remove(&(family, chunk_id.into()))?;
        self.held_bytes -= held.size();
        Some(held)
    }

    /// Gives out what is held of a run: a part that ends it, or says more, follows.
    fn release(&mut self, family: Family, chunk_id: &str, out: &mut Vec<Folded>) {
        if let Some(held) = self.take(family, chunk_id) {
            self.fill(family, chunk_id);
            let (head, bytes) = held.what.chunk(family, chunk_id);
            let id = None;
            out.push(Folded { id, head, bytes });
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
        let head = ChunkHead::read(&json).expect("what is written here is an object with a type");
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
                let id_json = chunk::json(chunk_id);
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

#[cfg(test)]
mod tests;
