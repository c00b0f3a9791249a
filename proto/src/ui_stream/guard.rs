use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

mod written;

use bytes::Bytes;
use serde_json::json;

use super::head::{Binding, ChunkHead, ChunkKind, Form};
use super::profile::Profile;
use super::shape;
use crate::ids::TurnNo;
use crate::limits;
use written::{
    denied, input_error_in_two, interrupted, metadata_of, stand_in_call, turn_error, wrapped,
    written,
};

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Its input is being streamed.
    Streaming,
    /// Its input is whole.
    Called,
    /// It has its output.
    Answered,
    /// It ended without one, and the guard said so.
    Interrupted,
}

impl Progress {
    fn is_open(self) -> bool {
        matches!(self, Self::Streaming | Self::Called)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tool {
    progress: Progress,
    binding: Binding,
    turn: TurnNo,
    step: u32,
    origin: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The agent called it.
    Agent,
    /// Its call was lost; the guard wrote one.
    StandIn,
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
    tools: HashMap<Arc<str>, Tool>,
    /// The ids of `tools`, oldest first.
    calls: VecDeque<Arc<str>>,
    /// Of `tools`, those whose input is being streamed; in order, so that every viewer sees the same.
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
        self.tools
            .get(id)
            .is_some_and(|tool| tool.progress.is_open())
    }

    /// Parts are known to be missing here: what was open cannot be continued.
    pub fn gap(&mut self, out: &mut Vec<Output>) {
        self.close_open(out);
    }

    /// The stream ends here: leaves nothing half-open.
    pub fn end(&mut self, out: &mut Vec<Output>) {
        self.close_open(out);
        let open: Vec<Arc<str>> = self
            .open_tools()
            .iter()
            .map(|(id, _)| (*id).into())
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
                    let open = self.open_tools().into_iter();
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

    /// In the order of their ids, so that every viewer sees the same.
    fn open_tools(&self) -> Vec<(&str, &Tool)> {
        let open = |(_, tool): &(_, &Tool)| tool.progress.is_open();
        let tools = self.tools.iter().map(|(id, tool)| (&**id, tool));
        let mut tools: Vec<_> = tools.filter(open).collect();
        tools.sort_unstable_by_key(|(id, _)| *id);
        tools
    }

    /// Answers these open calls.
    fn interrupt(&mut self, ids: impl IntoIterator<Item = Arc<str>>, out: &mut Vec<Output>) {
        for id in ids {
            self.streaming.remove(&id);
            if let Some(tool) = self.tools.get_mut(&id) {
                out.push(interrupted(&id, tool.binding));
                tool.progress = Progress::Interrupted;
            }
        }
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

    /// Clients look for a half-streamed call in the current step only.
    fn next_step(&mut self, out: &mut Vec<Output>) {
        let streaming = std::mem::take(&mut self.streaming);
        self.interrupt(streaming, out);
        self.in_step = true;
        self.step += 1;
    }

    /// Lets an id name another call than `earlier`. Clients keep one part for an id and step, so that the other call would take its
    /// place: where the agent began no step in between, one is written.
    fn set_apart(&mut self, id: &str, earlier: Tool, out: &mut Vec<Output>) {
        if earlier.progress.is_open() {
            self.interrupt([id.into()], out);
        }
        if earlier.step == self.step {
            self.next_step(out);
            out.push(written(json!({"type": "start-step"})));
        }
    }

    fn call(
        &mut self,
        turn: TurnNo,
        head: &ChunkHead,
        bytes: &[u8],
        out: &mut Vec<Output>,
    ) -> Fate {
        let Some(id) = head.chunk_id.as_deref() else {
            return Fate::Drop;
        };
        let known = self.tools.get(id).copied();
        // in another turn or step an id names another call
        let same = known.filter(|tool| tool.turn == turn && tool.step == self.step);
        let repeated = same.is_some_and(|tool| match (&head.kind, tool.progress) {
            _ if tool.origin == Origin::StandIn => true,
            // a start over: clients forget what was streamed before
            (_, Progress::Streaming) => false,
            (kind, Progress::Called) => *kind != ChunkKind::ToolInputError,
            (_, Progress::Answered | Progress::Interrupted) => true,
        });
        let streaming = same.filter(|tool| tool.progress == Progress::Streaming);
        // without its start nobody knows a call's name, and its whole input follows anyway
        if repeated || (head.kind == ChunkKind::ToolInputDelta && streaming.is_none()) {
            return Fate::Drop;
        }
        if let Some(earlier) = known.filter(|_| same.is_none()) {
            self.set_apart(id, earlier, out);
        }
        // old clients keep one part for an id, whatever its calls are
        let bound = known
            .filter(|_| self.profile == Profile::Strict5)
            .or(streaming);
        let binding = bound.map_or(head.binding, |tool| tool.binding);
        let progress = match head.kind {
            ChunkKind::ToolInputStart | ChunkKind::ToolInputDelta => Progress::Streaming,
            ChunkKind::ToolInputAvailable => Progress::Called,
            _ => Progress::Answered,
        };
        let tool = Tool {
            progress,
            binding,
            turn,
            step: self.step,
            origin: Origin::Agent,
        };
        self.remember(id, tool, out);
        match (progress, streaming) {
            (Progress::Streaming, None) => drop(self.streaming.insert(id.into())),
            (Progress::Called | Progress::Answered, Some(_)) => drop(self.streaming.remove(id)),
            _ => {}
        }
        if head.kind == ChunkKind::ToolInputError && self.profile == Profile::Strict5 {
            let both = input_error_in_two(id, binding, bytes, self.profile);
            out.extend(both.into_iter().flatten());
            return Fate::Replaced;
        }
        if head.kind == ChunkKind::ToolInputDelta || binding == head.binding {
            Fate::Pass
        } else {
            Fate::Bind(binding)
        }
    }

    /// Takes what is known of a call. Where too many are, the oldest is forgotten.
    fn remember(&mut self, id: &str, tool: Tool, out: &mut Vec<Output>) {
        if let Some(known) = self.tools.get_mut(id) {
            *known = tool;
            return;
        }
        if self.calls.len() >= limits::KNOWN_CALLS
            && let Some(oldest) = self.calls.pop_front()
        {
            self.streaming.remove(&oldest);
            if let Some(tool) = self.tools.remove(&oldest)
                && tool.progress.is_open()
            {
                out.push(interrupted(&oldest, tool.binding));
            }
        }
        let id: Arc<str> = id.into();
        self.calls.push_back(Arc::clone(&id));
        self.tools.insert(id, tool);
    }

    fn answer(
        &mut self,
        turn: TurnNo,
        head: &ChunkHead,
        bytes: &[u8],
        out: &mut Vec<Output>,
    ) -> Fate {
        let Some(id) = head.chunk_id.as_deref() else {
            return Fate::Drop;
        };
        let known = self.tools.get(id).copied();
        // a call that was answered in an earlier turn is not answered again: this one's was lost
        let tool = match known.filter(|t| t.turn == turn || t.progress != Progress::Answered) {
            Some(tool) => Tool {
                progress: Progress::Answered,
                ..tool
            },
            None => {
                if let Some(earlier) = known {
                    self.set_apart(id, earlier, out);
                }
                out.push(stand_in_call(id, head.binding));
                Tool {
                    progress: Progress::Answered,
                    binding: head.binding,
                    turn,
                    step: self.step,
                    origin: Origin::StandIn,
                }
            }
        };
        self.streaming.remove(id);
        self.remember(id, tool, out);
        let binding = tool.binding;
        if head.kind == ChunkKind::ToolOutputDenied {
            out.push(denied(id, binding, bytes));
            return Fate::Replaced;
        }
        if binding == head.binding {
            Fate::Pass
        } else {
            Fate::Bind(binding)
        }
    }
}

/// Text and reasoning: a run of deltas between its start and its end.
fn run(
    open: &mut Vec<Box<str>>,
    (start, end): (&str, &str),
    kind: &ChunkKind,
    id: Option<&str>,
    out: &mut Vec<Output>,
) -> Fate {
    let Some(id) = id else { return Fate::Drop };
    let at = open.iter().position(|o| &**o == id);
    match (kind, at) {
        (ChunkKind::TextStart | ChunkKind::ReasoningStart, Some(_)) => {
            out.push(written(json!({"type": end, "id": id})))
        }
        (ChunkKind::TextStart | ChunkKind::ReasoningStart, None) => begin(open, end, id, out),
        (ChunkKind::TextDelta | ChunkKind::ReasoningDelta, Some(_)) => {}
        (ChunkKind::TextDelta | ChunkKind::ReasoningDelta, None) => {
            out.push(written(json!({"type": start, "id": id})));
            begin(open, end, id, out);
        }
        (_, Some(at)) => drop(open.remove(at)),
        (_, None) => return Fate::Drop,
    }
    Fate::Pass
}

/// Opens a run; where too many are open the oldest is closed.
fn begin(open: &mut Vec<Box<str>>, end: &str, id: &str, out: &mut Vec<Output>) {
    if open.len() >= limits::OPEN_RUNS {
        out.push(written(json!({"type": end, "id": open.remove(0)})));
    }
    open.push(id.into());
}

#[cfg(test)]
mod tests;
