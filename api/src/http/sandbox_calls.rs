//! What the verbs ask of a sandbox. A trait, so that handler tests can script the gateway.

use async_trait::async_trait;
use axum::body::Body;
use bex_proto::TurnNo;
use bex_proto::driver::{DriverState, Status};
use bex_store::sandboxes::{SandboxRow, SandboxState};
use bex_store::sessions::SessionRow;

use crate::exec_client::{
    ExecClient, ExecFailure, ExecTarget, ReadAnswer, Reading, Room, SandboxRpc,
};

/// What a driver does just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It speaks the turn.
    Speaking,
    /// It is done with the turn, or gone: only the settle is missing.
    Done,
    /// It could not be asked.
    Unknown,
}

/// Calls into a sandbox, through the gateway.
#[async_trait]
pub trait SandboxCalls: Send + Sync {
    /// Whether the driver still speaks `turn`. `offset` is what is already known of its log.
    async fn activity(&self, target: &ExecTarget, turn: TurnNo, offset: u64) -> Activity;
    /// Asks the driver to stop a turn.
    async fn stop(&self, target: &ExecTarget, turn: TurnNo) -> Result<(), ExecFailure>;
    /// Runs a user's command; the answer's frames as they come.
    async fn run(
        &self,
        target: &ExecTarget,
        subject: &str,
        argv: Vec<String>,
        stdin: Option<String>,
    ) -> Result<Body, ExecFailure>;
}

#[async_trait]
impl SandboxCalls for ExecClient {
    async fn activity(&self, target: &ExecTarget, turn: TurnNo, offset: u64) -> Activity {
        let read = self.read(target, Reading::Status, turn, offset, Room::Small);
        activity_of(read.await, turn)
    }

    async fn stop(&self, target: &ExecTarget, turn: TurnNo) -> Result<(), ExecFailure> {
        SandboxRpc::stop(self, target, turn).await
    }

    async fn run(
        &self,
        target: &ExecTarget,
        subject: &str,
        argv: Vec<String>,
        stdin: Option<String>,
    ) -> Result<Body, ExecFailure> {
        ExecClient::run(self, target, subject, argv, stdin)
            .await
            .map(Body::new)
    }
}

fn activity_of(answer: ReadAnswer, turn: TurnNo) -> Activity {
    if answer.end == Err(ExecFailure::Terminated) {
        return Activity::Done;
    }
    let status = answer.header.and_then(|header| header.status);
    match status.and_then(|text| serde_json::from_str::<Status>(&text).ok()) {
        None => Activity::Unknown,
        // a driver that has not begun the turn yet is idle in an earlier one
        Some(status) if status.turn.is_some_and(|spoken| spoken < turn) => Activity::Speaking,
        Some(status) => match status.state {
            DriverState::Running => Activity::Speaking,
            DriverState::Idle | DriverState::Failed | DriverState::Succeeded => Activity::Done,
        },
    }
}

/// The sandbox as the exec RPC names it; none while it is being made or when it is on its way out.
pub(super) fn target_of(session: &SessionRow, sandbox: &SandboxRow) -> Option<ExecTarget> {
    if !matches!(sandbox.state, SandboxState::Turn | SandboxState::Idle)
        || sandbox.ready_at.is_none()
    {
        return None;
    }
    ExecTarget::of(session, sandbox)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bex_proto::exec::WindowHeader;

    fn asked(status: Option<&str>, end: Result<(), ExecFailure>) -> Activity {
        let header = WindowHeader {
            status: status.map(str::to_owned),
            log: None,
        };
        activity_of(
            ReadAnswer {
                header: Some(header),
                bytes: bytes::Bytes::new(),
                end,
            },
            TurnNo(2),
        )
    }

    #[test]
    fn only_a_known_end_counts_as_done() {
        for (status, activity) in [
            (
                r#"{"state":"running","generation":1,"turn":2}"#,
                Activity::Speaking,
            ),
            (
                r#"{"state":"idle","generation":1,"turn":1}"#,
                Activity::Speaking,
            ),
            (
                r#"{"state":"idle","generation":1,"turn":2}"#,
                Activity::Done,
            ),
            (
                r#"{"state":"failed","generation":1,"turn":2}"#,
                Activity::Done,
            ),
            (r#"{"state":"succeeded"}"#, Activity::Done),
            (r#"{"state":"dancing"}"#, Activity::Unknown),
        ] {
            assert_eq!(asked(Some(status), Ok(())), activity, "{status}");
        }
        assert_eq!(asked(None, Ok(())), Activity::Unknown);
        assert_eq!(asked(None, Err(ExecFailure::Timeout)), Activity::Unknown);
        assert_eq!(asked(None, Err(ExecFailure::Terminated)), Activity::Done);
    }
}
