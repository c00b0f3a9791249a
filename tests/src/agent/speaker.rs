//! What the agent says to its client, one call per kind of update.

use std::path::Path;
use std::time::Duration;

use agent_client_protocol::Client;
use agent_client_protocol::Error;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ContentChunk, PermissionOption, PermissionOptionKind, Plan, PlanEntry, PlanEntryPriority,
    PlanEntryStatus, RequestPermissionOutcome, RequestPermissionRequest, SessionId,
    SessionNotification, SessionUpdate, ToolCall, ToolCallContent, ToolCallLocation,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use serde_json::Value;
use tokio::sync::watch;

/// How often a gate is looked at.
const GATE_POLL: Duration = Duration::from_millis(10);

/// Why a turn ends before its work is done.
#[derive(Debug)]
pub(super) enum Fault {
    /// The client asked for it.
    Canceled,
    /// The client is gone, or the directory cannot be worked in.
    Broken(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(Error::internal_error().data(error.to_string()))
    }
}

/// One turn's voice.
pub(super) struct Speaker {
    client: ConnectionTo<Client>,
    session: SessionId,
    turn: u32,
    cancels: watch::Receiver<u32>,
}

/// A tool call that was announced.
pub(super) struct Call {
    id: String,
}

/// Whether the client let a tool run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    /// It did.
    Granted,
    /// It did not.
    Refused,
}

impl Speaker {
    pub(super) fn new(
        client: ConnectionTo<Client>,
        session: SessionId,
        turn: u32,
        cancels: watch::Receiver<u32>,
    ) -> Self {
        Self {
            client,
            session,
            turn,
            cancels,
        }
    }

    fn update(&self, update: SessionUpdate) -> Result<(), Fault> {
        // a subscription begins with the count it has seen; any change is a cancellation of this turn
        if self.cancels.has_changed().unwrap_or(false) {
            return Err(Fault::Canceled);
        }
        self.client
            .send_notification(SessionNotification::new(self.session.clone(), update))?;
        Ok(())
    }

    pub(super) fn say(&self, text: impl Into<String>) -> Result<(), Fault> {
        let chunk = ContentChunk::new(text.into().into());
        self.update(SessionUpdate::AgentMessageChunk(chunk))
    }

    pub(super) fn think(&self, text: &str) -> Result<(), Fault> {
        for words in text.split_inclusive(' ') {
            let chunk = ContentChunk::new(words.into());
            self.update(SessionUpdate::AgentThoughtChunk(chunk))?;
        }
        Ok(())
    }

    /// Shows the plan; the steps before `at` are done, the one at `at` is being worked on.
    pub(super) fn plan(&self, steps: &[&str], at: usize) -> Result<(), Fault> {
        let entries = steps.iter().enumerate().map(|(i, step)| {
            let status = match i.cmp(&at) {
                std::cmp::Ordering::Less => PlanEntryStatus::Completed,
                std::cmp::Ordering::Equal => PlanEntryStatus::InProgress,
                std::cmp::Ordering::Greater => PlanEntryStatus::Pending,
            };
            PlanEntry::new(*step, PlanEntryPriority::Medium, status)
        });
        self.update(SessionUpdate::Plan(Plan::new(entries.collect())))
    }

    pub(super) fn call(
        &self,
        name: &str,
        title: &str,
        kind: ToolKind,
        path: &Path,
        input: Value,
    ) -> Result<Call, Fault> {
        let id = format!("call-{}-{name}", self.turn);
        let call = ToolCall::new(id.clone(), title)
            .kind(kind)
            .status(ToolCallStatus::Pending)
            .locations(vec![ToolCallLocation::new(path)])
            .raw_input(input);
        self.update(SessionUpdate::ToolCall(call))?;
        Ok(Call { id })
    }

    pub(super) fn begun(&self, call: &Call) -> Result<(), Fault> {
        let fields = ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
        self.update(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(
            call.id.clone(),
            fields,
        )))
    }

    pub(super) fn ended(
        &self,
        call: &Call,
        status: ToolCallStatus,
        content: ToolCallContent,
        output: Value,
    ) -> Result<(), Fault> {
        let fields = ToolCallUpdateFields::new()
            .status(status)
            .content(vec![content])
            .raw_output(output);
        self.update(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(
            call.id.clone(),
            fields,
        )))
    }

    pub(super) async fn ask(&self, call: &Call) -> Result<Permission, Fault> {
        let options = vec![
            PermissionOption::new("allow", "Run it", PermissionOptionKind::AllowOnce),
            PermissionOption::new("reject", "Do not run it", PermissionOptionKind::RejectOnce),
        ];
        let request = RequestPermissionRequest::new(
            self.session.clone(),
            ToolCallUpdate::new(call.id.clone(), ToolCallUpdateFields::new()),
            options,
        );
        let answer = self.client.send_request(request).block_task();
        let answer = tokio::select! {
            answer = answer => answer?,
            () = self.canceled() => return Err(Fault::Canceled),
        };
        match answer.outcome {
            RequestPermissionOutcome::Selected(selected)
                if selected.option_id.to_string() == "allow" =>
            {
                Ok(Permission::Granted)
            }
            RequestPermissionOutcome::Selected(_) => Ok(Permission::Refused),
            _ => Err(Fault::Canceled),
        }
    }

    /// Lets `pause` pass, or ends at once when the turn is canceled.
    pub(super) async fn pause(&self, pause: Duration) -> Result<(), Fault> {
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            () = self.canceled() => Err(Fault::Canceled),
        }
    }

    /// Waits until a file exists.
    pub(super) async fn wait_for(&self, file: &Path) -> Result<(), Fault> {
        while !file.exists() {
            self.pause(GATE_POLL).await?;
        }
        Ok(())
    }

    /// Returns once the turn is canceled; never, when the connection ends first.
    pub(super) async fn canceled(&self) {
        let mut cancels = self.cancels.clone();
        if cancels.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
