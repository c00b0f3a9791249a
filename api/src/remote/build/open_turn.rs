//! A turn while it is told: its blocks in order, within bounds, and the unfinished message of a provider that streams.

use std::collections::HashMap;

use bex_proto::limits;
use bex_proto::message::{Block, Gap, TerminalReason};
use jiff::Timestamp;
use serde_json::Value;

use super::lines::Place;
use super::provider::{Delta, Message, Said, Started};
use super::{BuiltBlock, BuiltTurn};

/// A turn that is not over.
#[derive(Debug, Clone)]
pub struct OpenTurn {
    place: Place,
    blocks: Vec<BuiltBlock>,
    bytes: usize,
    text_bytes: usize,
    model: Option<String>,
    /// Events that never arrived.
    pub gaps: Vec<Gap>,
    /// Something was too large.
    pub overflow: bool,
    /// Events that are told twice carry the same id.
    heard: std::collections::HashSet<String>,
    /// How many blocks of each kind a message had so far, for their origins.
    counted: HashMap<String, u32>,
    streaming: Option<Streaming>,
}

/// A message that comes in pieces. Its blocks come again whole, in their order.
#[derive(Debug, Clone)]
struct Streaming {
    message: String,
    blocks: Vec<(u64, Started)>,
    /// How many of them came whole.
    whole: usize,
    bytes: usize,
}

impl OpenTurn {
    /// A turn whose first line begins at this place.
    pub fn new(place: Place, gaps: Vec<Gap>, overflow: bool) -> Self {
        Self {
            place,
            blocks: Vec::new(),
            bytes: 0,
            text_bytes: 0,
            model: None,
            gaps,
            overflow,
            heard: Default::default(),
            counted: HashMap::new(),
            streaming: None,
        }
    }

    /// Hears a message or a piece of one.
    pub fn hear(&mut self, said: Said) {
        match said {
            Said::Blocks(message) => self.message(message),
            Said::Partial(delta) => self.piece(delta),
            Said::Session(_) | Said::System(_) | Said::End(_) => {}
        }
    }

    fn message(&mut self, message: Message) {
        if let Some(event) = message.event
            && !self.heard.insert(event)
        {
            return;
        }
        if self.model.is_none() {
            self.model = message.model;
        }
        if let (Some(streaming), Some(id)) = (&mut self.streaming, &message.id)
            && streaming.message == *id
        {
            streaming.whole += message.blocks.len();
        }
        for block in message.blocks {
            let origin = self.origin(message.id.as_deref(), &block);
            self.push(block, origin);
        }
    }

    /// Calls and results are named by their provider; texts are counted within their message.
    fn origin(&mut self, message: Option<&str>, block: &Block) -> Option<String> {
        let kind = match block {
            Block::ToolUse { id, .. } => return named("call", id),
            Block::ToolResult { tool_use_id, .. } => return named("result", tool_use_id),
            Block::Text { .. } => "text",
            Block::Thinking { .. } => "thinking",
            Block::Reasoning { .. } => "reasoning",
        };
        let place = format!("{}:{kind}", message?);
        let count = self.counted.entry(place.clone()).or_default();
        let origin = format!("{place}:{count}");
        *count += 1;
        Some(origin)
    }

    fn push(&mut self, block: Block, origin: Option<String>) {
        let bytes = size(&block) + origin.as_ref().map_or(0, String::len);
        let text = match &block {
            Block::Text { text, .. } => text.len(),
            _ => 0,
        };
        if self.blocks.len() >= limits::TURN_BLOCKS
            || self.bytes + bytes > limits::TURN_BLOCK_BYTES
            || self.text_bytes + text > limits::TURN_TEXT_BYTES
        {
            self.overflow = true;
            return;
        }
        self.bytes += bytes;
        self.text_bytes += text;
        self.blocks.push(BuiltBlock { block, origin });
    }

    fn piece(&mut self, delta: Delta) {
        match delta {
            Delta::Message { id, model } => {
                self.unfinished();
                if self.model.is_none() {
                    self.model = model;
                }
                self.streaming = Some(Streaming {
                    message: id,
                    blocks: Vec::new(),
                    whole: 0,
                    bytes: 0,
                });
            }
            Delta::Start { index, block } => {
                if let Some(streaming) = &mut self.streaming
                    && streaming.blocks.len() < limits::TURN_BLOCKS
                {
                    streaming.blocks.push((index, block));
                }
            }
            Delta::Text { index, text } => {
                let Some(streaming) = &mut self.streaming else {
                    return;
                };
                if streaming.bytes + text.len() > limits::TURN_TEXT_BYTES {
                    self.overflow = true;
                    return;
                }
                streaming.bytes += text.len();
                let block = streaming.blocks.iter_mut().rev().find(|(i, _)| *i == index);
                if let Some((_, block)) = block {
                    block.text_mut().push_str(&text);
                }
            }
        }
    }

    /// What of a streamed message never came whole is kept as it is, and marked.
    fn unfinished(&mut self) {
        let Some(streaming) = self.streaming.take() else {
            return;
        };
        for (_, started) in streaming.blocks.into_iter().skip(streaming.whole) {
            let block = match started {
                Started::Text(text) => Block::Text {
                    text,
                    partial: true,
                },
                Started::Thinking(thinking) => Block::Thinking {
                    thinking,
                    partial: true,
                },
                Started::ToolUse { id, name, input } => Block::ToolUse {
                    id,
                    name,
                    input: serde_json::from_str(&input).unwrap_or(Value::String(input)),
                    partial: true,
                },
            };
            let empty = match &block {
                Block::Text { text, .. } => text.is_empty(),
                Block::Thinking { thinking, .. } => thinking.is_empty(),
                _ => false,
            };
            if !empty {
                let origin = self.origin(Some(&streaming.message), &block);
                self.push(block, origin);
            }
        }
    }

    /// The turn as a row.
    pub fn close(
        mut self,
        ordinal: u64,
        last_index: u64,
        reason: TerminalReason,
        at: Timestamp,
    ) -> BuiltTurn {
        self.unfinished();
        let terminal = match self.gaps.is_empty() {
            true => reason,
            false => TerminalReason::Gap,
        };
        BuiltTurn {
            ordinal,
            first: (self.place.index, self.place.offset),
            last_index,
            blocks: self.blocks,
            model: self.model,
            terminal,
            gaps: self.gaps,
            overflow: self.overflow,
            started_at: self.place.at,
            completed_at: at,
        }
    }
}

fn named(kind: &str, id: &str) -> Option<String> {
    (!id.is_empty()).then(|| format!("{kind}:{id}"))
}

/// About what a block takes as JSON.
fn size(block: &Block) -> usize {
    match block {
        Block::Text { text, .. } | Block::Reasoning { text } => text.len(),
        Block::Thinking { thinking, .. } => thinking.len(),
        Block::ToolUse {
            id, name, input, ..
        } => id.len() + name.len() + input.to_string().len(),
        Block::ToolResult {
            tool_use_id,
            content,
            ..
        } => tool_use_id.len() + content.to_string().len(),
    }
}
