//! The demo agent: a deterministic Agent Client Protocol agent that really works in its directory.
//!
//! The same prompt in the same directory gives the same updates, byte for byte: no clock, no randomness. What a prompt may ask
//! for beside plain work is in [`Orders`].

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
    AgentCapabilities, CancelNotification, ContentBlock, InitializeRequest, InitializeResponse,
    NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse, StopReason,
};
use agent_client_protocol::{Agent, Error, Stdio};
use tokio::sync::watch;

/// One conversation of a client with this agent.
struct Session {
    cwd: PathBuf,
    /// prompts answered so far; numbers the tool calls
    turns: u32,
    /// counts cancellations, so that one that arrives before the work began is seen too
    cancels: watch::Sender<u32>,
}

/// All conversations of this process.
#[derive(Clone, Default)]
struct Sessions(Arc<Mutex<HashMap<String, Session>>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, cwd: PathBuf) -> String {
        let mut sessions = self.lock();
        let id = format!("demo-{}", sessions.len() + 1);
        let session = Session {
            cwd,
            turns: 0,
            cancels: watch::channel(0).0,
        };
        sessions.insert(id.clone(), session);
        id
    }

    /// Directory, number of the turn that begins, and its cancellations.
    fn begin(&self, id: &str) -> Option<(PathBuf, u32, watch::Receiver<u32>)> {
        let mut sessions = self.lock();
        let session = sessions.get_mut(id)?;
        session.turns += 1;
        Some((
            session.cwd.clone(),
            session.turns,
            session.cancels.subscribe(),
        ))
    }

    fn cancel(&self, id: &str) {
        if let Some(session) = self.lock().get(id) {
            session.cancels.send_modify(|n| *n += 1);
        }
    }
}

/// Serves one client on standard input and output until it goes away. `records` is where prompts may have their text recorded.
///
/// # Errors
/// When the connection breaks.
pub async fn serve(records: Option<PathBuf>) -> Result<(), Error> {
    let sessions = Sessions::default();
    let records: Option<Arc<Path>> = records.map(Arc::from);
    let (prompted, canceled) = (sessions.clone(), sessions.clone());
    Agent
        .v1()
        .name("bex-demo-agent")
        .on_receive_request(
            async move |initialize: InitializeRequest, responder, _client| {
                let response = InitializeResponse::new(initialize.protocol_version)
                    .agent_capabilities(AgentCapabilities::new());
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
            async move |request: PromptRequest, responder, client| {
                let id = request.session_id.to_string();
                let Some((cwd, turn, cancels)) = prompted.begin(&id) else {
                    return responder.respond_with_error(Error::invalid_params());
                };
                let mut orders = Orders::read(&last_text(&request.prompt));
                orders.memory = memory(&request.prompt);
                let speaker =
                    speaker::Speaker::new(client.clone(), request.session_id, turn, cancels);
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
