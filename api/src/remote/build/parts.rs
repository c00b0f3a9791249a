//! The parts of an agent session's turn as blocks.

use std::collections::HashMap;

use bex_proto::limits;
use bex_proto::message::Block;
use serde_json::{Map, Value};

/// Blocks of a turn's parts, in the order in which each began.
pub fn of_parts<'a>(parts: impl Iterator<Item = &'a str>) -> Vec<Block> {
    let mut turn = Turn::default();
    for part in parts {
        if let Ok(Value::Object(part)) = serde_json::from_str(part) {
            turn.hear(&part);
        }
    }
    let kept = turn.blocks.into_iter().filter(|block| match block {
        Block::Text { text, .. } => !text.is_empty(),
        Block::Thinking { thinking, .. } => !thinking.is_empty(),
        _ => true,
    });
    kept.collect()
}

#[derive(Default)]
struct Turn {
    blocks: Vec<Block>,
    bytes: usize,
    /// Where the text or reasoning of an id goes.
    open: HashMap<(bool, String), usize>,
}

impl Turn {
    fn hear(&mut self, part: &Map<String, Value>) {
        let text = |field: &str| part.get(field).and_then(Value::as_str).unwrap_or_default();
        let value = |field: &str| part.get(field).cloned().unwrap_or(Value::Null);
        match text("type") {
            "text-start" => self.start(false, text("id")),
            "reasoning-start" => self.start(true, text("id")),
            "text-delta" => self.more(false, text("id"), text("delta")),
            "reasoning-delta" => self.more(true, text("id"), text("delta")),
            "tool-input-available" => {
                let (id, name) = (text("toolCallId"), text("toolName"));
                self.push(Block::ToolUse {
                    id: clean(id),
                    name: clean(name),
                    input: value("input"),
                    partial: false,
                });
            }
            "tool-output-available" if value("preliminary") != Value::Bool(true) => {
                self.push(Block::ToolResult {
                    tool_use_id: clean(text("toolCallId")),
                    content: value("output"),
                    is_error: false,
                });
            }
            "tool-output-error" => self.push(Block::ToolResult {
                tool_use_id: clean(text("toolCallId")),
                content: value("errorText"),
                is_error: true,
            }),
            _ => {}
        }
    }

    fn push(&mut self, block: Block) {
        if self.blocks.len() < limits::TURN_BLOCKS {
            self.blocks.push(block);
        }
    }

    fn start(&mut self, reasoning: bool, id: &str) {
        let block = match reasoning {
            true => Block::Thinking {
                thinking: String::new(),
                partial: false,
            },
            false => Block::Text {
                text: String::new(),
                partial: false,
            },
        };
        let at = self.blocks.len();
        self.push(block);
        if self.blocks.len() > at {
            self.open.insert((reasoning, id.to_owned()), at);
        }
    }

    fn more(&mut self, reasoning: bool, id: &str, delta: &str) {
        let Some(at) = self.open.get(&(reasoning, id.to_owned())) else {
            return;
        };
        if self.bytes + delta.len() > limits::TURN_BLOCK_BYTES {
            return;
        }
        self.bytes += delta.len();
        match &mut self.blocks[*at] {
            Block::Text { text, .. } => text.push_str(&clean(delta)),
            Block::Thinking { thinking, .. } => thinking.push_str(&clean(delta)),
            _ => {}
        }
    }
}

fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
