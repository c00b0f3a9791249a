//! What sessions said: one pass over their turns gives messages, calls of tools and the facts of each turn.

use bex_proto::execution::NamedSession;
use bex_proto::message::{MessageRole, MessageSource, TerminalReason};
use bex_proto::package::{SessionFacts, TurnFacts};
use bex_proto::session::{EndedBy, Verdict};
use bex_proto::{TurnNo, time};
use bex_store::packages::{
    AgentSource, RemoteMessageSource, RemoteSource, RemoteTurnSource, TurnSource,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::tools::{Call, calls, said};
use super::{Assembly, no_intruder};
use crate::package::document::Document;
use crate::package::{PackageFault, Workbench};
use crate::remote::build::{of_parts, told};

/// Bytes of parts that all builds of this process hold at once; a turn that is longer waits until it is the only one.
const TURNS: u32 = 64 * 1024 * 1024;
static TURN_BYTES: Semaphore = Semaphore::const_new(TURNS as usize);

/// Reasons that are named one by one; more are counted.
const REASONS: usize = 20;

/// What of a transcript is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Everything.
    Messages,
    /// Calls of tools: an execution has no messages.
    ToolsOnly,
}

/// What is written behind the messages.
pub(super) struct Spoken {
    tools: Document,
    turns: Document,
    /// The sessions.
    pub sessions: Vec<SessionFacts>,
    runs: Vec<String>,
    without_runs: bool,
    reasons: Vec<String>,
    more: usize,
}

/// What was heard, for what is joined to it.
pub(super) struct Heard {
    /// Runs of the turns.
    pub runs: Vec<String>,
    /// Some turn has none.
    pub without_runs: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageView {
    position: u64,
    id: String,
    role: MessageRole,
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_blocks: Option<Vec<Box<RawValue>>>,
    source: MessageSource,
    turn_id: Option<String>,
    run_id: Option<String>,
    terminal_reason: Option<TerminalReason>,
    model: Option<String>,
    at: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolView {
    #[serde(flatten)]
    call: Call,
    session_id: String,
    turn_id: String,
    run_id: Option<String>,
}

/// What an agent session's request says of its model.
#[derive(Deserialize)]
struct Agent {
    model: Option<String>,
}

impl Workbench {
    /// Nothing yet.
    pub(super) fn spoken(&self) -> Result<Spoken, PackageFault> {
        Ok(Spoken {
            tools: self.elements()?,
            turns: self.elements()?,
            sessions: Vec::new(),
            runs: Vec::new(),
            without_runs: false,
            reasons: Vec::new(),
            more: 0,
        })
    }
}

impl Spoken {
    /// Something is not all there.
    pub(super) fn missing(&mut self, why: impl Into<String>) {
        if self.reasons.len() < REASONS {
            self.reasons.push(why.into());
        } else {
            self.more += 1;
        }
    }

    async fn turn(&mut self, facts: TurnFacts, blocks: &str) -> Result<(), PackageFault> {
        match &facts.run_id {
            Some(run) => self.runs.push(run.clone()),
            None => self.without_runs = true,
        }
        let views = calls(blocks).into_iter().map(|call| ToolView {
            call,
            session_id: facts.session_id.clone(),
            turn_id: facts.turn_id.clone(),
            run_id: facts.run_id.clone(),
        });
        self.tools.items(views.collect()).await?;
        self.turns.items(vec![facts]).await
    }
}

impl Assembly<'_> {
    /// Writes sessions, turns and calls, and ends the messages where there are any.
    pub(super) async fn spoken(&mut self, spoken: Spoken) -> Result<Heard, PackageFault> {
        for runs in spoken.runs.chunks(super::records::RUNS) {
            let intruder = self.snapshot.intruder_of_runs(self.workspace, runs);
            no_intruder(intruder.await?)?;
        }
        for session in &spoken.sessions {
            let id = &session.session_id;
            let intruder = self.snapshot.intruder_of_session(self.workspace, id);
            no_intruder(intruder.await?)?;
        }
        let mut provenance = String::from("From the transcripts of the sessions of this package.");
        if !spoken.reasons.is_empty() {
            provenance += &format!(" Not all is known: {}", spoken.reasons.join("; "));
            if spoken.more > 0 {
                provenance += &format!("; and {} more", spoken.more);
            }
            provenance.push('.');
        }
        let document = &mut self.document;
        document.array("sessions").await?;
        document.items(spoken.sessions).await?;
        document.end_array().await?;
        document.array_of("turns", spoken.turns).await?;
        document.object("toolResults").await?;
        document.array_of("results", spoken.tools).await?;
        document
            .plain("partial", &!spoken.reasons.is_empty())
            .await?;
        document.member("provenance", &provenance).await?;
        document.end_object().await?;
        Ok(Heard {
            runs: spoken.runs,
            without_runs: spoken.without_runs,
        })
    }

    /// An agent session's turns, or one.
    pub(super) async fn agent_turns(
        &mut self,
        session: &AgentSource,
        only: Option<TurnNo>,
        wanted: Told,
        spoken: &mut Spoken,
    ) -> Result<(), PackageFault> {
        self.sources.push(session.id.to_string());
        let agent: Option<Agent> = serde_json::from_str(&session.agent).ok();
        let model = agent.and_then(|agent| agent.model);
        let (mut from, mut complete) = (only.unwrap_or(TurnNo::FIRST), true);
        loop {
            let page = self.snapshot.turns(&session.id, from).await?;
            let Some(last) = page.last() else { break };
            from = last.turn.next();
            for turn in page {
                if only.is_some_and(|only| only != turn.turn) {
                    break;
                }
                complete &= self
                    .agent_turn(session, &model, turn, wanted, spoken)
                    .await?;
            }
            if only.is_some() {
                break;
            }
        }
        if wanted == Told::Messages {
            self.document.end_array().await?;
        }
        spoken.sessions.push(SessionFacts {
            session_id: session.id.to_string(),
            kind: NamedSession::Agent,
            complete,
            phase: Some(session.phase.to_string()),
        });
        Ok(())
    }

    async fn agent_turn(
        &mut self,
        session: &AgentSource,
        model: &Option<String>,
        turn: TurnSource,
        wanted: Told,
        spoken: &mut Spoken,
    ) -> Result<bool, PackageFault> {
        let bytes = u32::try_from(turn.bytes).unwrap_or(TURNS).min(TURNS);
        // until its lines are written, or what is made of it is let go
        let held = TURN_BYTES
            .acquire_many(bytes)
            .await
            .expect("the semaphore is never closed");
        let parts = self.parts(session, turn.turn).await?;
        let kind = session.kind;
        // a turn may be as long as a transcript
        let folded = tokio::task::spawn_blocking(move || {
            let blocks = of_parts(parts.iter().map(String::as_str));
            let text = serde_json::to_string(&blocks).expect("blocks always serialise");
            (told(kind, &blocks), text, held)
        });
        let (told, blocks, _held) = folded.await?;
        let turn_id = format!("{}.{}", session.id, turn.turn);
        let complete = turn.verdict == Verdict::Complete;
        if !complete {
            let why = turn.reason.map_or("still open", |reason| reason.as_str());
            spoken.missing(format!("turn {turn_id} is {} ({why})", turn.verdict));
        }
        if wanted == Told::Messages {
            let place = u64::from(turn.turn.0 - 1) * 2;
            let message = |position: u64, role, id: &str| MessageView {
                position,
                id: format!("{turn_id}-{id}"),
                role,
                content: String::new(),
                content_blocks: None,
                source: MessageSource::AgentSession,
                turn_id: Some(turn_id.clone()),
                run_id: turn.run_id.clone(),
                terminal_reason: None,
                model: None,
                at: time::format(turn.created_at),
            };
            let prompt = MessageView {
                content: turn.prompt.clone(),
                ..message(place, MessageRole::User, "prompt")
            };
            let answer = told.map(|told| {
                let list = serde_json::to_string(&told.blocks).expect("blocks always serialise");
                MessageView {
                    content: told.visible_text,
                    content_blocks: (!told.blocks.is_empty()).then(|| said(&list)),
                    terminal_reason: (turn.verdict != Verdict::Open).then(|| ended(turn.ended_by)),
                    model: model.clone(),
                    at: time::format(turn.settled_at.unwrap_or(turn.created_at)),
                    ..message(place + 1, MessageRole::Assistant, "answer")
                }
            });
            let messages = std::iter::once(prompt).chain(answer).collect();
            self.document.items(messages).await?;
        }
        let facts = TurnFacts {
            session_id: session.id.to_string(),
            turn_id,
            run_id: turn.run_id,
            complete,
            verdict: Some(turn.verdict),
            reason: turn.reason,
            ended_by: turn.ended_by,
            terminal_reason: None,
        };
        spoken.turn(facts, &blocks).await?;
        Ok(complete)
    }

    async fn parts(
        &self,
        session: &AgentSource,
        turn: TurnNo,
    ) -> Result<Vec<String>, PackageFault> {
        let (mut parts, mut last) = (Vec::new(), None);
        loop {
            let page = self.snapshot.parts(&session.id, turn, last).await?;
            let Some((index, _)) = page.last() else {
                return Ok(parts);
            };
            last = Some(*index);
            parts.extend(page.into_iter().map(|(_, part)| part));
        }
    }

    /// A remote session's turns, or one.
    pub(super) async fn remote_turns(
        &mut self,
        session: &RemoteSource,
        only: Option<&str>,
        wanted: Told,
        spoken: &mut Spoken,
    ) -> Result<(), PackageFault> {
        self.sources.push(session.id.to_string());
        if wanted == Told::Messages {
            self.remote_messages(session, only).await?;
            self.document.end_array().await?;
        }
        let (mut last, mut complete) = (None, true);
        loop {
            let page = self.snapshot.remote_turns(&session.id, only, last).await?;
            let Some(end) = page.last() else { break };
            last = Some(end.number);
            for turn in page {
                complete &= remote_turn(session, turn, spoken).await?;
            }
        }
        if only.is_none() {
            if !session.settled {
                complete = false;
                spoken.missing(format!("{} goes on, or is being read", session.id));
            }
            if session.gaps > 0 {
                complete = false;
                spoken.missing(format!(
                    "{} events never arrived of {}",
                    session.gaps, session.id
                ));
            }
        }
        spoken.sessions.push(SessionFacts {
            session_id: session.id.to_string(),
            kind: NamedSession::Remote,
            complete,
            phase: Some(session.state.clone()),
        });
        Ok(())
    }

    async fn remote_messages(
        &mut self,
        session: &RemoteSource,
        only: Option<&str>,
    ) -> Result<(), PackageFault> {
        let mut last = None;
        loop {
            let page = self
                .snapshot
                .remote_messages(&session.id, only, last)
                .await?;
            let Some(end) = page.last() else {
                return Ok(());
            };
            last = Some(end.position);
            let views: Vec<MessageView> = page.into_iter().map(MessageView::from).collect();
            self.document.items(views).await?;
        }
    }
}

async fn remote_turn(
    session: &RemoteSource,
    turn: RemoteTurnSource,
    spoken: &mut Spoken,
) -> Result<bool, PackageFault> {
    let whole = turn.gaps == "[]" && !turn.overflow;
    if !whole {
        let why = if turn.overflow {
            "something of it was too large"
        } else {
            "events of it never arrived"
        };
        spoken.missing(format!("turn {} ({why})", turn.turn_id));
    }
    let facts = TurnFacts {
        session_id: session.id.to_string(),
        turn_id: turn.turn_id,
        run_id: turn.run_id,
        complete: whole,
        verdict: None,
        reason: None,
        ended_by: None,
        terminal_reason: Some(turn.terminal),
    };
    spoken.turn(facts, &turn.content_blocks).await?;
    Ok(whole)
}

impl From<RemoteMessageSource> for MessageView {
    fn from(row: RemoteMessageSource) -> Self {
        Self {
            position: row.position,
            id: row.id,
            role: row.role,
            content: row.content,
            content_blocks: row.content_blocks.as_deref().map(said),
            source: row.source,
            turn_id: row.turn_id,
            run_id: row.run_id,
            terminal_reason: row.terminal,
            model: row.model,
            at: time::format(row.said_at),
        }
    }
}

/// How an agent session's turn ended, in the words of messages.
fn ended(by: Option<EndedBy>) -> TerminalReason {
    match by {
        Some(EndedBy::Agent) => TerminalReason::Result,
        Some(EndedBy::Stopped | EndedBy::Canceled) => TerminalReason::Stopped,
        Some(EndedBy::Deadline | EndedBy::Lost) | None => TerminalReason::Error,
    }
}
