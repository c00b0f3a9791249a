//! What a package holds. Everything that a later version may add has a default.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::execution::{GovernanceMode, NamedSession};
use crate::message::{MessageRole, MessageSource, TerminalReason};
use crate::session::{EndedBy, TruncationReason, Verdict};

/// The sections. What a kind of package has no such thing of is null or empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sections {
    /// The configuration of the first node's agent.
    pub agent_config: Option<Value>,
    /// Those of every node's agent.
    #[serde(default)]
    pub agent_configs: Vec<Config>,
    /// The workflow that ran.
    pub workflow: Option<Value>,
    /// How it was to be executed.
    pub exec_spec: Option<Value>,
    /// With which models.
    pub model_config: Option<Value>,
    /// Whether rules decided.
    pub governance_mode: Option<GovernanceMode>,
    /// The execution itself.
    #[serde(default)]
    pub execution: Option<ExecutionFacts>,
    /// Its nodes, in order.
    pub nodes: Vec<Node>,
    /// The sessions whose transcripts stand behind this.
    #[serde(default)]
    pub sessions: Vec<SessionFacts>,
    /// Their turns.
    #[serde(default)]
    pub turns: Vec<TurnFacts>,
    /// What was said; an execution has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Said>>,
    /// What tools were asked and answered.
    pub tool_results: ToolResults,
    /// What rules decided.
    pub findings: Findings,
    /// Sums.
    pub usage_totals: Option<UsageTotals>,
    /// What the sums are of.
    #[serde(default)]
    pub usage: Vec<Ledger>,
    /// What is not all there, and why.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// Where traces are found.
    pub trace_ids: TraceIds,
}

/// One version of a configuration, the one that ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// Of what.
    pub id: String,
    /// Which.
    pub version: String,
    /// As it was recorded.
    pub body: Value,
    /// When.
    #[serde(default)]
    pub recorded_at: Option<String>,
}

/// An execution's row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionFacts {
    /// Where it stands.
    pub status: String,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<String>,
    /// When it began.
    #[serde(default)]
    pub started_at: Option<String>,
    /// When it ended.
    #[serde(default)]
    pub completed_at: Option<String>,
}

/// A node of an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name.
    pub node_id: String,
    /// What went in.
    pub inputs: Option<Value>,
    /// What came out.
    pub outputs: Option<Value>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<String>,
    /// Where it stands.
    pub status: Option<String>,
    /// How often it was tried again.
    #[serde(default)]
    pub retries: u32,
    /// What it used.
    pub usage: Option<Value>,
    /// Who did it.
    #[serde(default)]
    pub agent_id: Option<String>,
    /// Configured how.
    #[serde(default)]
    pub agent_version: Option<String>,
    /// When it began.
    #[serde(default)]
    pub started_at: Option<String>,
    /// When it ended.
    #[serde(default)]
    pub completed_at: Option<String>,
}

/// A session behind a package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionFacts {
    /// Which.
    pub session_id: String,
    /// Of which kind.
    pub kind: NamedSession,
    /// Whether everything it said is known; false where it is gone.
    pub complete: bool,
    /// Where it stands; absent where it is gone.
    #[serde(default)]
    pub phase: Option<String>,
}

/// A turn of such a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnFacts {
    /// Whose.
    pub session_id: String,
    /// Its id.
    pub turn_id: String,
    /// The run it is; turns from before runs were given have none.
    #[serde(default)]
    pub run_id: Option<String>,
    /// Whether everything of it is known.
    pub complete: bool,
    /// What is known of an agent session's.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// Why it is not whole.
    #[serde(default)]
    pub reason: Option<TruncationReason>,
    /// Who ended an agent session's.
    #[serde(default)]
    pub ended_by: Option<EndedBy>,
    /// How a remote session's ended.
    #[serde(default)]
    pub terminal_reason: Option<TerminalReason>,
}

/// Something that was said. What tools were asked and answered stands in [`ToolResults`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Said {
    /// Its place in the session.
    pub position: u64,
    /// Its id.
    pub id: String,
    /// Who speaks.
    pub role: MessageRole,
    /// Text.
    pub content: String,
    /// Text, thoughts, and where tools were called, in the order in which they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_blocks: Option<Vec<Value>>,
    /// Where it is from.
    pub source: MessageSource,
    /// Of which turn.
    #[serde(default)]
    pub turn_id: Option<String>,
    /// Of which run.
    #[serde(default)]
    pub run_id: Option<String>,
    /// How that turn ended.
    #[serde(default)]
    pub terminal_reason: Option<TerminalReason>,
    /// Who spoke.
    #[serde(default)]
    pub model: Option<String>,
    /// When.
    pub at: String,
}

/// One call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// The call.
    pub tool_call_id: String,
    /// The tool; unknown where the call itself is not known.
    pub tool_name: Option<String>,
    /// What it was asked.
    pub input: Option<Value>,
    /// What it answered; null where it did not.
    pub output: Option<Value>,
    /// Whether it failed.
    #[serde(default)]
    pub is_error: bool,
    /// Whether an answer is known.
    pub answered: bool,
    /// In which session.
    pub session_id: String,
    /// In which turn.
    pub turn_id: String,
    /// In which run.
    #[serde(default)]
    pub run_id: Option<String>,
}

/// Calls of tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResults {
    /// Whether some may be missing.
    pub partial: bool,
    /// Those that are known.
    pub results: Vec<Value>,
    /// Where they are from, and why some are missing.
    #[serde(default)]
    pub provenance: Option<String>,
}

/// A list that could not be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Partial {
    /// True.
    pub partial: bool,
    /// What is known.
    pub results: Vec<Value>,
    /// Why there is no more.
    pub provenance: String,
}

/// Findings: joined, where an empty list says that there are none; or not, where there is nothing to join by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Findings {
    /// Every one.
    Joined(Vec<Value>),
    /// Could not be looked for.
    Partial(Partial),
}

/// Sums of usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageTotals {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Both, or what the provider counts so.
    pub total_tokens: u64,
    /// Calls of models.
    pub call_count: u64,
}

/// An entry of the usage ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// Its id.
    pub entry_id: String,
    /// Of which node.
    #[serde(default)]
    pub node_id: Option<String>,
    /// Of which session.
    #[serde(default)]
    pub session_id: Option<String>,
    /// Of which run.
    #[serde(default)]
    pub run_id: Option<String>,
    /// What was used.
    #[serde(flatten)]
    pub used: UsageTotals,
    /// What it cost: a decimal number as text, so that none of it is lost.
    #[serde(default)]
    pub cost: Option<String>,
    /// In what (ISO 4217).
    #[serde(default)]
    pub currency: Option<String>,
    /// When.
    pub at: String,
}

/// What is not all there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// In which section.
    pub section: String,
    /// True: the section is not all there is.
    pub partial: bool,
    /// Why.
    pub provenance: String,
}

/// Where traces are found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceIds {
    /// By this id.
    pub correlation_id: String,
}
