//! Sessions: their row, their list, and the verbs that move them. Every move is one transaction under the session
//! row's lock, and "somebody else was first" is an outcome, not an error.

mod begin_turn;
mod continuity;
mod create;
mod lifecycle;
mod list;

pub use begin_turn::{BeginTurn, NewTurn};
pub use create::{AgentSpec, Created, NewSession, SecretEnv};
pub use lifecycle::{Archived, Cancel, Delete};
pub use list::{ArchivedFilter, ListCursor, ListFilter};

use bex_proto::ids::PartId;
use bex_proto::session::{Phase, SessionKind};
use bex_proto::{Seq, SessionId, TurnNo, WorkspaceId};
use jiff::Timestamp;
use tokio_postgres::Row;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, large, quota_mark, text, turn, word};

/// One session with its counters.
#[derive(Debug, Clone)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// The owner, from the row, never from a caller.
    pub workspace: WorkspaceId,
    /// Interactive or autonomous.
    pub kind: SessionKind,
    /// Of an autonomous session.
    pub workflow_id: Option<String>,
    /// Shown in lists.
    pub title: Option<String>,
    /// Carried and shown.
    pub repo: Option<String>,
    /// Carried and shown.
    pub branch: Option<String>,
    /// What runs in it.
    pub agent: AgentSpec,
    /// The subject that created it.
    pub created_by: String,
    /// Where it stands.
    pub phase: Phase,
    /// Why it failed: a code.
    pub failure_reason: Option<String>,
    /// The newest turn's number, which is their count.
    pub turns: TurnNo,
    /// Bytes of all prompts.
    pub prompt_bytes: u64,
    /// Refuses deletion.
    pub legal_hold: bool,
    /// When.
    pub created_at: Timestamp,
    /// Last move.
    pub updated_at: Timestamp,
    /// List state, not a phase.
    pub archived_at: Option<Timestamp>,
    /// When cancel was asked for.
    pub cancel_requested_at: Option<Timestamp>,
    /// When it was canceled for good.
    pub canceled_at: Option<Timestamp>,
    /// What its transcript holds.
    pub transcript: TranscriptHead,
}

/// The counters of a session's transcript, kept by append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranscriptHead {
    /// The seq the next part will get; also the number of parts ever stored.
    pub next_seq: Seq,
    /// Charged bytes: the parts' own and 64 for each.
    pub charged_bytes: u64,
    /// Stored parts.
    pub parts: u64,
    /// The first part that the quota refused.
    pub quota_mark: Option<PartId>,
}

pub(crate) const SESSION_COLUMNS: &str = "s.id, s.workspace_id, s.kind, s.workflow_id, s.title, s.repo, s.branch, \
    s.agent, s.created_by, s.phase, s.failure_reason, s.turns, s.prompt_bytes, s.legal_hold, s.created_at, \
    s.updated_at, s.archived_at, s.cancel_requested_at, s.canceled_at, h.next_seq, h.bytes, h.parts, h.quota_turn, \
    h.quota_index";

impl SessionRow {
    pub(crate) fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: word(row, "id")?,
            workspace: word(row, "workspace_id")?,
            kind: word(row, "kind")?,
            workflow_id: get(row, "workflow_id")?,
            title: get(row, "title")?,
            repo: get(row, "repo")?,
            branch: get(row, "branch")?,
            agent: serde_json::from_str(get(row, "agent")?)
                .map_err(|_| StoreError::Corrupt { what: "agent" })?,
            created_by: get(row, "created_by")?,
            phase: word(row, "phase")?,
            failure_reason: get(row, "failure_reason")?,
            turns: turn(row, "turns")?,
            prompt_bytes: large(row, "prompt_bytes")?,
            legal_hold: get(row, "legal_hold")?,
            created_at: get(row, "created_at")?,
            updated_at: get(row, "updated_at")?,
            archived_at: get(row, "archived_at")?,
            cancel_requested_at: get(row, "cancel_requested_at")?,
            canceled_at: get(row, "canceled_at")?,
            transcript: TranscriptHead::read(row)?,
        })
    }
}

impl TranscriptHead {
    pub(crate) fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            next_seq: Seq(get(row, "next_seq")?),
            charged_bytes: large(row, "bytes")?,
            parts: large(row, "parts")?,
            quota_mark: quota_mark(row)?,
        })
    }
}

impl Db {
    /// One session by id. The caller compares the workspace: another's answers as none.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn session(&self, session: &SessionId) -> Result<Option<SessionRow>, StoreError> {
        let sql = format!(
            "SELECT {SESSION_COLUMNS} FROM sessions s JOIN transcript_heads h ON h.session_id = s.id WHERE s.id = $1"
        );
        self.query_opt("session", &sql, &[text(&session.as_str())])
            .await?
            .as_ref()
            .map(SessionRow::read)
            .transpose()
    }

    /// The transcript's counters alone.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn transcript_head(
        &self,
        session: &SessionId,
    ) -> Result<Option<TranscriptHead>, StoreError> {
        self.query_opt(
            "transcript_head",
            "SELECT next_seq, bytes, parts, quota_turn, quota_index FROM transcript_heads WHERE session_id = $1",
            &[text(&session.as_str())],
        )
        .await?
        .as_ref()
        .map(TranscriptHead::read)
        .transpose()
    }
}
