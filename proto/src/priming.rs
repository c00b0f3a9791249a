//! What an agent that remembers nothing is told of its conversation: the newest words first under a byte budget, the oldest first
//! in the result.
//!
//! A conversation is a row of *pieces*: prompts, texts and tool calls, a long text in several. The pieces that are kept are always
//! its newest ones without a gap. A piece is kept whole or not at all; one ends behind a line where it has one, and never in a
//! character. Tools are named; what went in and came out only stands where that was asked for.
//!
//! The library reads no store and writes no file: [`TurnWords`] is fed a turn's parts, [`Selection`] is given turns from the newest
//! on, [`Priming`] is the result, on the wire and as a [text](Priming::preamble).

mod selection;
mod text;
mod words;

use serde::{Deserialize, Serialize};

pub use selection::Selection;
pub use text::FRAME;
pub use words::{KINDS, KINDS_WITH_PAYLOADS, TurnWords};

/// What is kept when nothing is asked for.
pub const DEFAULT_BUDGET: usize = 64 * 1024;
/// The most that may be asked for: with a prompt it fits a driver's request.
pub const MAX_BUDGET: usize = 1024 * 1024;

/// Whether what went into tools and came out of them is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Payloads {
    /// Their names only.
    #[default]
    Left,
    /// As far as they fit; a call whose payloads do not fit is named.
    Kept,
}

/// The newest words of a conversation. As JSON, `turns` is never longer than the budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Priming {
    /// The oldest first.
    pub turns: Vec<PrimedTurn>,
    /// Turns of which nothing is kept; all of them are older.
    pub omitted_turns: u32,
    /// Whether anything was left out.
    pub truncated: bool,
    /// The first prompt, for an agent that can be told nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_task: Option<String>,
    /// The agent's own session, for an agent that can load it; only on the way to a driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_session_id: Option<String>,
}

/// What is kept of one turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrimedTurn {
    /// Its number.
    pub turn: u32,
    /// What was asked; its newest words, or absent, where the budget ends in this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// What the agent said and did, in order.
    pub said: Vec<Said>,
}

/// One thing the agent said or did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Said {
    /// It said this.
    Text {
        /// The words.
        text: String,
    },
    /// It used a tool.
    Tool {
        /// Which.
        name: String,
        /// The JSON that went in, where payloads are kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<String>,
        /// The JSON that came out, where payloads are kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<String>,
    },
}

impl Priming {
    /// Reads its JSON. `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests;
