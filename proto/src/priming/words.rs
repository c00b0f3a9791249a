//! The words of one turn, gathered from its parts in order, in bounded memory: of a turn that said more than fits, the newest.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Payloads, Said};
use crate::transcript::Part;
use crate::ui_stream::ChunkKind;

/// Kinds of parts that hold words or name a tool.
pub const KINDS: &[&str] = &[
    "text-start",
    "text-delta",
    "tool-input-start",
    "tool-input-available",
];
/// The same and what comes out of tools.
pub const KINDS_WITH_PAYLOADS: &[&str] = &[
    "text-start",
    "text-delta",
    "tool-input-start",
    "tool-input-available",
    "tool-output-available",
];

/// Words kept beyond the budget before old ones are let go, so that letting go costs little a part.
const SLACK: usize = 256 * 1024;

/// What one turn said.
#[derive(Debug)]
pub struct TurnWords {
    pub(super) turn: u32,
    pub(super) prompt: String,
    pub(super) said: VecDeque<Said>,
    /// Whether something is not here that was said.
    pub(super) lacks: bool,
    /// Chunk ids of `said`, in step with it.
    ids: VecDeque<Box<str>>,
    bytes: usize,
    keep: usize,
    payloads: Payloads,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow)]
    delta: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tool_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
}

impl TurnWords {
    /// A turn of which no part was read yet. Keeps at least the newest `keep` bytes of what it says.
    pub fn new(turn: u32, prompt: String, payloads: Payloads, keep: usize) -> Self {
        Self {
            turn,
            prompt,
            said: VecDeque::new(),
            lacks: false,
            ids: VecDeque::new(),
            bytes: 0,
            keep,
            payloads,
        }
    }

    /// Takes the next part; what holds no words is passed over.
    pub fn push(&mut self, part: &Part) {
        let Some(id) = part.head.chunk_id.as_deref() else {
            return;
        };
        let wanted = match &part.head.kind {
            ChunkKind::ToolOutputAvailable => self.payloads == Payloads::Kept,
            kind => KINDS.contains(&kind.as_str()),
        };
        if !wanted {
            return;
        }
        let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(&part.bytes) else {
            // half a character, or a field of another type: no text can be made of it
            self.lacks = true;
            return;
        };
        match &part.head.kind {
            ChunkKind::TextStart => self.begin_text(id),
            ChunkKind::TextDelta => self.speak(id, &chunk.delta.unwrap_or_default()),
            ChunkKind::ToolInputStart | ChunkKind::ToolInputAvailable => {
                self.call(id, &chunk.tool_name.unwrap_or_default(), chunk.input);
            }
            _ => self.answer(id, chunk.output),
        }
        if self.bytes > self.keep + SLACK {
            self.let_go();
        }
    }

    fn begin_text(&mut self, id: &str) {
        self.add(
            id,
            Said::Text {
                text: String::new(),
            },
        );
    }

    fn speak(&mut self, id: &str, delta: &str) {
        let at = self.newest(id, |said| matches!(said, Said::Text { .. }));
        let at = at.unwrap_or_else(|| {
            self.begin_text(id);
            self.said.len() - 1
        });
        if let Said::Text { text } = &mut self.said[at] {
            text.push_str(delta);
            self.bytes += delta.len();
        }
    }

    fn call(&mut self, id: &str, name: &str, input: Option<&RawValue>) {
        let at = self.newest(
            id,
            |said| matches!(said, Said::Tool { output, .. } if output.is_none()),
        );
        let at = at.unwrap_or_else(|| {
            let call = Said::Tool {
                name: name.to_owned(),
                input: None,
                output: None,
            };
            self.bytes += name.len();
            self.add(id, call);
            self.said.len() - 1
        });
        if let (Said::Tool { input: kept, .. }, Some(given), Payloads::Kept) =
            (&mut self.said[at], input, self.payloads)
        {
            self.bytes += given.get().len();
            *kept = Some(given.get().to_owned());
        }
    }

    fn answer(&mut self, id: &str, given: Option<&RawValue>) {
        let Some(at) = self.newest(id, |said| matches!(said, Said::Tool { .. })) else {
            return;
        };
        if let (Said::Tool { output, .. }, Some(given)) = (&mut self.said[at], given) {
            self.bytes += given.get().len();
            *output = Some(given.get().to_owned());
        }
    }

    fn add(&mut self, id: &str, said: Said) {
        self.ids.push_back(id.into());
        self.said.push_back(said);
    }

    fn newest(&self, id: &str, is: impl Fn(&Said) -> bool) -> Option<usize> {
        (0..self.said.len())
            .rev()
            .find(|at| &*self.ids[*at] == id && is(&self.said[*at]))
    }

    /// Lets the oldest go; of one text that is too long by itself, its beginning.
    fn let_go(&mut self) {
        self.lacks = true;
        while self.bytes > self.keep && self.said.len() > 1 {
            if let (Some(old), Some(_)) = (self.said.pop_front(), self.ids.pop_front()) {
                self.bytes = self.bytes.saturating_sub(length(&old));
            }
        }
        if let (1, Some(Said::Text { text })) = (self.said.len(), self.said.front_mut())
            && text.len() > self.keep
        {
            let start = text.ceil_char_boundary(text.len() - self.keep);
            text.drain(..start);
            self.bytes = text.len();
        }
    }
}

fn length(said: &Said) -> usize {
    match said {
        Said::Text { text } => text.len(),
        Said::Tool {
            name,
            input,
            output,
        } => {
            let of = |payload: &Option<String>| payload.as_ref().map_or(0, String::len);
            name.len() + of(input) + of(output)
        }
    }
}
