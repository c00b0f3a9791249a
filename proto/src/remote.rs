//! Remote sessions: agents on machines that are not ours. What a machine reports, what it is told, and what may be done to a session in
//! which state.

use serde::{Deserialize, Serialize};

use crate::problem::Code;
use crate::session::words;

words! {
    /// Where a remote session stands.
    ///
    /// ```text
    /// active ⇄ paused      active, paused ─▶ ending ─▶ completed | stopped | error
    /// ```
    RemoteState {
        /// It takes chats and reports output.
        Active = "active",
        /// It takes no chat until it is resumed.
        Paused = "paused",
        /// Its end is known; the last events are waited for, 30 s at most.
        Ending = "ending",
        /// Its work is done.
        Completed = "completed",
        /// A person stopped it.
        Stopped = "stopped",
        /// It failed.
        Error = "error",
    }
}

impl RemoteState {
    /// Whether nothing changes any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Stopped | Self::Error)
    }
}

words! {
    /// What a remote session is.
    Activity {
        /// A conversation.
        Chat = "chat",
        /// An agent at work.
        Agent = "agent",
        /// A terminal.
        Terminal = "terminal",
        /// A step of a workflow; always autonomous, with its `workflowId`.
        Workflow = "workflow",
    }
}

words! {
    /// Where an event comes from.
    OutputStream {
        /// The program's output: lines of JSON, cut anywhere.
        Stdout = "stdout",
        /// Its complaints.
        Stderr = "stderr",
        /// The reporter's own words.
        System = "system",
        /// The agent asks whether it may.
        Permission = "permission",
        /// What became of a request to the agent: `aborted`, `abort_failed`, `done`.
        RequestState = "request_state",
    }
}

words! {
    /// What a machine is told to do.
    CommandKind {
        /// Say this to the agent.
        Chat = "chat",
        /// Abort the turn.
        Abort = "abort",
        /// End the program.
        Stop = "stop",
        /// Hold it.
        Pause = "pause",
        /// Let it go on.
        Resume = "resume",
        /// A person's answer to a permission request.
        Permission = "permission",
    }
}

/// What somebody wants of a remote session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the verb of that name")]
pub enum Operation {
    Read,
    Chat,
    Abort,
    Stop,
    Pause,
    Resume,
    Permission,
    Output,
    Status,
    Usage,
    Import,
    Delete,
}

/// What a verb does in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Does,
    /// It is so already: 200, nothing changes.
    Already,
    /// It cannot be.
    Refuses(Code),
}

impl Operation {
    /// Every operation.
    pub const ALL: &'static [Operation] = &[
        Self::Read,
        Self::Chat,
        Self::Abort,
        Self::Stop,
        Self::Pause,
        Self::Resume,
        Self::Permission,
        Self::Output,
        Self::Status,
        Self::Usage,
        Self::Import,
        Self::Delete,
    ];

    /// The table of (operation, state). Events repeated to an ended session are no new ones, and are answered as repeated.
    pub fn answer(self, state: RemoteState) -> Answer {
        use Answer::{Already, Does, Refuses};
        use RemoteState::{Active, Ending, Paused};
        let ended = Refuses(Code::SessionEnded);
        match (self, state) {
            (Self::Read | Self::Usage | Self::Import, _) => Does,
            (Self::Delete, state) if state.is_terminal() => Does,
            (Self::Delete, _) => Refuses(Code::NotDeletable),
            (Self::Chat | Self::Permission, Active) => Does,
            (Self::Chat | Self::Permission, Paused) => Refuses(Code::SessionPaused),
            (Self::Chat | Self::Permission, _) => ended,
            (Self::Abort | Self::Stop, Active | Paused) => Does,
            (Self::Abort | Self::Stop, _) => Already,
            (Self::Pause, Active) | (Self::Resume, Paused) => Does,
            (Self::Pause, Paused) | (Self::Resume, Active) => Already,
            (Self::Pause | Self::Resume, _) => ended,
            (Self::Output, Active | Paused | Ending) | (Self::Status, Active | Paused) => Does,
            (Self::Output, _) => ended,
            (Self::Status, _) => Already,
        }
    }
}

/// One event of a machine's report, a line of the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputEvent {
    /// From 0, without gaps, given by the reporter once and for ever.
    pub event_index: u64,
    /// Where it comes from.
    pub stream: OutputStream,
    /// Some lines, one, or a part of one.
    pub data: String,
    /// The stream ended with it; of stdout: the program did.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_complete: bool,
    /// When it was said, by the machine's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<jiff::Timestamp>,
}

/// The answer to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputAccepted {
    /// Events stored now.
    pub accepted: u64,
    /// Events that were there before.
    pub duplicates: u64,
    /// The first event that is missing.
    pub next_event_index: u64,
}
