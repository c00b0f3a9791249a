//! A running agent: its process, the connection to it, its session.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, FileSystemCapabilities, Implementation, InitializeRequest,
    LoadSessionRequest, NewSessionRequest, PermissionOptionId, PermissionOptionKind,
    ReadTextFileRequest, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SelectedPermissionOutcome, SessionId, SessionNotification,
    SessionUpdate, WriteTextFileRequest,
};
use agent_client_protocol::{Agent as AgentRole, Client, Error, Lines};
use bex_proto::launch::{Isolation, Permissions};
use futures::sink;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::files::Files;
use super::lines::bounded_lines;
use super::queue::{Receiver, Sender, queue};
use crate::agent::child::{AgentChild, Spawn};
use crate::bounds::{AGENT_STDERR_BYTES, LAST_WORDS_TIMEOUT};

/// What the agent sends while it speaks.
pub enum FromAgent {
    /// A report.
    Update(Box<SessionUpdate>),
    /// What it asked, and the option chosen for it.
    Permission(Box<RequestPermissionRequest>, Option<PermissionOptionId>),
}

impl FromAgent {
    /// Whether somebody's words are in it.
    fn is_talk(&self) -> bool {
        let Self::Update(update) = self else {
            return false;
        };
        matches!(
            **update,
            SessionUpdate::UserMessageChunk(_) | SessionUpdate::AgentMessageChunk(_)
        )
    }
}

/// What the agent knows of earlier turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Nothing: the session is new.
    Fresh,
    /// It loaded its old session, and showed it.
    Loaded,
    /// The session went on.
    Continued,
}

/// A running agent. Dropping it kills the process with all that it started.
pub struct Live {
    process: AgentChild,
    /// To send requests with.
    pub connection: ConnectionTo<AgentRole>,
    /// What it sends; bounded, so that a fast agent waits.
    pub messages: Receiver,
    /// Its session.
    pub session: SessionId,
    /// Whether it can load sessions.
    pub can_load: bool,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    stderr_ended: CancellationToken,
    closed: CancellationToken,
    task: AbortHandle,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Live {
    /// Starts the agent and opens a session: the given one where it can be loaded, else a new one.
    pub async fn start(
        spawn: &Spawn,
        permissions: Permissions,
        resume: Option<SessionId>,
    ) -> Result<(Self, Memory), String> {
        let mut process = spawn
            .start()
            .map_err(|cause| format!("the agent cannot be started: {cause}"))?;
        let pipes = (
            process.child.stdin.take(),
            process.child.stdout.take(),
            process.child.stderr.take(),
        );
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err("the agent has no pipes".to_owned());
        };
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        let stderr_ended = CancellationToken::new();
        let ended = stderr_ended.clone().drop_guard();
        let words = Arc::clone(&last_words);
        tokio::spawn(async move {
            let _ended = ended;
            keep_last_words(stderr, words).await;
        });
        let (send, messages) = queue();
        let (ready, connection) = oneshot::channel();
        let closed = CancellationToken::new();
        let files = (spawn.surroundings.isolation == Isolation::None)
            .then(|| Files::new(spawn.surroundings.workdir.clone()));
        let has_files = files.is_some();
        let task = tokio::spawn(run(
            (stdin, stdout),
            permissions,
            files,
            send,
            ready,
            closed.clone(),
        ));
        let task = task.abort_handle();
        let Ok(connection) = connection.await else {
            return Err("the agent's connection broke at once".to_owned());
        };
        let mut live = Self {
            process,
            connection,
            messages,
            session: SessionId::from(String::new()),
            can_load: false,
            stderr: last_words,
            stderr_ended,
            closed,
            task,
        };
        match live.open(spawn, has_files, resume).await {
            Ok(memory) => Ok((live, memory)),
            Err(error) if live.closed.is_cancelled() => {
                debug!(code = ?error.code, "agent ended while it started");
                Err(format!("the agent ended: {}", live.ending().await))
            }
            Err(error) => Err(format!("the agent opens no session: {}", error.message)),
        }
    }

    async fn open(
        &mut self,
        spawn: &Spawn,
        has_files: bool,
        resume: Option<SessionId>,
    ) -> Result<Memory, Error> {
        let files = FileSystemCapabilities::new()
            .read_text_file(has_files)
            .write_text_file(has_files);
        let request = InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(ClientCapabilities::new().fs(files))
            .client_info(Implementation::new("bex-driver", env!("CARGO_PKG_VERSION")));
        let connection = self.connection.clone();
        let (initialized, _) = self
            .listening(connection.send_request(request).block_task())
            .await?;
        self.can_load = initialized.agent_capabilities.load_session;
        let workdir = &spawn.surroundings.workdir;
        if let (true, Some(session)) = (self.can_load, resume) {
            let load = LoadSessionRequest::new(session.clone(), workdir);
            match self
                .listening(connection.send_request(load).block_task())
                .await
            {
                Ok((_, replayed)) => {
                    self.session = session;
                    // whoever loads a conversation has to show it first; what shows nothing remembers nothing, and is told
                    return Ok(match replayed {
                        0 => Memory::Fresh,
                        _ => Memory::Loaded,
                    });
                }
                Err(error) => warn!(code = ?error.code, "agent cannot load its session"),
            }
        }
        let new = NewSessionRequest::new(workdir);
        let new = self.listening(connection.send_request(new).block_task());
        self.session = new.await?.0.session_id;
        Ok(Memory::Fresh)
    }

    /// Waits for an answer while what the agent sends is let go: before a turn it is no one's talk, and a full queue would keep the
    /// answer from arriving. Beside the answer stands how many messages of a conversation came.
    async fn listening<T>(
        &mut self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<(T, u64), Error> {
        tokio::pin!(answer);
        let mut messages = 0;
        let answer = loop {
            tokio::select! {
                answer = &mut answer => break answer?,
                Some(message) = self.messages.recv() => messages += u64::from(message.is_talk()),
            }
        };
        // whatever was sent before the answer is in the queue by now
        while let Some(message) = self.messages.try_recv() {
            messages += u64::from(message.is_talk());
        }
        Ok((answer, messages))
    }

    /// Lets go of what was sent between turns.
    pub fn discard_waiting(&mut self) {
        while self.messages.try_recv().is_some() {}
    }

    /// Whether process and connection are there.
    pub fn is_alive(&mut self) -> bool {
        !self.closed.is_cancelled() && matches!(self.process.child.try_wait(), Ok(None))
    }

    /// Waits for the process's end and says how it was, with its last words.
    pub async fn ending(&mut self) -> String {
        let status = match self.process.child.wait().await {
            Ok(status) => status.to_string(),
            Err(cause) => cause.to_string(),
        };
        // the process may be gone before its last words were read; a forgotten child may hold them open
        let _ = timeout(LAST_WORDS_TIMEOUT, self.stderr_ended.cancelled()).await;
        let words: Vec<u8> = self
            .stderr
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .copied()
            .collect();
        let words = String::from_utf8_lossy(&words).trim().to_owned();
        if words.is_empty() {
            status
        } else {
            format!("{status}; {words}")
        }
    }

    /// Kills the process with all that it started.
    pub async fn kill(&mut self) {
        if let Err(cause) = self.process.kill().await {
            warn!(error = %cause, "agent cannot be killed");
        }
    }
}

/// Speaks the protocol until the connection breaks or is dropped. The token is cancelled when it is over.
async fn run(
    (stdin, stdout): (
        impl AsyncWrite + Send + Unpin + 'static,
        impl AsyncRead + Send + Unpin + 'static,
    ),
    permissions: Permissions,
    files: Option<Files>,
    send: Sender,
    ready: oneshot::Sender<ConnectionTo<AgentRole>>,
    closed: CancellationToken,
) {
    let _closed = closed.drop_guard();
    let outgoing = Box::pin(sink::unfold(stdin, write_line));
    let transport = Lines::new(outgoing, Box::pin(bounded_lines(stdout, send.clone())));
    let (updates, asked) = (send.clone(), send);
    let (reader, writer) = (files.clone(), files);
    let done = Client
        .v1()
        .name("bex-driver")
        .on_receive_notification(
            async move |note: SessionNotification, _agent| {
                updates.send(FromAgent::Update(Box::new(note.update))).await;
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _agent| {
                let selected = decide(&request, permissions);
                let outcome = match selected.clone() {
                    Some(option) => {
                        RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option))
                    }
                    None => RequestPermissionOutcome::Cancelled,
                };
                let message = FromAgent::Permission(Box::new(request), selected);
                asked.send(message).await;
                responder.respond(RequestPermissionResponse::new(outcome))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ReadTextFileRequest, responder, _agent| match &reader {
                Some(files) => responder.respond_with_result(files.read(request).await),
                None => responder.respond_with_error(Error::method_not_found()),
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: WriteTextFileRequest, responder, _agent| match &writer {
                Some(files) => responder.respond_with_result(files.write(request).await),
                None => responder.respond_with_error(Error::method_not_found()),
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(
            transport,
            async move |connection: ConnectionTo<AgentRole>| {
                let _ = ready.send(connection.clone());
                connection.incoming_closed().await;
                Ok(())
            },
        )
        .await;
    if let Err(error) = done {
        debug!(code = ?error.code, "agent's connection broke");
    }
}

async fn write_line<W: AsyncWrite + Unpin>(mut stdin: W, line: String) -> io::Result<W> {
    let mut bytes = line.into_bytes();
    bytes.push(b'\n');
    stdin.write_all(&bytes).await?;
    stdin.flush().await?;
    Ok(stdin)
}

/// Chooses as the profile says, by an option's kind, never by its place or name; the narrower one first.
fn decide(
    request: &RequestPermissionRequest,
    permissions: Permissions,
) -> Option<PermissionOptionId> {
    let wanted = match permissions {
        Permissions::Allow => [
            PermissionOptionKind::AllowOnce,
            PermissionOptionKind::AllowAlways,
        ],
        Permissions::Deny => [
            PermissionOptionKind::RejectOnce,
            PermissionOptionKind::RejectAlways,
        ],
    };
    wanted
        .iter()
        .find_map(|kind| request.options.iter().find(|option| option.kind == *kind))
        .map(|option| option.option_id.clone())
}

/// Reads standard error so that the agent never waits for it, and keeps its end.
async fn keep_last_words(mut stderr: impl AsyncRead + Unpin, words: Arc<Mutex<VecDeque<u8>>>) {
    let mut chunk = vec![0; AGENT_STDERR_BYTES];
    while let Ok(length @ 1..) = stderr.read(&mut chunk).await {
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend(&chunk[..length]);
        let excess = words.len().saturating_sub(AGENT_STDERR_BYTES);
        words.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use serde_json::json;
    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;
    use crate::bounds::AGENT_QUEUE_BYTES;

    /// Turns of the one thread without progress after which nothing moves: there is no clock and no kernel in this test.
    const QUIET_TURNS: u32 = 1000;

    async fn until_quiet(written: &Cell<usize>) -> usize {
        let mut quiet = 0;
        while quiet < QUIET_TURNS {
            let before = written.get();
            yield_now().await;
            quiet = if written.get() == before {
                quiet + 1
            } else {
                0
            };
        }
        written.get()
    }

    #[tokio::test]
    async fn an_agent_that_nobody_listens_to_is_not_read_on() {
        let text = "x".repeat(1024 * 1024);
        let line = json!({"jsonrpc": "2.0", "method": "session/update", "params": {
            "sessionId": "s",
            "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}},
        }});
        let line = format!("{line}\n");
        let (send, mut messages) = queue();
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        let (ready, _connection) = oneshot::channel();
        let pipes = (tokio::io::sink(), ours);
        let closed = CancellationToken::new();
        tokio::spawn(run(pipes, Permissions::Allow, None, send, ready, closed));
        let (bytes, written) = (line.len(), Rc::new(Cell::new(0)));
        let count = Rc::clone(&written);
        let all = 3 * AGENT_QUEUE_BYTES / bytes;
        let agent = async move {
            spawn_local(async move {
                for _ in 0..all {
                    theirs.write_all(line.as_bytes()).await.expect("it is read");
                    count.set(count.get() + bytes);
                }
                // stays open
                std::future::pending::<()>().await;
            });
            let unheard = until_quiet(&written).await;
            assert!(
                (AGENT_QUEUE_BYTES / 2..AGENT_QUEUE_BYTES + 4 * bytes).contains(&unheard),
                "{unheard} bytes were read"
            );
            for _ in 0..all {
                assert!(messages.recv().await.is_some());
            }
            assert_eq!(written.get(), all * bytes);
        };
        LocalSet::new().run_until(agent).await;
    }
}
