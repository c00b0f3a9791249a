//! The parts of an agent session's turn as blocks.

use std::collections::HashMap;

use bex_proto::limits;
use bex_proto::message::Block;
use serde_json::Value;

use super::json::{self, Object, any};

/// Blocks of a turn's parts, in the order in which each began. What has not ended, as in a turn that is told now, is partial.
pub fn of_parts<'a>(parts: impl Iterator<Item = &'a str>) -> Vec<Block> {
    let mut turn = Turn::default();
    for part in parts {
        if let Some(part) = json::object(part) {
            turn.hear(&part);
        }
    }
    for (at, input) in turn.inputs {
        if let Block::ToolUse { input: cut, .. } = &mut turn.blocks[at] {
            *cut = json::in_text(&input).into();
        }
    }
    let says_something = |block: &Block| match block {
        Block::Text { text, .. } => !text.is_empty(),
        Block::Thinking { thinking, .. } => !thinking.is_empty(),
        _ => true,
    };
    turn.blocks.retain(says_something);
    turn.blocks
}

#[derive(Default)]
struct Turn {
    blocks: Vec<Block>,
    bytes: usize,
    /// Where what has begun goes: an id, and what it is of.
    open: HashMap<(Kind, String), usize>,
    /// Inputs of calls that have begun, by their block.
    inputs: HashMap<usize, String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Text,
    Reasoning,
    Call,
}

impl Turn {
    fn hear(&mut self, part: &Object) {
        let text = |field: &str| json::text(part, field).unwrap_or_default();
        let call = text("toolCallId");
        match text("type") {
            "text-start" => self.start(Kind::Text, text("id"), String::new()),
            "reasoning-start" => self.start(Kind::Reasoning, text("id"), String::new()),
            "tool-input-start" => self.start(Kind::Call, call, text("toolName").to_owned()),
            "text-delta" => self.more(Kind::Text, text("id"), text("delta")),
            "reasoning-delta" => self.more(Kind::Reasoning, text("id"), text("delta")),
            "tool-input-delta" => self.more(Kind::Call, call, text("inputTextDelta")),
            "text-end" => self.end(Kind::Text, text("id")),
            "reasoning-end" => self.end(Kind::Reasoning, text("id")),
            "tool-input-available" => self.called(call, text("toolName"), any(part, "input")),
            "tool-input-error" => {
                self.called(call, text("toolName"), any(part, "input"));
                self.answered(call, any(part, "errorText"), true);
            }
            "tool-output-available" if any(part, "preliminary") != Value::Bool(true) => {
                self.answered(call, any(part, "output"), false);
            }
            "tool-output-error" => self.answered(call, any(part, "errorText"), true),
            "tool-output-denied" => self.answered(call, Value::from("denied"), true),
            _ => {}
        }
    }

    /// Where the next block goes, if there is room for it.
    fn push(&mut self, block: Block) -> Option<usize> {
        let fits = self.blocks.len() < limits::TURN_BLOCKS;
        fits.then(|| {
            self.blocks.push(block);
            self.blocks.len() - 1
        })
    }

    fn start(&mut self, kind: Kind, id: &str, name: String) {
        let partial = true;
        let block = match kind {
            Kind::Text => Block::Text {
                text: String::new(),
                partial,
            },
            Kind::Reasoning => Block::Thinking {
                thinking: String::new(),
                partial,
            },
            Kind::Call => Block::ToolUse {
                id: id.to_owned(),
                name,
                input: Value::Null.into(),
                partial,
            },
        };
        if let Some(at) = self.push(block) {
            if kind == Kind::Call {
                self.inputs.insert(at, String::new());
            }
            self.open.insert((kind, id.to_owned()), at);
        }
    }

    fn more(&mut self, kind: Kind, id: &str, delta: &str) {
        let Some(&at) = self.open.get(&(kind, id.to_owned())) else {
            return;
        };
        if self.bytes + delta.len() > limits::TURN_BLOCK_BYTES {
            return;
        }
        self.bytes += delta.len();
        match (&mut self.blocks[at], self.inputs.get_mut(&at)) {
            (Block::Text { text, .. }, _) => text.push_str(delta),
            (Block::Thinking { thinking, .. }, _) => thinking.push_str(delta),
            (_, Some(input)) => input.push_str(delta),
            _ => {}
        }
    }

    fn end(&mut self, kind: Kind, id: &str) {
        let at = self.open.remove(&(kind, id.to_owned()));
        if let Some(Block::Text { partial, .. } | Block::Thinking { partial, .. }) =
            at.and_then(|at| self.blocks.get_mut(at))
        {
            *partial = false;
        }
    }

    /// A call's input is whole: it takes the place of what had begun.
    fn called(&mut self, id: &str, name: &str, input: Value) {
        let block = Block::ToolUse {
            id: id.to_owned(),
            name: name.to_owned(),
            input: input.into(),
            partial: false,
        };
        match self.open.remove(&(Kind::Call, id.to_owned())) {
            Some(at) => {
                self.inputs.remove(&at);
                self.blocks[at] = block;
            }
            None => {
                self.push(block);
            }
        }
    }

    fn answered(&mut self, id: &str, content: Value, is_error: bool) {
        self.push(Block::ToolResult {
            tool_use_id: id.to_owned(),
            content: content.into(),
            is_error,
        });
    }
}
