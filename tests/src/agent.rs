//! The demo agent: a deterministic Agent Client Protocol agent that really works in its directory.
//!
//! The same prompt in the same directory gives the same updates, byte for byte: no clock, no randomness. What a prompt may ask
//! for beside plain work is in [`Orders`].

mod kept;
mod orders;
mod project;
mod record;
mod speaker;
mod work;

pub use orders::{Ending, Orders};

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, ContentBlock, ContentChunk, InitializeRequest,
    InitializeResponse, LoadSessionRequest, LoadSessionResponse, NewSessionRequest,
    NewSessionResponse, PromptRequest, PromptResponse, SessionNotification, SessionUpdate,
    StopReason, TextContent,
};
use agent_client_protocol::{Agent, Error, Stdio};
use tokio::sync::watch;

use kept::Kept;

/// One conversation of a client with this agent.
struct Session {
    cwd: PathBuf,
    /// prompts answered so far; numbers the tool calls
    turns: u32,
    /// what it loaded of turns that it did not speak itself
    memory: String,
    /// counts cancellations, so that one that arrives before the work began is seen too
    cancels: watch::Sender<u32>,
}

impl Session {
    fn new(cwd: PathBuf, asked: &[String]) -> Self {
        Self {
            cwd,
            turns: u32::try_from(asked.len()).unwrap_or(u32::MAX),
            memory: kept::told(asked),
            cancels: watch::channel(0).0,
        }
    }
}

/// All conversations of this process.
#[derive(Clone)]
struct Sessions {
    open: Arc<Mutex<HashMap<String, Session>>>,
    kept: Kept,
}

/// A turn that begins.
struct Begun {
    cwd: PathBuf,
    turn: u32,
    memory: String,
    cancels: watch::Receiver<u32>,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, cwd: PathBuf) -> String {
        let mut sessions = self.lock();
        let number = sessions.len() + 1;
        let id = match self.kept.is_on() {
            true => format!("demo-{}-{number}", std::process::id()),
            false => format!("demo-{number}"),
        };
        sessions.insert(id.clone(), Session::new(cwd, &[]));
        id
    }

    /// What was asked in it; `None` when it is not kept.
    fn load(&self, id: &str, cwd: PathBuf) -> Option<Vec<String>> {
        let asked = self.kept.asked(id)?;
        self.lock().insert(id.to_owned(), Session::new(cwd, &asked));
        Some(asked)
    }

    fn begin(&self, id: &str) -> Option<Begun> {
        let mut sessions = self.lock();
        let session = sessions.get_mut(id)?;
        session.turns += 1;
        Some(Begun {
            cwd: session.cwd.clone(),
            turn: session.turns,
            memory: session.memory.clone(),
            cancels: session.cancels.subscribe(),
        })
    }

    fn cancel(&self, id: &str) {
        if let Some(session) = self.lock().get(id) {
            session.cancels.send_modify(|n| *n += 1);
        }
    }
}

/// Serves one client on standard input and output until it goes away. `records` is where prompts may have their text recorded, `kept`
/// where conversations are, so that another agent can load them.
///
/// # Errors
/// When the connection breaks.
pub async fn serve(records: Option<PathBuf>, kept: Option<PathBuf>) -> Result<(), Error> {
    let kept = Kept::new(kept);
    let loads = kept.is_on();
    let sessions = Sessions {
        open: Arc::default(),
        kept: kept.clone(),
    };
    let loaded = sessions.clone();
    let records: Option<Arc<Path>> = records.map(Arc::from);
    let (prompted, canceled) = (sessions.clone(), sessions.clone());
    Agent
        .v1()
        .name("bex-demo-agent")
        .on_receive_request(
            async move |initialize: InitializeRequest, responder, _client| {
                let response = InitializeResponse::new(initialize.protocol_version)
                    .agent_capabilities(AgentCapabilities::new().load_session(loads));
                responder.respond(response)
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |new: NewSessionRequest, responder, _client| {
                responder.respond(NewSessionResponse::new(sessions.open(new.cwd)))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |load: LoadSessionRequest, responder, client| {
                let id = load.session_id.to_string();
                let Some(asked) = loaded.load(&id, load.cwd) else {
                    return responder.respond_with_error(Error::invalid_params());
                };
                for line in asked {
                    let said = ContentChunk::new(ContentBlock::Text(TextContent::new(line)));
                    let update = SessionUpdate::UserMessageChunk(said);
                    client.send_notification(SessionNotification::new(id.clone(), update))?;
                }
                responder.respond(LoadSessionResponse::new())
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, client| {
                let id = request.session_id.to_string();
                let Some(begun) = prompted.begin(&id) else {
                    return responder.respond_with_error(Error::invalid_params());
                };
                let Begun { cwd, turn, .. } = begun;
                let mut orders = Orders::read(&last_text(&request.prompt));
                orders.memory = begun.memory + &memory(&request.prompt);
                if kept.keep(&id, &orders.title).is_err() {
                    return responder.respond_with_error(Error::internal_error());
                }
                let speaker =
                    speaker::Speaker::new(client.clone(), request.session_id, turn, begun.cancels);
                // the handler must return for a cancellation to be read
                let records = records.clone();
                client.spawn(async move {
                    let outcome = work::answer(&speaker, &cwd, &orders, records.as_deref()).await;
                    responder.respond_with_result(outcome.or_else(|fault| match fault {
                        speaker::Fault::Canceled => Ok(PromptResponse::new(StopReason::Cancelled)),
                        speaker::Fault::Broken(error) => Err(error),
                    }))
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |cancel: CancelNotification, _client| {
                canceled.cancel(&cancel.session_id.to_string());
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .connect_to(Stdio::new())
        .await
}

/// What the agent was told before the prompt: all that it knows of turns it did not speak itself.
fn memory(prompt: &[ContentBlock]) -> String {
    let texts = prompt.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    let texts: Vec<_> = texts.collect();
    texts
        .split_last()
        .map(|(_, before)| before.concat())
        .unwrap_or_default()
}

/// Only the last text is the person's; what stands before it may be priming with orders of old.
fn last_text(prompt: &[ContentBlock]) -> String {
    prompt
        .iter()
        .rev()
        .find_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.clone()),
            _ => None,
        })
        .unwrap_or_default()
}
