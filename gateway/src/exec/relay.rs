//! Frames from a process in a sandbox to the caller, as they come.
//!
//! A task of its own reads the process and feeds a short queue that the answer's body drains, so that the deadline runs and the
//! process is ended also while the caller reads nothing. A caller that leaves drops the queue, which ends the task and the process.

use std::sync::Arc;

use bex_proto::Chain;
use bex_proto::exec::{ExecCode, FrameDecoder, SandboxRequest};
use bytes::Bytes;
use http::Response;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tracing::warn;

use super::admission::Admitted;
use super::answer::{self, Message, Refusal};
use super::check::{self, Check, Step};
use super::{EXEC_ANSWER_FRAMES, EXEC_LAST_FRAME_WAIT, Exec};
use crate::sandbox::{Afterwards, Ending, ExecStartError, Process, TargetRef};
use crate::serve::ResponseBody;

/// What is read from a process at once.
const READ_BYTES: usize = 64 * 1024;

/// The exit code of what was killed; only it can have a reason outside the process.
const KILLED: i32 = 137;

/// How a relay ends.
enum End {
    Done,
    Failed(ExecCode),
    CallerGone,
}

impl Exec {
    pub(super) async fn relay(
        self: &Arc<Self>,
        admitted: Admitted,
        target: TargetRef,
    ) -> Response<ResponseBody> {
        let (queue, mut frames) = mpsc::channel(EXEC_ANSWER_FRAMES);
        let seat = admitted.seat.clone();
        let (exec, span) = (Arc::clone(self), admitted.span);
        self.tasks
            .spawn(async move { span.hold(exec.run_relay(admitted, target, queue)).await });
        match frames.recv().await {
            Some(Ok(first)) => answer::streamed(first, frames, seat),
            Some(Err(code)) => Refusal::from(code).response(),
            // the task died
            None => Refusal::from(ExecCode::ExecTransport).response(),
        }
    }

    async fn run_relay(
        self: Arc<Self>,
        admitted: Admitted,
        target: TargetRef,
        queue: mpsc::Sender<Message>,
    ) {
        let mut out = Outlet {
            queue: queue.clone(),
            begun: false,
        };
        let pump = tokio::time::timeout_at(
            self.deadline(&admitted),
            self.pump(&admitted, &target, &mut out),
        );
        let end = tokio::select! {
            () = queue.closed() => End::CallerGone,
            end = pump => end.unwrap_or(End::Failed(ExecCode::ExecTimeout)),
        };
        let result = match end {
            End::Done => "ok",
            End::CallerGone => "caller_gone",
            End::Failed(code) => {
                out.fail(code).await;
                code.as_str()
            }
        };
        self.note_end(&admitted, result);
    }

    async fn pump(&self, admitted: &Admitted, target: &TargetRef, out: &mut Outlet) -> End {
        let request = SandboxRequest {
            nonce: admitted.claims.jti.clone(),
            operation: admitted.operation.clone(),
        };
        let mut pipe = match self.deps.targets.exec(target, request).await {
            Ok(pipe) => pipe,
            Err(ExecStartError::Gone) => return End::Failed(ExecCode::SandboxTerminated),
            // whoever looked has said why, where that was worth a line
            Err(ExecStartError::NotReachable) => return End::Failed(ExecCode::ExecTransport),
            Err(ExecStartError::Unsupported) => return End::Failed(ExecCode::Unsupported),
            Err(error) => {
                warn!(
                    session = %admitted.session,
                    error = %Chain(&error),
                    "nothing was started in the sandbox"
                );
                return End::Failed(ExecCode::ExecTransport);
            }
        };
        let mut check = Check::new(&admitted.operation, &admitted.claims.jti);
        let mut decoder = FrameDecoder::default();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    let sent = match check.step(frame) {
                        Step::Pass(bytes) => out.send(bytes).await,
                        Step::Done(exit_code) => {
                            return finish(&mut *pipe.process, exit_code, out).await;
                        }
                        Step::Overflow(rest) => {
                            // a failed send is told by the failure that follows
                            let _ = out.send(rest).await;
                            return End::Failed(check::OVERFLOW);
                        }
                        Step::Broken => return broken(&mut *pipe.process).await,
                    };
                    if matches!(sent, Sent::CallerGone) {
                        return End::CallerGone;
                    }
                }
                Ok(None) => match pipe.output.read(&mut buffer).await {
                    Ok(0) | Err(_) => return broken(&mut *pipe.process).await,
                    Ok(n) => decoder.push(&buffer[..n]),
                },
                Err(_) => return broken(&mut *pipe.process).await,
            }
        }
    }
}

/// The end mark came. Its process is believed unless another life is seen in the target's place: the target was looked at before it
/// was entered by name, and the name may have changed hands between.
async fn finish(process: &mut dyn Process, exit_code: i32, out: &mut Outlet) -> End {
    let hint = match process.afterwards(Ending::Marked { exit_code }).await {
        Afterwards::Other(_) => return End::Failed(ExecCode::ExecTransport),
        Afterwards::Ending(hint) | Afterwards::Gone(Some(hint)) => Some(hint),
        Afterwards::Same | Afterwards::Gone(None) | Afterwards::Unknown => None,
    };
    let hint = hint.filter(|_| exit_code == KILLED);
    match out.send(answer::exit(exit_code, hint)).await {
        Sent::Yes => End::Done,
        Sent::CallerGone => End::CallerGone,
    }
}

/// There is no end mark, so nobody knows whether this was all, whatever else was said. Only a life that is over is no transport's fault.
async fn broken(process: &mut dyn Process) -> End {
    End::Failed(match process.afterwards(Ending::Unmarked).await {
        Afterwards::Gone(_) => ExecCode::SandboxTerminated,
        Afterwards::Same | Afterwards::Ending(_) | Afterwards::Other(_) | Afterwards::Unknown => {
            ExecCode::ExecTransport
        }
    })
}

enum Sent {
    Yes,
    CallerGone,
}

/// The queue's entrance; knows whether anything went through.
struct Outlet {
    queue: mpsc::Sender<Message>,
    begun: bool,
}

impl Outlet {
    async fn send(&mut self, bytes: Bytes) -> Sent {
        if bytes.is_empty() {
            return Sent::Yes;
        }
        match self.queue.send(Ok(bytes)).await {
            Ok(()) => {
                self.begun = true;
                Sent::Yes
            }
            Err(_) => Sent::CallerGone,
        }
    }

    /// A status while nothing was said yet, else a last frame. A caller that takes neither sees a body without an end.
    async fn fail(self, code: ExecCode) {
        let message = if self.begun {
            Ok(answer::error(code))
        } else {
            Err(code)
        };
        let _ = tokio::time::timeout(EXEC_LAST_FRAME_WAIT, self.queue.send(message)).await;
    }
}
