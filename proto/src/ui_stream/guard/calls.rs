//! Tool calls: each is begun once, answered once, and stands in a step of its own.

use std::sync::Arc;

use serde_json::json;

use super::written::{denied, input_error_in_two, interrupted, stand_in_call, written};
use super::{Fate, Guard, Output};
use crate::ids::TurnNo;
use crate::ui_stream::head::{Binding, ChunkHead, ChunkKind};
use crate::ui_stream::profile::Profile;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
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
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Streaming | Self::Called)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tool {
    pub(super) progress: Progress,
    pub(super) binding: Binding,
    pub(super) turn: TurnNo,
    pub(super) step: u32,
    pub(super) origin: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The agent called it.
    Agent,
    /// Its call was lost; the guard wrote one.
    StandIn,
}

impl Guard {
    /// Answers these open calls.
    pub(super) fn interrupt(
        &mut self,
        ids: impl IntoIterator<Item = Arc<str>>,
        out: &mut Vec<Output>,
    ) {
        for id in ids {
            self.streaming.remove(&id);
            if let Some(tool) = self.calls.open(&id) {
                out.push(interrupted(&id, tool.binding));
                let progress = Progress::Interrupted;
                self.calls.put(&id, Tool { progress, ..tool });
            }
        }
    }

    /// What was said of the open calls cannot be given to this viewer: to it they were never begun.
    pub fn forget_open_calls(&mut self) {
        self.calls.forget_open();
        self.streaming.clear();
    }

    /// Clients look for a half-streamed call in the current step only.
    pub(super) fn next_step(&mut self, out: &mut Vec<Output>) {
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

    pub(super) fn call(
        &mut self,
        turn: TurnNo,
        head: &ChunkHead,
        bytes: &[u8],
        out: &mut Vec<Output>,
    ) -> Fate {
        let Some(id) = head.chunk_id.as_deref() else {
            return Fate::Drop;
        };
        let known = self.calls.get(id);
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
        let open = same.filter(|tool| tool.progress.is_open());
        let binding = open.map_or(self.binding(known, head), |tool| tool.binding);
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

    /// What a new call of an id is bound to. Old clients keep one part for an id, whatever its calls are.
    fn binding(&self, known: Option<Tool>, head: &ChunkHead) -> Binding {
        match known {
            Some(known) if self.profile == Profile::Strict5 => known.binding,
            _ => head.binding,
        }
    }

    /// Takes what is known of a call. One that is forgotten for it is answered.
    fn remember(&mut self, id: &str, tool: Tool, out: &mut Vec<Output>) {
        if let Some((oldest, tool)) = self.calls.put(id, tool) {
            self.streaming.remove(&oldest);
            out.push(interrupted(&oldest, tool.binding));
        }
    }

    pub(super) fn answer(
        &mut self,
        turn: TurnNo,
        head: &ChunkHead,
        bytes: &[u8],
        out: &mut Vec<Output>,
    ) -> Fate {
        let Some(id) = head.chunk_id.as_deref() else {
            return Fate::Drop;
        };
        let known = self.calls.get(id);
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
                let binding = self.binding(known, head);
                out.push(stand_in_call(id, binding));
                Tool {
                    progress: Progress::Answered,
                    binding,
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
