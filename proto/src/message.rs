//! Messages and the turns behind them: the rows that people and workflows read, whatever agent spoke.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::session::words;

words! {
    /// Who speaks in a message.
    MessageRole {
        /// A person.
        User = "user",
        /// The agent.
        Assistant = "assistant",
        /// The program around it.
        System = "system",
    }
}

words! {
    /// How a row came to be.
    MessageSource {
        /// From what a machine reported as it was said.
        RemoteLive = "remote_live",
        /// From a program's own record, handed in later.
        RemoteImport = "remote_import",
        /// By a person's chat.
        Chat = "chat",
        /// From an agent session's parts.
        AgentSession = "agent_session",
    }
}

words! {
    /// How a turn ended.
    TerminalReason {
        /// The agent said that it is done.
        Result = "result",
        /// Its program ended without saying so.
        ProcessExit = "process_exit",
        /// The session was stopped.
        Stopped = "stopped",
        /// A person aborted the turn.
        Aborted = "aborted",
        /// The session or the agent failed.
        Error = "error",
        /// Events of it never arrived; the turn's `gaps` say which.
        Gap = "gap",
    }
}

/// One piece of what was said. Providers' forms are brought to these; what is none of them stays in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Text for the reader.
    Text {
        /// It.
        text: String,
        /// It was cut off.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        partial: bool,
    },
    /// Reasoning, word by word.
    Thinking {
        /// It.
        thinking: String,
        /// It was cut off.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        partial: bool,
    },
    /// A summary of reasoning.
    Reasoning {
        /// It.
        text: String,
    },
    /// A tool is called.
    ToolUse {
        /// The call.
        id: String,
        /// The tool.
        name: String,
        /// Its input; a string where the provider's was no JSON.
        input: Json,
        /// It was cut off.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        partial: bool,
    },
    /// What a tool answered.
    ToolResult {
        /// The call.
        tool_use_id: String,
        /// As the provider has it: text, or blocks.
        content: Json,
        /// The tool failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// Any JSON, kept as its compact text: many small values cost their bytes, not a tree's.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// The text.
    pub fn get(&self) -> &str {
        self.0.get()
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self(serde_json::value::to_raw_value(&value).expect("a JSON value always serialises"))
    }
}

impl<'de> Deserialize<'de> for Json {
    /// By way of a tree: a tagged block's fields are buffered before its kind is known.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

/// Events that never arrived: first and last index, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The first.
    pub from: u64,
    /// The last.
    pub to: u64,
}
