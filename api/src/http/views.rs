//! What answers look like. These types belong to the wire: rows are turned into them here and nowhere else.

use bex_proto::session::{
    DeliveryMode, EndedBy, FailureReason, Phase, SessionKind, TruncationReason, Verdict,
};
use bex_proto::{RunId, limits, time};
use bex_store::sessions::{AgentSpec, SessionRow};
use bex_store::turns::TurnRow;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::words;
use crate::tickets::AttachTicket;

/// One session.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Session)]
pub struct SessionView {
    id: String,
    workspace_id: String,
    #[schema(schema_with = words::<SessionKind>)]
    kind: SessionKind,
    /// Of an autonomous session.
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repo: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    agent: AgentView,
    #[schema(schema_with = words::<Phase>)]
    phase: Phase,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = words::<FailureReason>)]
    failure_reason: Option<FailureReason>,
    /// The same for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_message: Option<&'static str>,
    /// Whether another turn may succeed as things are; otherwise an operator must change something first.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_retryable: Option<bool>,
    counters: Counters,
    /// Refuses deletion.
    legal_hold: bool,
    /// The subject that created it.
    created_by: String,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    archived_at: Option<Timestamp>,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    canceled_at: Option<Timestamp>,
    /// The newest 1000 turns, without prompts. Only of a single session.
    #[serde(skip_serializing_if = "Option::is_none")]
    turns: Option<Vec<TurnView>>,
}

/// What runs in a session, as it was asked for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Agent)]
pub struct AgentView {
    profile: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<EnvView>,
}

/// One environment variable, by reference.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Env)]
pub struct EnvView {
    name: String,
    secret_ref: String,
}

/// How much a session holds.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    turns: u32,
    /// Stored parts.
    parts: u64,
    /// Their bytes.
    bytes: u64,
    /// Bytes of all prompts.
    prompt_bytes: u64,
}

/// One turn.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Turn)]
pub struct TurnView {
    turn: u32,
    /// What findings and usage name it by; absent for turns from before runs were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    run_id: Option<RunId>,
    /// What was asked. Only in the list of turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    #[schema(schema_with = words::<DeliveryMode>)]
    delivery_mode: DeliveryMode,
    #[schema(schema_with = words::<Verdict>)]
    verdict: Verdict,
    /// Why it is truncated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = words::<TruncationReason>)]
    reason: Option<TruncationReason>,
    /// The same for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_message: Option<&'static str>,
    /// Stands beside the verdict and never hides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = words::<EndedBy>)]
    ended_by: Option<EndedBy>,
    stored_parts: u32,
    stored_bytes: u64,
    /// What the driver declared, once it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_parts: Option<u32>,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    delivered_at: Option<Timestamp>,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Timestamp>,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_part_at: Option<Timestamp>,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    settled_at: Option<Timestamp>,
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    healed_at: Option<Timestamp>,
}

/// A ticket for the gateway's stream, single use.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AttachTicket)]
pub struct TicketView {
    /// Goes into the header `X-Bex-Agent-Ticket`, never into a URL.
    ticket: String,
    stream_url: String,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    /// The stream shows what is stored and ends.
    replay_only: bool,
}

/// A turn that began, and a ticket to watch it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BegunTurn {
    pub(super) turn: u32,
    /// Goes into the header `X-Bex-Agent-Ticket`, never into a URL.
    ticket: String,
    stream_url: String,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

impl SessionView {
    /// As it stands in a list.
    pub fn listed(row: SessionRow) -> Self {
        let failure = row.failure_reason.as_deref().and_then(|code| {
            let known = code.parse::<FailureReason>();
            // a newer release may have more of them
            known.inspect_err(|_| tracing::warn!(session = %row.id, code, "an unknown failure code is not shown")).ok()
        });
        let charged = row.transcript.charged_bytes;
        let counters = Counters {
            turns: row.turns.0,
            parts: row.transcript.parts,
            bytes: charged.saturating_sub(row.transcript.parts * limits::PART_CHARGE as u64),
            prompt_bytes: row.prompt_bytes,
        };
        Self {
            id: row.id.to_string(),
            workspace_id: row.workspace.to_string(),
            kind: row.kind,
            workflow_id: row.workflow_id,
            title: row.title,
            repo: row.repo,
            branch: row.branch,
            agent: row.agent.into(),
            phase: row.phase,
            failure_reason: failure,
            failure_message: failure.map(FailureReason::sentence),
            failure_retryable: failure.map(FailureReason::is_retryable),
            counters,
            legal_hold: row.legal_hold,
            created_by: row.created_by,
            created_at: row.created_at,
            updated_at: row.updated_at,
            archived_at: row.archived_at,
            canceled_at: row.canceled_at,
            turns: None,
        }
    }

    /// As it stands alone.
    pub fn single(row: SessionRow, turns: Vec<TurnRow>) -> Self {
        let turns = turns.into_iter().map(|turn| TurnView {
            prompt: None,
            ..TurnView::from(turn)
        });
        Self {
            turns: Some(turns.collect()),
            ..Self::listed(row)
        }
    }
}

impl From<AgentSpec> for AgentView {
    fn from(spec: AgentSpec) -> Self {
        let env = spec.env.into_iter().map(|e| EnvView {
            name: e.name,
            secret_ref: e.secret_ref,
        });
        Self {
            profile: spec.profile,
            model: spec.model,
            args: spec.args,
            env: env.collect(),
        }
    }
}

impl From<TurnRow> for TurnView {
    fn from(row: TurnRow) -> Self {
        Self {
            turn: row.turn.0,
            run_id: row.run,
            prompt: Some(row.prompt),
            delivery_mode: row.delivery_mode,
            verdict: row.verdict,
            reason: row.reason,
            reason_message: row.reason.map(TruncationReason::sentence),
            ended_by: row.ended_by,
            stored_parts: row.stored_parts,
            stored_bytes: row.stored_bytes,
            expected_parts: row.expected_parts,
            created_at: row.created_at,
            delivered_at: row.delivered_at,
            started_at: row.started_at,
            last_part_at: row.last_part_at,
            settled_at: row.settled_at,
            healed_at: row.healed_at,
        }
    }
}

impl From<AttachTicket> for TicketView {
    fn from(ticket: AttachTicket) -> Self {
        Self {
            ticket: ticket.ticket,
            stream_url: ticket.stream_url,
            expires_at: ticket.expires_at,
            replay_only: ticket.replay_only,
        }
    }
}

impl BegunTurn {
    /// The turn's number and the ticket to watch it.
    pub fn new(turn: bex_proto::TurnNo, ticket: AttachTicket) -> Self {
        Self {
            turn: turn.0,
            ticket: ticket.ticket,
            stream_url: ticket.stream_url,
            expires_at: ticket.expires_at,
        }
    }
}
