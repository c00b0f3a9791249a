//! The driver's contract: its files, its records, and the proof that a peer is the driver it claims to be.

mod key;
mod log;

pub use key::{DriverKey, TokenSeed};
pub use log::{
    Dropped, LogRecord, PartRecord, TurnDigest, TurnEnd, TurnState, dropped_record, log_record,
    turn_end_record, write_part_record,
};

use serde::{Deserialize, Serialize};

use crate::ids::{Generation, TurnNo};

/// Header of a grant: a JWT made with the driver's key.
pub const GRANT_HEADER: &str = "x-bex-driver-grant";
/// Header of the driver's answer to a grant.
pub const PROOF_HEADER: &str = "x-bex-driver-proof";
/// The status file's name in the driver's directory.
pub const STATUS_FILE: &str = "status.json";
/// The single log of a driver of the old form.
pub const LEGACY_LOG_FILE: &str = "session.jsonl";

/// The name of a turn's log in the driver's directory.
pub fn log_file(turn: TurnNo) -> String {
    format!("session-{turn}.jsonl")
}

/// A driver's state in `status.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriverState {
    /// A turn is being spoken.
    Running,
    /// Waiting for a turn.
    Idle,
    /// Takes no more turns.
    Failed,
    /// The old form's word for the end of its one turn.
    Succeeded,
}

/// `status.json`; the fields that this system reads. At most [`crate::limits::STATUS_BYTES`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// See [`DriverState`].
    pub state: DriverState,
    /// Absent in the old form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// The turn being spoken, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnNo>,
    /// What went wrong, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the agent did, bounded; `truncated` says that the old form's log skipped records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<serde_json::Value>,
    /// The agent's own session, for its continuity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_session_id: Option<String>,
}

/// What a driver's evidence says of the turn that it speaks.
const LAST_PART_AT: &str = "lastPartAt";

impl Status {
    /// Evidence of a turn that is being spoken: its newest part is not older than this. A log that takes no more parts does not show it.
    pub fn speaking(at: jiff::Timestamp) -> serde_json::Value {
        serde_json::json!({ LAST_PART_AT: crate::time::format(at) })
    }

    /// When the newest part was spoken, by the driver's clock, where its evidence says so.
    pub fn last_part_at(&self) -> Option<jiff::Timestamp> {
        let at = self.evidence.as_ref()?.get(LAST_PART_AT)?.as_str()?;
        at.parse().ok()
    }

    /// Whether an old driver says that its log is not whole.
    pub fn evidence_truncated(&self) -> bool {
        self.evidence
            .as_ref()
            .and_then(|e| e.get("truncated"))
            .and_then(serde_json::Value::as_bool)
            .unwrap_or(false)
    }
}

/// Body of POST /turn at the driver.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TurnRequest {
    /// The turn to speak.
    pub turn: TurnNo,
    /// The recorded prompt.
    pub prompt: String,
    /// What earlier turns said, for an agent that remembers nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priming: Option<String>,
}

/// Body of POST /stop at the driver.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StopRequest {
    /// The turn to stop.
    pub turn: TurnNo,
}
