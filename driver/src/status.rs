//! `status.json`: what the driver is doing, for those who cannot ask it.

use std::path::PathBuf;

use bex_proto::driver::{DriverState, STATUS_FILE, Status};
use bex_proto::ids::TurnNo;
use bex_redact::{Redactor, Secrets};
use serde_json::json;
use tracing::error;

use crate::bounds::ERROR_BYTES;
use crate::profile::Profile;

/// Writes the status file.
#[derive(Debug)]
pub struct StatusFile {
    path: PathBuf,
    generation: Option<bex_proto::Generation>,
    secrets: Secrets,
    redactor: Redactor,
}

/// What is written; an old driver's file leaves most of it out.
#[derive(Debug, Default, Clone)]
pub struct Report {
    /// The turn being spoken, or the last one.
    pub turn: Option<TurnNo>,
    /// What went wrong; redacted and shortened on the way.
    pub error: Option<String>,
    /// The agent's own session.
    pub agent_session: Option<String>,
    /// Whether the old form's log left records out.
    pub log_has_holes: bool,
    /// Of a turn that is being spoken: when it said something, to within [`crate::bounds::STATUS_EVERY`].
    pub last_part_at: Option<jiff::Timestamp>,
}

impl StatusFile {
    /// The status file of a profile's directory.
    pub fn new(profile: &Profile) -> Self {
        Self {
            path: profile.dir.join(STATUS_FILE),
            generation: profile.legacy.is_none().then_some(profile.generation),
            secrets: profile.secrets.clone(),
            redactor: profile.redactor.clone(),
        }
    }

    /// Replaces the status. A failure is logged: the log's turn-end says the same.
    pub fn write(&self, state: DriverState, report: &Report) {
        let legacy = self.generation.is_none();
        let status = Status {
            state,
            generation: self.generation,
            turn: report.turn.filter(|_| !legacy),
            error: report.error.as_deref().map(|text| self.sayable(text)),
            evidence: match legacy {
                true => Some(json!({ "truncated": report.log_has_holes })),
                false => report.last_part_at.map(Status::speaking),
            },
            agent_session_id: report
                .agent_session
                .as_deref()
                .map(|text| self.sayable(text)),
        };
        let text = serde_json::to_vec(&status).expect("a status is plain data");
        if let Err(cause) = crate::files::replace(&self.path, &text) {
            error!(error = %cause, "status cannot be written");
        }
    }

    /// Redacted and shortened at a character border.
    fn sayable(&self, text: &str) -> String {
        let text = self.secrets.redact_text(text);
        shortened(&self.redactor.redact_str(&text)).to_owned()
    }
}

/// At most [`ERROR_BYTES`] of a text, whole characters.
pub fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_BYTES)]
}
