//! What a line of a program's output means. Which provider speaks is told by each line's own shape; what none of them knows stays in the log.

mod claude;
mod codex;
mod openai;
mod repair;

use bex_proto::message::{Block, TerminalReason};
use serde_json::{Map, Value};

/// What was said, in one form for all.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// Whole blocks of a message.
    Blocks(Message),
    /// A piece of a message that comes whole later, or never.
    Partial(Delta),
    /// Something for people that no agent said.
    System(String),
    /// The program's own session id.
    Session(String),
    /// The turn is over.
    End(TerminalReason),
}

/// Whole blocks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Message {
    /// The message they belong to.
    pub id: Option<String>,
    /// The event that told of them.
    pub event: Option<String>,
    /// Who speaks.
    pub model: Option<String>,
    /// In order.
    pub blocks: Vec<Block>,
}

/// A piece.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// A message begins.
    Message {
        /// Its id.
        id: String,
        /// Who speaks.
        model: Option<String>,
    },
    /// A block of it begins.
    Start {
        /// Its number.
        index: u64,
        /// What it is, empty.
        block: Started,
    },
    /// More of a block.
    Text {
        /// Its number.
        index: u64,
        /// More.
        text: String,
    },
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

impl Started {
    /// Where more of it goes.
    pub fn text_mut(&mut self) -> &mut String {
        match self {
            Self::Text(text) | Self::Thinking(text) => text,
            Self::ToolUse { input, .. } => input,
        }
    }
}

type Object = Map<String, Value>;

/// What a line says; nothing where it is no JSON object of a known kind.
pub fn read(line: &str) -> Vec<Said> {
    let line = line.trim();
    if !line.starts_with('{') {
        return Vec::new();
    }
    let Some(object) = repair::parse(line) else {
        return Vec::new();
    };
    claude::read(&object)
        .or_else(|| codex::read(&object))
        .or_else(|| openai::read(&object))
        .unwrap_or_default()
}

/// As [`read`], for a line that was parsed already.
pub fn parsed(line: &str) -> Option<Object> {
    let line = line.trim();
    line.starts_with('{').then(|| repair::parse(line)).flatten()
}

fn text_of<'a>(object: &'a Object, field: &str) -> Option<&'a str> {
    object.get(field)?.as_str()
}

fn owned(object: &Object, field: &str) -> Option<String> {
    text_of(object, field).map(clean)
}

/// A NUL is nothing the store's text can hold.
fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn text_block(text: &str) -> Block {
    Block::Text {
        text: clean(text),
        partial: false,
    }
}

fn thinking(text: &str) -> Block {
    Block::Thinking {
        thinking: clean(text),
        partial: false,
    }
}

fn call(id: &str, name: &str, input: Value) -> Block {
    Block::ToolUse {
        id: clean(id),
        name: clean(name),
        input,
        partial: false,
    }
}

fn result(id: &str, content: Value, is_error: bool) -> Block {
    Block::ToolResult {
        tool_use_id: clean(id),
        content,
        is_error,
    }
}
