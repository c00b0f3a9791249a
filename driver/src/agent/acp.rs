//! An Agent Client Protocol agent over stdio.
//!
//! The process is started with the first turn and lives, with its session, until it ends, is killed or the driver ends. A later
//! turn that finds it gone starts a fresh one, which loads the old session where the agent can; so does the first turn of a fresh
//! sandbox, with the session that the record names. An agent that remembers nothing is given the priming text before the prompt.

mod client;
mod files;
mod lines;
mod queue;

use agent_client_protocol::is_incoming_transport_closed;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, PromptRequest, PromptResponse, SessionId, StopReason,
    TextContent,
};
use async_trait::async_trait;
use bex_proto::launch::Permissions;
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::child::Spawn;
use super::{Agent, Outcome, Prompt, StopSignal};
use crate::bounds::{AGENT_START_TIMEOUT, DRAIN_TIMEOUT, STOP_GRACE};
use crate::map::Mapper;
use crate::priming;
use crate::sink::TurnSink;
use client::{FromAgent, Live, Memory};

/// Speaks through an ACP agent.
pub struct AcpAgent {
    spawn: Spawn,
    permissions: Permissions,
    live: Option<Live>,
    /// The last session of an agent that can load sessions.
    resumable: Option<SessionId>,
}

impl AcpAgent {
    /// An agent that is started with its first turn.
    pub fn new(spawn: Spawn, permissions: Permissions) -> Self {
        Self {
            spawn,
            permissions,
            live: None,
            resumable: None,
        }
    }

    /// The running agent with its session, and what it remembers.
    async fn ready(&mut self) -> Result<(Live, Memory), String> {
        if let Some(mut live) = self.live.take() {
            if live.is_alive() {
                return Ok((live, Memory::Continued));
            }
            info!("agent ended between turns; a fresh one is started");
        }
        let start = Live::start(&self.spawn, self.permissions, self.resumable.clone());
        match timeout(AGENT_START_TIMEOUT, start).await {
            Ok(started) => started,
            Err(_) => Err("the agent did not open a session in time".to_owned()),
        }
    }
}

#[async_trait]
impl Agent for AcpAgent {
    async fn speak(&mut self, prompt: Prompt, sink: &mut TurnSink, stop: StopSignal) -> Outcome {
        // before the agent starts: its environment names the file
        priming::leave(&mut self.spawn, prompt.priming.as_deref());
        if self.live.is_none() && self.resumable.is_none() {
            // a fresh sandbox: the conversation's agent may know it from elsewhere
            let earlier = prompt.priming.as_deref().and_then(priming::agent_session);
            self.resumable = earlier.map(SessionId::from);
        }
        let ready = tokio::select! {
            biased;
            // a half-started agent is dropped, which kills it
            () = stop.any() => return Outcome::Stopped,
            ready = self.ready() => ready,
        };
        let (mut live, memory) = match ready {
            Ok(ready) => ready,
            Err(cause) => return Outcome::Failed(cause),
        };
        self.resumable = live.can_load.then(|| live.session.clone());
        let request = PromptRequest::new(live.session.clone(), blocks(prompt, memory, sink));
        let (outcome, fate) = converse(&mut live, request, sink, &stop).await;
        match fate {
            Fate::Alive => self.live = Some(live),
            Fate::Gone => live.kill().await,
        }
        outcome
    }

    fn session(&self) -> Option<String> {
        let live = self.live.as_ref().map(|live| &live.session);
        live.or(self.resumable.as_ref()).map(ToString::to_string)
    }

    async fn close(&mut self) {
        if let Some(mut live) = self.live.take() {
            live.kill().await;
        }
    }
}

/// The prompt's content: before it, for an agent that remembers nothing, what earlier turns said. Says once which it was.
fn blocks(prompt: Prompt, memory: Memory, sink: &mut TurnSink) -> Vec<ContentBlock> {
    let mut blocks = Vec::new();
    match memory {
        Memory::Fresh => {
            let priming = prompt.priming.as_deref();
            if let Some(told) = priming.and_then(|p| priming::told(prompt.turn, p)) {
                sink.say_json(&told.part);
                blocks.push(ContentBlock::Text(TextContent::new(told.text)));
            }
        }
        Memory::Loaded => sink.say_json(&priming::loaded(prompt.turn)),
        Memory::Continued => {}
    }
    blocks.push(ContentBlock::Text(TextContent::new(prompt.text)));
    blocks
}

/// What is left of the agent after a turn.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Alive,
    Gone,
}

/// Sends the prompt and says what comes until the answer.
async fn converse(
    live: &mut Live,
    request: PromptRequest,
    sink: &mut TurnSink,
    stop: &StopSignal,
) -> (Outcome, Fate) {
    let mut speaker = Speaker {
        mapper: Mapper::new(sink.turn()),
        sink,
        parts: Vec::new(),
    };
    live.discard_waiting();
    let answer = live.connection.send_request(request).block_task();
    tokio::pin!(answer);
    // how long a stop that was asked for is waited for
    let mut deadline = None;
    let answer = loop {
        tokio::select! {
            biased;
            () = stop.now.cancelled() => {
                speaker.end();
                return (Outcome::Stopped, Fate::Gone);
            }
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                warn!("agent does not end its turn; it is killed");
                speaker.end();
                return (Outcome::Stopped, Fate::Gone);
            }
            () = stop.asked.cancelled(), if deadline.is_none() => {
                deadline = Some(Instant::now() + STOP_GRACE);
                let cancel = CancelNotification::new(live.session.clone());
                if let Err(cause) = live.connection.send_notification(cancel) {
                    warn!(code = ?cause.code, "agent cannot be asked to stop");
                }
            }
            Some(message) = live.messages.recv() => speaker.say(message),
            answer = &mut answer => break answer,
        }
    };
    // whatever was sent before the answer is in the queue by now
    while let Some(message) = live.messages.try_recv() {
        speaker.say(message);
    }
    speaker.end();
    let asked = deadline.is_some();
    match answer {
        Ok(response) => (outcome_of(&response, asked), Fate::Alive),
        Err(error) if is_incoming_transport_closed(&error) || !live.is_alive() => {
            let ending = timeout(DRAIN_TIMEOUT, live.ending()).await;
            let ending = ending.unwrap_or_else(|_| "it closed its output".to_owned());
            match asked {
                true => (Outcome::Stopped, Fate::Gone),
                false => (
                    Outcome::Failed(format!("the agent ended: {ending}")),
                    Fate::Gone,
                ),
            }
        }
        Err(_) if asked => (Outcome::Stopped, Fate::Alive),
        Err(error) => {
            let text = format!("the agent reported an error: {}", error.message);
            (Outcome::Failed(text), Fate::Alive)
        }
    }
}

fn outcome_of(response: &PromptResponse, asked: bool) -> Outcome {
    match response.stop_reason {
        _ if asked => Outcome::Stopped,
        StopReason::EndTurn => Outcome::Succeeded,
        StopReason::MaxTokens => Outcome::Failed("the agent reached its token limit".to_owned()),
        StopReason::MaxTurnRequests => {
            Outcome::Failed("the agent reached its request limit".to_owned())
        }
        StopReason::Refusal => Outcome::Failed("the agent refused to go on".to_owned()),
        _ => Outcome::Failed("the agent gave its turn up".to_owned()),
    }
}

/// Maps messages and says them.
struct Speaker<'a> {
    mapper: Mapper,
    sink: &'a mut TurnSink,
    parts: Vec<serde_json::Value>,
}

impl Speaker<'_> {
    fn say(&mut self, message: FromAgent) {
        match message {
            FromAgent::Update(update) => {
                self.mapper
                    .update(*update, Timestamp::now(), &mut self.parts);
            }
            FromAgent::Permission(request, selected) => {
                self.mapper
                    .permission(&request, selected.as_ref(), &mut self.parts);
            }
        }
        self.flush();
    }

    fn end(&mut self) {
        self.mapper.end(Timestamp::now(), &mut self.parts);
        self.flush();
    }

    fn flush(&mut self) {
        for part in self.parts.drain(..) {
            self.sink.say_json(&part);
        }
    }
}
