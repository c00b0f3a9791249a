//! Messages and turns, whatever spoke: of remote sessions from their rows, of agent sessions from their parts by the same policy.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use bex_proto::message::{MessageRole, MessageSource, TerminalReason};
use bex_proto::session::{EndedBy, Verdict};
use bex_proto::{PartId, RunId, TurnNo, limits, time};
use bex_store::export::TurnSnapshot;
use bex_store::remote::{MessageRow, NumberedTurn};
use bex_store::sessions::SessionRow;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::http::extract::{Params, Segments};
use crate::http::{Api, ApiError};
use crate::remote::build::{of_parts, told};

/// Parts of one look into a turn.
const PARTS: u32 = 1000;
/// Turns whose parts are held at once in one process: a turn may be as long as a transcript.
static TURNS: Semaphore = Semaphore::const_new(4);

/// One page of messages, oldest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessagePage {
    messages: Vec<MessageView>,
    /// The `after` of the next page; absent where there is nothing behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_after: Option<u64>,
}

/// One message.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Message)]
pub struct MessageView {
    /// Its place in the session.
    position: u64,
    id: String,
    #[schema(value_type = String)]
    role: MessageRole,
    /// Text; empty where an autonomous turn said nothing.
    content: String,
    /// Blocks in the order in which they were said: text, thinking, reasoning, tool_use, tool_result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    content_blocks: Option<Box<RawValue>>,
    #[schema(value_type = String)]
    source: MessageSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_id: Option<String>,
    /// The run its turn is, as findings and usage name it; null where there is none: user and system rows of remote sessions, and turns
    /// from before runs were given.
    #[schema(value_type = Option<String>, required = true)]
    run_id: Option<RunId>,
    /// How its turn ended; absent while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    terminal_reason: Option<TerminalReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

/// One page of turns, oldest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteTurnPage {
    turns: Vec<RemoteTurnView>,
    /// The `after` of the next page; absent where there is nothing behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_after: Option<u64>,
}

/// A turn that ended.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TranscriptTurn)]
pub struct RemoteTurnView {
    number: u64,
    turn_id: String,
    /// As findings and usage name it; null for turns from before runs were given.
    #[schema(value_type = Option<String>, required = true)]
    run_id: Option<RunId>,
    /// The agent's.
    role: &'static str,
    visible_text: String,
    #[schema(value_type = Vec<Object>)]
    content_blocks: Box<RawValue>,
    #[schema(value_type = Vec<String>)]
    tool_call_ids: Box<RawValue>,
    /// Calls whose results are among the blocks.
    #[schema(value_type = Vec<String>)]
    evidence_ids: Box<RawValue>,
    #[schema(value_type = String)]
    terminal_reason: TerminalReason,
    /// Events of it that never arrived.
    #[schema(value_type = Vec<Object>)]
    gaps: Box<RawValue>,
    /// Something of it was too large to be kept.
    overflow: bool,
    #[schema(value_type = String)]
    source: MessageSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    completed_at: Timestamp,
}

/// A stored list as it is; what is no JSON, which nobody stores, is shown as none.
fn list(text: String) -> Box<RawValue> {
    RawValue::from_string(text)
        .unwrap_or_else(|_| RawValue::from_string("[]".to_owned()).expect("an empty list is JSON"))
}

impl From<MessageRow> for MessageView {
    fn from(row: MessageRow) -> Self {
        Self {
            position: row.position,
            id: row.id,
            role: row.role,
            content: row.content,
            content_blocks: row.content_blocks.map(list),
            source: row.source,
            turn_id: row.turn_id,
            run_id: row.run,
            terminal_reason: row.terminal,
            model: row.model,
            at: row.said_at,
        }
    }
}

impl From<NumberedTurn> for RemoteTurnView {
    fn from(row: NumberedTurn) -> Self {
        let turn = row.turn;
        Self {
            number: row.number,
            turn_id: turn.turn_id,
            run_id: row.run,
            role: MessageRole::Assistant.as_str(),
            visible_text: turn.visible_text,
            content_blocks: list(turn.content_blocks),
            tool_call_ids: list(turn.tool_call_ids),
            evidence_ids: list(turn.evidence_ids),
            terminal_reason: turn.terminal,
            gaps: list(turn.gaps),
            overflow: turn.overflow,
            source: turn.source,
            model: turn.model,
            started_at: turn.started_at,
            completed_at: turn.completed_at,
        }
    }
}

/// `GET /v1/remote-sessions/{id}/messages`
pub async fn of_remote(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    mut params: Params,
) -> Result<Json<MessagePage>, ApiError> {
    let session = api.remote_of(&caller, &id).await?;
    let (after, limit) = page(&mut params)?;
    params.done()?;
    let rows = api.db.messages(&session.id, after, limit).await?;
    let last = rows.last().map(|row| row.position);
    // while rows are made again, some stand behind the next one's place
    let newest = api.db.newest_message(&session.id).await?;
    let more = last.filter(|last| newest.is_some_and(|newest| newest > *last));
    Ok(Json(MessagePage {
        messages: rows.into_iter().map(MessageView::from).collect(),
        next_after: more,
    }))
}

/// `GET /v1/remote-sessions/{id}/turns`
pub async fn turns(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    mut params: Params,
) -> Result<Json<RemoteTurnPage>, ApiError> {
    let session = api.remote_of(&caller, &id).await?;
    let (after, limit) = page(&mut params)?;
    params.done()?;
    let rows = api.db.remote_turns(&session.id, after, limit).await?;
    let last = rows.last().map(|row| row.number);
    let more = last.filter(|last| last + 1 < session.head.turn_count);
    Ok(Json(RemoteTurnPage {
        turns: rows.into_iter().map(RemoteTurnView::from).collect(),
        next_after: more,
    }))
}

fn page(params: &mut Params) -> Result<(Option<u64>, u32), ApiError> {
    let after = params.read::<u64>("after", "a position")?;
    let limit = params.limit(limits::LIST_DEFAULT, limits::MESSAGES_LIMIT)?;
    Ok((after, limit))
}

/// `GET /v1/agent-sessions/{id}/messages`: each turn is a prompt and, where the policy has one, an answer.
pub async fn of_agent(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    mut params: Params,
) -> Result<Json<MessagePage>, ApiError> {
    let session = api.session_of(&caller, &id).await?;
    let (after, limit) = page(&mut params)?;
    params.done()?;
    let from = after.map_or(0, |after| after.saturating_add(1));
    let mut messages: Vec<MessageView> = Vec::new();
    let mut bytes = 0;
    let mut turn = TurnNo(u32::try_from(from / 2 + 1).unwrap_or(u32::MAX));
    let mut next_after = None;
    while let Some(snapshot) = api.db.turn_snapshot(&session.id, turn).await? {
        if messages.len() >= limit as usize || bytes >= limits::MESSAGES_PAGE_BYTES {
            next_after = messages.last().map(|message| message.position);
            break;
        }
        for message in api.messages_of_turn(&session, &snapshot).await? {
            if message.position >= from && messages.len() < limit as usize {
                bytes += message.content.len()
                    + message.content_blocks.as_ref().map_or(0, |b| b.get().len());
                messages.push(message);
            }
        }
        turn = snapshot.turn.turn.next();
    }
    if next_after.is_none() && messages.len() == limit as usize {
        // the page may have been full in the middle of the last turn
        let last = messages.last().map(|message| message.position);
        next_after = last.filter(|last| last % 2 == 0);
    }
    Ok(Json(MessagePage {
        messages,
        next_after,
    }))
}

impl Api {
    async fn messages_of_turn(
        &self,
        session: &SessionRow,
        snapshot: &TurnSnapshot,
    ) -> Result<Vec<MessageView>, ApiError> {
        let row = &snapshot.turn;
        let place = u64::from(row.turn.0 - 1) * 2;
        let turn_id = format!("{}.{}", session.id, row.turn);
        let mut messages = vec![MessageView {
            position: place,
            id: format!("{turn_id}-prompt"),
            role: MessageRole::User,
            content: row.prompt.clone(),
            content_blocks: None,
            source: MessageSource::AgentSession,
            turn_id: Some(turn_id.clone()),
            run_id: row.run.clone(),
            terminal_reason: None,
            model: None,
            at: row.created_at,
        }];
        let _place = TURNS
            .acquire()
            .await
            .expect("the semaphore is never closed");
        let mut parts: Vec<String> = Vec::new();
        let mut next = PartId::first_of(row.turn);
        loop {
            let page = self
                .db
                .export_parts(
                    &session.id,
                    next,
                    snapshot.before,
                    PARTS,
                    limits::MESSAGES_PAGE_BYTES,
                )
                .await?;
            let Some(last) = page.last() else {
                if next.index.0 >= row.stored_parts {
                    break;
                }
                next = next.plus(PARTS);
                continue;
            };
            next = last.id.next();
            parts.extend(
                page.iter()
                    .map(|part| String::from_utf8_lossy(&part.bytes).into_owned()),
            );
        }
        let blocks = of_parts(parts.iter().map(String::as_str));
        if let Some(told) = told(session.kind, &blocks) {
            let open = row.verdict == Verdict::Open;
            let blocks =
                serde_json::value::to_raw_value(&told.blocks).expect("blocks always serialise");
            messages.push(MessageView {
                position: place + 1,
                id: format!("{turn_id}-answer"),
                role: MessageRole::Assistant,
                content: told.visible_text,
                content_blocks: (!told.blocks.is_empty()).then_some(blocks),
                source: MessageSource::AgentSession,
                turn_id: Some(turn_id),
                run_id: row.run.clone(),
                terminal_reason: (!open).then(|| reason(row.ended_by)),
                model: session.agent.model.clone(),
                at: row.settled_at.unwrap_or(row.created_at),
            });
        }
        Ok(messages)
    }
}

/// How an agent session's turn ended, in the words of messages.
fn reason(ended_by: Option<EndedBy>) -> TerminalReason {
    match ended_by {
        Some(EndedBy::Agent) => TerminalReason::Result,
        Some(EndedBy::Stopped | EndedBy::Canceled) => TerminalReason::Stopped,
        Some(EndedBy::Deadline | EndedBy::Lost) | None => TerminalReason::Error,
    }
}
