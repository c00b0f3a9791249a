//! What a line of a program's output means. Which provider speaks is told by each line's own shape; what none of them knows stays in the log.

mod claude;
mod codex;
mod openai;

use bex_proto::message::{Block, TerminalReason};
use serde_json::Value;

use super::json::Object;

/// What was said, in one form for all.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// A run of the program begins, with its own session id: what was open before is over.
    Begin(Option<String>),
    /// What is known of the next turn before it speaks.
    About {
        /// The conversation it belongs to.
        conversation: Option<String>,
        /// Who speaks.
        model: Option<String>,
    },
    /// Whole blocks of a message.
    Blocks(Message),
    /// A message as far as it came: it comes again, under its id.
    Unfinished(Message),
    /// A message begins that comes in pieces and then whole, or never.
    Message {
        /// Its id.
        id: String,
        /// Who speaks.
        model: Option<String>,
    },
    /// A piece of it.
    Piece(Delta),
    /// Something for people that no agent said.
    System(String),
    /// The turn is over.
    End(End),
}

/// Whole blocks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Message {
    /// The message they belong to.
    pub id: Option<String>,
    /// What ids mean here.
    pub names: Names,
    /// Who speaks.
    pub model: Option<String>,
    /// In order.
    pub blocks: Vec<Block>,
}

/// How far an id names the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// For ever.
    #[default]
    ForEver,
    /// Within one run of the program: the next one counts anew.
    OfRun,
}

/// A turn's end.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// How.
    pub reason: TerminalReason,
    /// What it cost, in its provider's words, which tells it from the turns before it.
    pub cost: Option<String>,
}

impl From<TerminalReason> for End {
    fn from(reason: TerminalReason) -> Self {
        Self { reason, cost: None }
    }
}

/// A piece of a streamed message.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// A block begins.
    Start {
        /// Its number.
        index: u64,
        /// What it is.
        block: Started,
    },
    /// More of a block.
    Text {
        /// Its number.
        index: u64,
        /// More.
        text: String,
    },
    /// A block ends.
    Stop {
        /// Its number.
        index: u64,
    },
    /// The message ends.
    End,
}

/// A block that has begun.
#[derive(Debug, Clone, PartialEq)]
pub enum Started {
    /// Text.
    Text(String),
    /// Thinking.
    Thinking(String),
    /// A call.
    ToolUse {
        /// The call.
        id: String,
        /// The tool.
        name: String,
        /// Its input as far as it came.
        input: String,
    },
}

/// What an object says; nothing where it is of no known kind.
pub fn read(object: &Object) -> Vec<Said> {
    claude::read(object)
        .or_else(|| codex::read(object))
        .or_else(|| openai::read(object))
        .unwrap_or_default()
}

fn owned(object: &Object, field: &str) -> Option<String> {
    super::json::text(object, field).map(str::to_owned)
}

fn text_block(text: &str) -> Block {
    Block::Text {
        text: text.to_owned(),
        partial: false,
    }
}

fn thinking(text: &str) -> Block {
    Block::Thinking {
        thinking: text.to_owned(),
        partial: false,
    }
}

fn call(id: &str, name: &str, input: Value) -> Block {
    Block::ToolUse {
        id: id.to_owned(),
        name: name.to_owned(),
        input: input.into(),
        partial: false,
    }
}

fn result(id: &str, content: Value, is_error: bool) -> Block {
    Block::ToolResult {
        tool_use_id: id.to_owned(),
        content: content.into(),
        is_error,
    }
}

/// Nothing where there are no blocks.
fn blocks(message: Message) -> Vec<Said> {
    match message.blocks.is_empty() {
        true => Vec::new(),
        false => vec![Said::Blocks(message)],
    }
}
