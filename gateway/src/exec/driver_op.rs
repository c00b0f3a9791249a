//! `turn` and `stop`: calls to the driver.

use bex_proto::Chain;
use bex_proto::driver::TurnRequest;
use bex_proto::exec::{ExecCode, Operation};
use tracing::{error, warn};

use super::admission::Admitted;
use super::{Dialable, Exec, records};
use crate::driver_client::{CallError, DialError, DriverConnection};
use crate::sandbox::Look;

impl Exec {
    /// Within the operation's deadline, dialling included.
    pub(super) async fn call_driver(
        &self,
        admitted: &Admitted,
        located: &Dialable,
    ) -> Result<(), ExecCode> {
        if located.target.legacy {
            // its one turn was given at its creation, and it is stopped by deleting it
            return Err(ExecCode::Unsupported);
        }
        let call = self.ask(admitted, located);
        tokio::time::timeout_at(self.deadline(admitted), call)
            .await
            .unwrap_or(Err(ExecCode::ExecTimeout))
    }

    async fn ask(&self, admitted: &Admitted, located: &Dialable) -> Result<(), ExecCode> {
        match &admitted.operation {
            Operation::Turn { turn, priming } => {
                let generation = located.target.generation;
                let prompt = self
                    .deps
                    .records
                    .prompt(&admitted.session, *turn, generation);
                let prompt = records::bounded(prompt).await.map_err(|error| {
                    warn!(session = %admitted.session, error = %Chain(&error), "the store did not answer");
                    ExecCode::ExecTransport
                })?;
                let request = TurnRequest {
                    turn: *turn,
                    // a turn of another generation will never be spoken by this one
                    prompt: prompt.ok_or(ExecCode::SandboxTerminated)?,
                    priming: priming.clone(),
                };
                let mut driver = self.dial(located).await?;
                driver.turn(&request).await.map_err(|e| called(located, &e))
            }
            Operation::Stop { turn } => {
                let mut driver = self.dial(located).await?;
                driver.stop(*turn).await.map_err(|e| called(located, &e))
            }
            Operation::Observe { .. }
            | Operation::ReadTranscript { .. }
            | Operation::Run { .. } => Err(ExecCode::Unsupported),
        }
    }

    async fn dial(&self, located: &Dialable) -> Result<DriverConnection, ExecCode> {
        let failed =
            match DriverConnection::open(located.address, &located.target, &self.deps.driver_keys)
                .await
            {
                Ok(connection) => return Ok(connection),
                Err(failed) => failed,
            };
        let session = &located.target.session;
        match &failed {
            DialError::UnknownKey(kid) => {
                error!(%session, kid, "a living sandbox needs a driver key that is not in the ring");
                Err(ExecCode::ExecTransport)
            }
            DialError::Hello(error) => Err(called(located, error)),
            DialError::ConnectTimeout | DialError::Connect(_) | DialError::Handshake(_) => {
                warn!(%session, error = %Chain(&failed), "the driver cannot be dialled");
                if matches!(failed, DialError::ConnectTimeout) {
                    return Err(ExecCode::ExecTimeout);
                }
                // nobody listens: it may have gone since it was looked at
                match self.deps.targets.look(&located.target).await {
                    Look::Gone
                    | Look::Leaving
                    | Look::Running {
                        terminating: true, ..
                    } => Err(ExecCode::SandboxTerminated),
                    Look::Running { .. } | Look::NotYet | Look::Unknown => {
                        Err(ExecCode::ExecTransport)
                    }
                }
            }
        }
    }
}

fn called(located: &Dialable, error: &CallError) -> ExecCode {
    let code = match error {
        CallError::Busy => return ExecCode::Busy,
        CallError::NotSpoken => ExecCode::Unsupported,
        CallError::Timeout => ExecCode::ExecTimeout,
        CallError::GrantRefused
        | CallError::Redirected(_)
        | CallError::Unproved
        | CallError::Status(_)
        | CallError::Transport(_)
        | CallError::AnswerTooLong => ExecCode::ExecTransport,
    };
    warn!(
        session = %located.target.session,
        generation = %located.target.generation,
        error = %Chain(error),
        "the driver gave no good answer"
    );
    code
}
