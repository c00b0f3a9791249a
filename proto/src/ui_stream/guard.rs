use std::collections::BTreeSet;
use std::sync::Arc;

mod calls;
mod memory;
mod runs;
mod written;

use bytes::Bytes;
use serde_json::json;

use super::head::{Binding, ChunkHead, ChunkKind, Form};
use super::profile::Profile;
use super::shape;
use crate::ids::TurnNo;
use memory::Calls;
use runs::run;
use written::{interrupted, metadata_of, turn_error, wrapped, written};

/// One chunk for a viewer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The stored bytes, untouched.
    Verbatim,
    /// A chunk the plane wrote itself, or a stored one that had to be rewritten.
    Written(Bytes),
}

/// Whether an error is the stream's own or history: a client stops reading at an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// More of the conversation follows.
    Earlier,
    /// Nothing follows, or nobody knows yet.
    Last,
}

/// The repairing state machine of one viewer's stream.
///
/// A well-formed stream passes byte for byte. Where chunks are missing the guard closes what was open and starts what was not;
/// what no client can place is left out, what a client does not know is wrapped in `data-bex-chunk`. It works from the
/// heads and looks into a payload only where it must rewrite it, so its state can be rebuilt from the store's columns.
///
/// The one `start` of the stream and its `finish` are the caller's; those of single turns are dropped here and their
/// metadata is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guard {
    profile: Profile,
    text: Vec<Box<str>>,
    reasoning: Vec<Box<str>>,
    calls: Calls,
    /// Of `calls`, those whose input is being streamed; in order, so that every viewer sees the same.
    streaming: BTreeSet<Arc<str>>,
    in_step: bool,
    step: u32,
    /// An error that ends the stream for its clients was sent, and with it what answers the open calls.
    told: bool,
}

/// What becomes of the pushed chunk itself.
enum Fate {
    /// It goes out: verbatim if it can.
    Pass,
    /// It goes out with its call's `dynamic`.
    Bind(Binding),
    /// Clients do not know it.
    Wrap,
    /// It has no place.
    Drop,
    /// It was answered by what was written.
    Replaced,
}

impl Guard {
    /// A guard at the start of a message, for current clients.
    pub fn new() -> Self {
        Self::default()
    }

    /// A guard for the clients of a profile.
    pub fn for_profile(profile: Profile) -> Self {
        Self {
            profile,
            ..Self::default()
        }
    }

    /// Whose clients it works for.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Takes one stored chunk and appends what a viewer is sent for it, in order.
    pub fn push(
        &mut self,
        turn: TurnNo,
        place: Place,
        head: &ChunkHead,
        bytes: &[u8],
        out: &mut Vec<Output>,
    ) {
        let fate = match head.form {
            Form::Broken => Fate::Wrap,
            Form::Clean | Form::Odd => self.step(turn, place, head, bytes, out),
        };
        match fate {
            Fate::Pass => self.pass(head, None, bytes, out),
            Fate::Bind(binding) => self.pass(head, Some(binding), bytes, out),
            Fate::Wrap => out.extend(wrapped(bytes, self.profile)),
            Fate::Drop | Fate::Replaced => {}
        }
    }

    /// Takes a chunk that the viewer already has: only the state moves.
    pub fn skip(&mut self, turn: TurnNo, head: &ChunkHead) {
        if head.form != Form::Broken {
            // the state depends on heads alone; a payload is only needed for what would be sent, which nobody is here
            let _ = self.step(turn, Place::Earlier, head, b"{}", &mut Vec::new());
        }
    }

    /// Starts again the text and reasoning that is open here, for a viewer that lost its state. The guard's state stays.
    pub fn reopen(&self, out: &mut Vec<Output>) {
        let text = self.text.iter().map(|id| ("text-start", id));
        let reasoning = self.reasoning.iter().map(|id| ("reasoning-start", id));
        out.extend(
            text.chain(reasoning)
                .map(|(start, id)| written(json!({"type": start, "id": id}))),
        );
    }

    /// Whether a tool call is begun here and has no output yet.
    pub fn is_open_tool(&self, id: &str) -> bool {
        self.calls.open(id).is_some()
    }

    /// Parts are known to be missing here: what was open cannot be continued.
    pub fn gap(&mut self, out: &mut Vec<Output>) {
        self.close_open(out);
    }

    /// The stream ends here: leaves nothing half-open.
    pub fn end(&mut self, out: &mut Vec<Output>) {
        self.close_open(out);
        let open: Vec<_> = self
            .calls
            .all_open()
            .map(|(id, _)| Arc::clone(id))
            .collect();
        self.interrupt(open, out);
        self.told = false;
        if std::mem::take(&mut self.in_step) {
            out.push(written(json!({"type": "finish-step"})));
        }
    }

    fn step(
        &mut self,
        turn: TurnNo,
        place: Place,
        head: &ChunkHead,
        bytes: &[u8],
        out: &mut Vec<Output>,
    ) -> Fate {
        let id = head.chunk_id.as_deref();
        match &head.kind {
            ChunkKind::Start => {
                out.extend(metadata_of(bytes, self.profile));
                Fate::Replaced
            }
            ChunkKind::Finish => {
                self.close_open(out);
                out.extend(metadata_of(bytes, self.profile));
                Fate::Replaced
            }
            ChunkKind::Error if place == Place::Earlier => {
                self.close_open(out);
                out.push(turn_error(turn, bytes));
                Fate::Replaced
            }
            ChunkKind::Error => {
                // a client reads nothing behind it, not even what ends a call
                self.close_open(out);
                if !std::mem::replace(&mut self.told, true) {
                    let open = self.calls.all_open();
                    out.extend(open.map(|(id, tool)| interrupted(id, tool.binding)));
                }
                Fate::Pass
            }
            ChunkKind::Abort => {
                self.close_open(out);
                Fate::Pass
            }
            ChunkKind::StartStep => {
                self.close_open(out);
                self.next_step(out);
                Fate::Pass
            }
            ChunkKind::FinishStep => {
                self.close_open(out);
                self.in_step = false;
                Fate::Pass
            }
            ChunkKind::TextStart | ChunkKind::TextDelta | ChunkKind::TextEnd => run(
                &mut self.text,
                ("text-start", "text-end"),
                &head.kind,
                id,
                out,
            ),
            ChunkKind::ReasoningStart | ChunkKind::ReasoningDelta | ChunkKind::ReasoningEnd => run(
                &mut self.reasoning,
                ("reasoning-start", "reasoning-end"),
                &head.kind,
                id,
                out,
            ),
            ChunkKind::ToolInputStart
            | ChunkKind::ToolInputDelta
            | ChunkKind::ToolInputAvailable
            | ChunkKind::ToolInputError => self.call(turn, head, bytes, out),
            ChunkKind::ToolOutputAvailable
            | ChunkKind::ToolOutputError
            | ChunkKind::ToolOutputDenied => self.answer(turn, head, bytes, out),
            // only some current clients know these
            ChunkKind::ToolApprovalRequest
            | ChunkKind::ToolApprovalResponse
            | ChunkKind::Custom
            | ChunkKind::ReasoningFile
            | ChunkKind::Unknown(_) => Fate::Wrap,
            ChunkKind::MessageMetadata
            | ChunkKind::SourceUrl
            | ChunkKind::SourceDocument
            | ChunkKind::File
            | ChunkKind::Data(_) => Fate::Pass,
        }
    }

    /// The pushed chunk itself, as its clients take it.
    fn pass(&self, head: &ChunkHead, bind: Option<Binding>, bytes: &[u8], out: &mut Vec<Output>) {
        if self.profile == Profile::Current && bind.is_none() && head.form == Form::Clean {
            return out.push(Output::Verbatim);
        }
        if bind.is_none() && head.form == Form::Clean && shape::fits_strictly(bytes, &head.kind) {
            return out.push(Output::Verbatim);
        }
        let cleaned = shape::clean(bytes, &head.kind, self.profile, bind);
        out.extend(cleaned.map(|chunk| Output::Written(Bytes::from(chunk))));
    }

    fn close_open(&mut self, out: &mut Vec<Output>) {
        out.extend(
            self.text
                .drain(..)
                .map(|id| written(json!({"type": "text-end", "id": id}))),
        );
        out.extend(
            self.reasoning
                .drain(..)
                .map(|id| written(json!({"type": "reasoning-end", "id": id}))),
        );
    }
}

#[cfg(test)]
mod tests;
