//! Agent sessions: their turns and parts.

use bex_proto::session::{EndedBy, Phase, SessionKind, TruncationReason, Verdict};
use bex_proto::{PartIndex, SessionId, TurnNo, WorkspaceId};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::Snapshot;
use crate::error::StoreError;
use crate::sql::{get, index, int4, int8, large, number, optional_word, text, turn, turn_no, word};

/// An agent session.
#[derive(Debug, Clone)]
pub struct AgentSource {
    /// Whose.
    pub workspace: WorkspaceId,
    /// Which.
    pub id: SessionId,
    /// Who it works for.
    pub kind: SessionKind,
    /// Where it stands.
    pub phase: Phase,
    /// JSON: profile, model, arguments.
    pub agent: String,
}

/// A turn of it.
#[derive(Debug, Clone)]
pub struct TurnSource {
    /// Its number.
    pub turn: TurnNo,
    /// The run it is.
    pub run_id: Option<String>,
    /// What was asked.
    pub prompt: String,
    /// What is known of its transcript.
    pub verdict: Verdict,
    /// Why it is not whole.
    pub reason: Option<TruncationReason>,
    /// Who ended it.
    pub ended_by: Option<EndedBy>,
    /// When it was asked.
    pub created_at: Timestamp,
    /// When it was over.
    pub settled_at: Option<Timestamp>,
    /// Bytes of its parts.
    pub bytes: u64,
}

/// Turns of one page: their prompts are 100 000 bytes each at most.
const TURNS: i64 = 20;
/// Parts of one page ...
const PARTS: i64 = 1000;
/// ... and the bytes in which they begin.
const BYTES: i64 = 1024 * 1024;

const PARTS_OF: &str = "
    SELECT q.part_index, q.part FROM (
        SELECT p.part_index, p.part, sum(octet_length(p.part)) OVER (ORDER BY p.part_index) - octet_length(p.part) AS before
          FROM (SELECT part_index, part FROM transcript_parts WHERE session_id = $1 AND turn = $2 AND part_index > $3
                 ORDER BY part_index LIMIT $4) p) q
     WHERE q.before < $5 ORDER BY q.part_index";

impl Snapshot {
    /// An agent session.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn agent_session(&self, id: &SessionId) -> Result<Option<AgentSource>, StoreError> {
        let row = self
            .query_opt(
                "package_agent_session",
                "SELECT workspace_id, id, kind, phase, agent FROM sessions WHERE id = $1",
                &[text(&id.as_str())],
            )
            .await?;
        row.map(|row| {
            Ok(AgentSource {
                workspace: word(&row, "workspace_id")?,
                id: word(&row, "id")?,
                kind: word(&row, "kind")?,
                phase: word(&row, "phase")?,
                agent: get(&row, "agent")?,
            })
        })
        .transpose()
    }

    /// Its turns from a number on, in order; none is the end.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn turns(
        &self,
        session: &SessionId,
        from: TurnNo,
    ) -> Result<Vec<TurnSource>, StoreError> {
        let rows = self
            .query(
                "package_turns",
                "SELECT turn, run_id, prompt, verdict, reason, ended_by, created_at, settled_at, stored_bytes FROM turns
                  WHERE session_id = $1 AND turn >= $2 ORDER BY turn LIMIT $3",
                &[
                    text(&session.as_str()),
                    int4(&turn_no(from)),
                    int8(&TURNS),
                ],
            )
            .await?;
        rows.iter().map(TurnSource::read).collect()
    }

    /// A turn's parts behind an index, in order; none is the end.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn parts(
        &self,
        session: &SessionId,
        of: TurnNo,
        after: Option<PartIndex>,
    ) -> Result<Vec<(PartIndex, String)>, StoreError> {
        let after = after.map_or(-1, |index| number(index.0));
        let rows = self
            .query(
                "package_parts",
                PARTS_OF,
                &[
                    text(&session.as_str()),
                    int4(&turn_no(of)),
                    int4(&after),
                    int8(&PARTS),
                    int8(&BYTES),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| Ok((index(row, "part_index")?, get(row, "part")?)))
            .collect()
    }
}

impl TurnSource {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            turn: turn(row, "turn")?,
            run_id: get(row, "run_id")?,
            prompt: get(row, "prompt")?,
            verdict: word(row, "verdict")?,
            reason: optional_word(row, "reason")?,
            ended_by: optional_word(row, "ended_by")?,
            created_at: get(row, "created_at")?,
            settled_at: get(row, "settled_at")?,
            bytes: large(row, "stored_bytes")?,
        })
    }
}
