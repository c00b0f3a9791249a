//! The lines of a lossless export.
//!
//! A line is one JSON object: `type` first, `sha256` last. The latter is the digest of the line's bytes before it, so that a line
//! vouches for itself byte by byte, whatever its fields are.

use bex_proto::driver::TurnState;
use bex_proto::ids::PartId;
use bex_proto::session::{DeliveryMode, EndedBy, Phase, SessionKind, TruncationReason, Verdict};
use bex_proto::transcript::sha256_hex;
use bex_proto::{Generation, PartIndex, Seq, SessionId, TurnNo, WorkspaceId};
use bex_store::export::TurnSnapshot;
use bex_store::proof::StatementRow;
use bex_store::sessions::{AgentSpec, SessionRow, TranscriptHead};
use bex_store::transcript::StoredPart;
use bex_store::turns::{DroppedRange, TurnRow};
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::proof::Jwks;

/// The form of these lines.
pub(super) const VERSION: u32 = 1;
const SEAL: &str = r#","sha256":""#;
const SEAL_END: &str = "\"}";
const DIGEST_CHARS: usize = 64;

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Session,
    Turn,
    Part,
    Statement,
    End,
}

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionLine {
    pub version: u32,
    pub id: SessionId,
    workspace_id: WorkspaceId,
    kind: SessionKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    repo: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    agent: AgentSpec,
    created_by: String,
    pub phase: Phase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure_reason: Option<String>,
    turns: TurnNo,
    prompt_bytes: u64,
    pub generation: Generation,
    legal_hold: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quota_mark: Option<PartId>,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    archived_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancel_requested_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    canceled_at: Option<Timestamp>,
    /// The public keys that check the statements and the last line.
    pub keys: Jwks,
}

impl SessionLine {
    pub fn of(row: &SessionRow, generation: Generation, keys: Jwks) -> Self {
        let row = row.clone();
        Self {
            version: VERSION,
            id: row.id,
            workspace_id: row.workspace,
            kind: row.kind,
            workflow_id: row.workflow_id,
            title: row.title,
            repo: row.repo,
            branch: row.branch,
            agent: row.agent,
            created_by: row.created_by,
            phase: row.phase,
            failure_reason: row.failure_reason,
            turns: row.turns,
            prompt_bytes: row.prompt_bytes,
            generation,
            legal_hold: row.legal_hold,
            quota_mark: row.transcript.quota_mark,
            created_at: row.created_at,
            updated_at: row.updated_at,
            archived_at: row.archived_at,
            cancel_requested_at: row.cancel_requested_at,
            canceled_at: row.canceled_at,
            keys,
        }
    }

    /// The row; its transcript's counters are not in the line, they follow from the parts.
    pub fn into_row(self) -> SessionRow {
        SessionRow {
            id: self.id,
            workspace: self.workspace_id,
            kind: self.kind,
            workflow_id: self.workflow_id,
            title: self.title,
            repo: self.repo,
            branch: self.branch,
            agent: self.agent,
            created_by: self.created_by,
            phase: self.phase,
            failure_reason: self.failure_reason,
            turns: self.turns,
            prompt_bytes: self.prompt_bytes,
            legal_hold: self.legal_hold,
            created_at: self.created_at,
            updated_at: self.updated_at,
            archived_at: self.archived_at,
            cancel_requested_at: self.cancel_requested_at,
            canceled_at: self.canceled_at,
            transcript: TranscriptHead {
                next_seq: Seq(0),
                charged_bytes: 0,
                parts: 0,
                quota_mark: self.quota_mark,
            },
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Dropped {
    first: PartIndex,
    last: PartIndex,
    count: u32,
}

/// A turn; its parts follow.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TurnLine {
    pub turn: TurnNo,
    pub prompt: String,
    delivery_mode: DeliveryMode,
    pub generation: Generation,
    pub verdict: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<TruncationReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<EndedBy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    driver_state: Option<TurnState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_parts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dropped: Option<Dropped>,
    unstorable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mismatch_index: Option<PartIndex>,
    pub stored_parts: u32,
    pub stored_bytes: u64,
    created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delivery_started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delivered_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop_requested_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_part_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healed_at: Option<Timestamp>,
    /// The statement that says exactly this of the turn; absent of an open turn, and of one that is not stated yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<u32>,
}

impl TurnLine {
    pub fn of(snapshot: TurnSnapshot) -> Self {
        let row = snapshot.turn;
        Self {
            turn: row.turn,
            prompt: row.prompt,
            delivery_mode: row.delivery_mode,
            generation: row.generation,
            verdict: row.verdict,
            reason: row.reason,
            ended_by: row.ended_by,
            driver_state: row.driver_state,
            expected_parts: row.expected_parts,
            expected_sha256: row.expected_sha256,
            dropped: row.dropped.map(|d| Dropped {
                first: d.first,
                last: d.last,
                count: d.count,
            }),
            unstorable: row.unstorable,
            mismatch_index: row.mismatch,
            stored_parts: row.stored_parts,
            stored_bytes: row.stored_bytes,
            created_at: row.created_at,
            delivery_started_at: row.delivery_started_at,
            delivered_at: row.delivered_at,
            started_at: row.started_at,
            stop_requested_at: row.stop_requested_at,
            last_part_at: row.last_part_at,
            settled_at: row.settled_at,
            healed_at: row.healed_at,
            statement: snapshot.statement.filter(|_| row.verdict != Verdict::Open),
        }
    }

    pub fn into_row(self, session: &SessionId) -> TurnRow {
        TurnRow {
            session: session.clone(),
            turn: self.turn,
            prompt: self.prompt,
            delivery_mode: self.delivery_mode,
            generation: self.generation,
            delivery_started_at: self.delivery_started_at,
            delivered_at: self.delivered_at,
            stop_requested_at: self.stop_requested_at,
            verdict: self.verdict,
            reason: self.reason,
            ended_by: self.ended_by,
            driver_state: self.driver_state,
            expected_parts: self.expected_parts,
            expected_sha256: self.expected_sha256,
            dropped: self.dropped.map(|d| DroppedRange {
                first: d.first,
                last: d.last,
                count: d.count,
            }),
            unstorable: self.unstorable,
            mismatch: self.mismatch_index,
            stored_parts: self.stored_parts,
            stored_bytes: self.stored_bytes,
            created_at: self.created_at,
            started_at: self.started_at,
            last_part_at: self.last_part_at,
            settled_at: self.settled_at,
            healed_at: self.healed_at,
            // an export does not say it
            run: None,
        }
    }
}

/// One part. Its bytes stand verbatim in `part`, or, where they are no JSON by themselves, as a text in `text`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartLine {
    pub turn: TurnNo,
    pub index: PartIndex,
    pub seq: Seq,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spoken_at: Option<Timestamp>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    part: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

impl PartLine {
    pub fn of(stored: &StoredPart) -> Self {
        let text = String::from_utf8_lossy(&stored.bytes);
        // JSON that has spaces around it, or a line break within, cannot stand in a line as it is
        let raw = RawValue::from_string(text.clone().into_owned())
            .ok()
            .filter(|raw| {
                raw.get() == text && text.starts_with('{') && !text.contains(['\n', '\r'])
            });
        Self {
            turn: stored.id.turn,
            index: stored.id.index,
            seq: stored.seq,
            spoken_at: stored.spoken_at,
            created_at: stored.created_at,
            text: raw.is_none().then(|| text.into_owned()),
            part: raw,
        }
    }

    pub fn id(&self) -> PartId {
        PartId {
            turn: self.turn,
            index: self.index,
        }
    }

    /// The stored bytes.
    pub fn bytes(&self) -> &str {
        match (&self.part, &self.text) {
            (Some(part), _) => part.get(),
            (None, Some(text)) => text,
            (None, None) => "",
        }
    }

    pub fn into_bytes(self) -> Bytes {
        Bytes::from(self.bytes().to_owned())
    }
}

/// One signed statement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatementLine {
    pub number: u32,
    pub turn: TurnNo,
    pub created_at: Timestamp,
    pub statement: String,
}

impl StatementLine {
    pub fn of(row: StatementRow) -> Self {
        Self {
            number: row.number,
            turn: row.turn,
            created_at: row.created_at,
            statement: row.statement,
        }
    }

    pub fn into_row(self) -> StatementRow {
        StatementRow {
            number: self.number,
            turn: self.turn,
            statement: self.statement,
            created_at: self.created_at,
        }
    }
}

/// The last line.
#[derive(Serialize, Deserialize)]
pub(super) struct EndLine {
    /// Lines before it.
    pub lines: u64,
    /// SHA-256 of their bytes, newlines included.
    pub digest: String,
    /// The signed [`crate::proof::ExportSeal`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// A line with its newline.
pub(super) fn seal(kind: Kind, fields: &impl Serialize) -> String {
    let json = serde_json::to_string(fields).expect("a line is plain data");
    let kind = serde_json::to_string(&kind).expect("a word is plain data");
    let mut line = format!(r#"{{"type":{kind},{}"#, &json[1..]);
    line.pop();
    let digest = sha256_hex(line.as_bytes());
    line.extend([SEAL, &digest, SEAL_END, "\n"]);
    line
}

/// Whether a line, without its newline, is as it was sealed; and what it is.
pub(super) fn unseal(line: &[u8]) -> Option<Kind> {
    let tail = SEAL.len() + DIGEST_CHARS + SEAL_END.len();
    let (body, seal) = line.split_at_checked(line.len().checked_sub(tail)?)?;
    let digest = seal
        .strip_prefix(SEAL.as_bytes())?
        .strip_suffix(SEAL_END.as_bytes())?;
    if digest != sha256_hex(body).as_bytes() {
        return None;
    }
    #[derive(Deserialize)]
    struct Typed {
        r#type: Kind,
    }
    Some(serde_json::from_slice::<Typed>(line).ok()?.r#type)
}
