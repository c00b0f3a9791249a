//! What is signed.

use bex_proto::session::{EndedBy, TruncationReason, Verdict};
use bex_proto::transcript::sha256_hex;
use bex_proto::{Generation, SessionId, TurnNo, WorkspaceId};
use bex_store::proof::TurnFacts;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::jws::{self, JwsFault};
use super::ring::{ProofRing, PublicKeys};

const STATEMENT: &str = "bex-statement+jws";
const EXPORT: &str = "bex-export+jws";
/// The form of [`Statement`].
const VERSION: u32 = 1;

/// What the store held of a settled turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Statement {
    /// 1.
    pub v: u32,
    /// The session.
    pub session: SessionId,
    /// Its owner.
    pub workspace: WorkspaceId,
    /// Its place in the session's chain, from 0.
    pub number: u32,
    /// SHA-256 of the signed text before it; absent for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The turn.
    pub turn: TurnNo,
    /// An earlier statement about the turn, which this one replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<u32>,
    /// The sandbox life that spoke it.
    pub generation: Generation,
    /// SHA-256 of its prompt.
    pub prompt_sha256: String,
    /// Its verdict; open never.
    pub verdict: Verdict,
    /// Why it is truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<TruncationReason>,
    /// Who ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<EndedBy>,
    /// Stored parts.
    pub parts: u32,
    /// Their bytes.
    pub bytes: u64,
    /// SHA-256 over the stored parts in order, each followed by a newline.
    pub sha256: String,
    /// Parts the driver declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared_parts: Option<u32>,
    /// Digest the driver declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared_sha256: Option<String>,
    /// When it was settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<Timestamp>,
    /// When it became complete afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healed_at: Option<Timestamp>,
}

/// Digest by which the next statement names a signed text.
pub fn digest_of(signed: &str) -> String {
    sha256_hex(signed.as_bytes())
}

impl Statement {
    /// The statement that follows from facts.
    pub fn of(facts: &TurnFacts) -> Self {
        let turn = &facts.turn;
        Self {
            v: VERSION,
            session: turn.session.clone(),
            workspace: facts.workspace.clone(),
            number: facts.previous.as_ref().map_or(0, |(number, _)| number + 1),
            previous: facts.previous.as_ref().map(|(_, text)| digest_of(text)),
            turn: turn.turn,
            supersedes: facts.superseded,
            generation: turn.generation,
            prompt_sha256: facts.prompt_sha256.clone(),
            verdict: turn.verdict,
            reason: turn.reason,
            ended_by: turn.ended_by,
            parts: turn.stored_parts,
            bytes: turn.stored_bytes,
            sha256: facts.sha256.clone(),
            declared_parts: turn.expected_parts,
            declared_sha256: turn.expected_sha256.clone(),
            settled_at: turn.settled_at,
            healed_at: turn.healed_at,
        }
    }

    /// The signed text.
    pub fn sign(&self, ring: &ProofRing) -> String {
        jws::sign(ring, STATEMENT, self)
    }

    /// Reads a signed text.
    ///
    /// # Errors
    /// When none of these keys signed it.
    pub fn verify(signed: &str, keys: &PublicKeys) -> Result<Self, JwsFault> {
        jws::verify(signed, STATEMENT, keys)
    }
}

/// What is signed of an export as a whole: it says of every line, also those no statement speaks of, that it is as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportSeal {
    /// The session.
    pub session: SessionId,
    /// Lines before the last.
    pub lines: u64,
    /// SHA-256 of their bytes, newlines included.
    pub digest: String,
}

impl ExportSeal {
    /// The signed text.
    pub fn sign(&self, ring: &ProofRing) -> String {
        jws::sign(ring, EXPORT, self)
    }

    /// Reads a signed text.
    ///
    /// # Errors
    /// When none of these keys signed it.
    pub fn verify(signed: &str, keys: &PublicKeys) -> Result<Self, JwsFault> {
        jws::verify(signed, EXPORT, keys)
    }
}
