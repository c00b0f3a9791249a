//! Takes what people say to the session and does it: each command once, each answered.

use std::sync::Arc;
use std::time::Duration;

use bex_proto::remote::{CommandKind, OutputStream};
use bex_proto::{CommandId, RemoteSessionId, limits};
use nix::sys::signal::Signal;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::arguments::{Config, Dialect};
use super::client::{Call, Client, Link, Trouble};
use super::deeds::{Deed, Deeds};
use super::fault::Fault;
use super::input::{Input, Words};
use super::journal::{Content, Journal};
use super::place::Place;
use super::running::Running;

/// How long the end of a session waits for the last answer to be heard.
const LAST_ANSWER: Duration = Duration::from_secs(5);

/// See the module's text.
#[derive(Debug)]
pub struct Commands {
    link: Link,
    session: RemoteSessionId,
    running: Arc<Running>,
    journal: Arc<Journal>,
    input: Input,
    deeds: Deeds,
    /// Done, and not answered yet.
    owed: Option<(CommandId, Deed)>,
}

#[derive(Debug, Deserialize)]
struct Page {
    commands: Vec<Command>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Command {
    id: CommandId,
    session_id: RemoteSessionId,
    kind: CommandKind,
    payload: Payload,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Payload {
    content: Option<String>,
    request_id: Option<String>,
    allow: Option<bool>,
    message: Option<String>,
}

impl Commands {
    /// Goes on where an earlier reporter ended.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(
        config: &Config,
        client: &Client,
        place: &Place,
        running: &Arc<Running>,
        journal: &Arc<Journal>,
    ) -> Result<Self, Fault> {
        let deeds = Deeds::open(place)?;
        if deeds.stopped() {
            running.stop();
        }
        Ok(Self {
            link: client.link(),
            session: config.session.clone(),
            running: Arc::clone(running),
            journal: Arc::clone(journal),
            input: Input::new(config, place),
            deeds,
            owed: None,
        })
    }

    /// For ever.
    pub async fn serve(&mut self) -> Fault {
        loop {
            if let Err(fault) = self.round().await {
                return fault;
            }
        }
    }

    async fn round(&mut self) -> Result<(), Fault> {
        let wait = limits::COMMAND_POLL.as_secs();
        let session = &self.session;
        let path = format!("/v1/machine/commands?waitSeconds={wait}&sessionId={session}");
        let call = Call::get(&path, limits::COMMAND_POLL);
        let read = self
            .link
            .ask(&call)
            .await
            .and_then(|body| serde_json::from_slice::<Page>(&body).map_err(|_| Trouble::Body));
        let page = match read {
            Ok(page) => page,
            Err(Trouble::Fault(Fault::Unauthenticated)) => return Err(Fault::Unauthenticated),
            Err(trouble) => {
                self.link.pause(&trouble, &path).await;
                return Ok(());
            }
        };
        self.link.worked();
        for command in page.commands {
            // another reporter of this machine does it when it comes again
            if command.session_id != self.session {
                debug!(session = %command.session_id, command = %command.id, "is for another reporter");
                continue;
            }
            let deed = self.once(&command).await?;
            self.owed = Some((command.id, deed));
            self.answer().await?;
        }
        Ok(())
    }

    /// The session's end may come between a deed and its answer: it is still given, if it is heard soon.
    pub async fn end(&mut self) {
        // nobody waits for it but whoever gave the command
        let _ = timeout(LAST_ANSWER, self.answer()).await;
    }

    /// Does a command, unless it was done.
    async fn once(&mut self, command: &Command) -> Result<Deed, Fault> {
        let stops = command.kind == CommandKind::Stop;
        let is_said = matches!(command.kind, CommandKind::Chat | CommandKind::Permission);
        let deed = match self.deeds.of(&command.id) {
            Some(deed @ (Deed::Done | Deed::Failed(_))) => return Ok(deed.clone()),
            // a signal may come twice; a message that an agent hears twice, it does twice
            Some(Deed::Begun) if is_said => {
                Deed::Failed("the reporter was killed meanwhile: it may have been told".to_owned())
            }
            _ => {
                self.deeds.set(&command.id, Deed::Begun, stops)?;
                let done = self.perform(command).await?;
                info!(command = %command.id, kind = %command.kind, ?done, "command");
                done
            }
        };
        self.deeds.set(&command.id, deed.clone(), stops)?;
        Ok(deed)
    }

    async fn perform(&mut self, command: &Command) -> Result<Deed, Fault> {
        let Payload {
            content,
            request_id,
            allow,
            message,
        } = &command.payload;
        Ok(match command.kind {
            CommandKind::Chat => match content {
                Some(content) => self.say(Words::Chat(content)).await,
                None => Deed::Failed("it says nothing".to_owned()),
            },
            CommandKind::Permission => match (request_id, allow) {
                (Some(id), Some(allow)) => {
                    let (allow, message) = (*allow, message.as_deref());
                    self.say(Words::Permission { id, allow, message }).await
                }
                _ => Deed::Failed("it answers nothing".to_owned()),
            },
            CommandKind::Abort => self.abort(&command.id).await?,
            CommandKind::Stop => {
                self.running.stop();
                Deed::Done
            }
            CommandKind::Pause => self.signal(Signal::SIGSTOP),
            CommandKind::Resume => self.signal(Signal::SIGCONT),
        })
    }

    async fn say(&mut self, words: Words<'_>) -> Deed {
        match self.input.say(words).await {
            Ok(()) => Deed::Done,
            Err(fault) => Deed::Failed(bex_proto::Chain(&fault).to_string()),
        }
    }

    fn signal(&self, signal: Signal) -> Deed {
        match self.running.signal(signal) {
            true => Deed::Done,
            false => Deed::Failed("the command has ended".to_owned()),
        }
    }

    /// Ends the turn, and says so in the log: readers of the output cannot tell it from a turn that ended by itself.
    async fn abort(&mut self, id: &CommandId) -> Result<Deed, Fault> {
        let deed = match self.input.dialect() {
            Dialect::Text => self.signal(Signal::SIGINT),
            Dialect::Claude => self.say(Words::Interrupt { id: id.as_str() }).await,
        };
        let state = match deed {
            Deed::Failed(_) => "abort_failed",
            Deed::Begun | Deed::Done => "aborted",
        };
        let said = json!({"state": state, "commandId": id}).to_string();
        // after the last of the output nobody asks any more
        self.journal
            .append(vec![(OutputStream::RequestState, Content::Text(said))])?;
        Ok(deed)
    }

    /// Tells what became of the last one. Without an answer the command comes again.
    async fn answer(&mut self) -> Result<(), Fault> {
        let Some((id, deed)) = &self.owed else {
            return Ok(());
        };
        let body = match deed {
            Deed::Failed(detail) => json!({"done": false, "detail": detail}),
            Deed::Begun | Deed::Done => json!({"done": true}),
        };
        let call = Call::post(&format!("/v1/machine/commands/{id}"), body.to_string());
        match self.link.post(&call).await {
            Err(Fault::Unauthenticated) => return Err(Fault::Unauthenticated),
            Err(fault) => warn!(command = %id, error = %fault, "an answer is refused"),
            Ok(_) => {}
        }
        self.owed = None;
        Ok(())
    }
}
