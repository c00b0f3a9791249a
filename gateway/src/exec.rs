//! The exec listener: the api's only way into a sandbox, `POST /v1/exec`.
//!
//! A request is admitted in a fixed order (`admission`), the target is looked at, and then one of two things happens: `observe`,
//! `read-transcript` and `run` start the driver's own binary inside the sandbox and relay its frames as they come (`relay`);
//! `turn` and `stop` are calls to the driver (`driver_op`). What goes wrong before the first frame is an HTTP status with a
//! problem document, afterwards an error frame; `busy`, which is a driver's proper answer, is always a frame. The last frame is
//! an exit or an error; a body without one is an error to its reader. No whole output is ever held.

mod admission;
mod answer;
mod check;
mod driver_op;
mod records;
mod relay;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bex_proto::exec::{ExecCode, Operation};
use bex_proto::problem::Code;
use bex_proto::ticket::KeyRing;
use bex_proto::{Chain, limits};
use bex_telemetry::Attribute;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::metrics::{ExecLabels, ExecMetrics, OpLabel, RefusedLabels};
use crate::sandbox::{Look, TargetRef, Targets};
use crate::serve::ResponseBody;
use admission::Admitted;
use answer::Refusal;
pub use records::{ExecRecords, SandboxRecord};

/// Operations of one process at once: each may hold a request body, a child process and some frames.
pub const EXEC_PARALLEL: usize = 64;
/// Of these, users' commands: they may take minutes and must leave room for the harvest.
pub const EXEC_RUN_PARALLEL: usize = 32;
/// Frames between the sandbox and the socket: 128 KiB at most. The socket has buffers of its own.
pub const EXEC_ANSWER_FRAMES: usize = 2;
/// Time for a request's body.
pub const EXEC_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the last frame to find room when its reader is slow.
pub const EXEC_LAST_FRAME_WAIT: Duration = Duration::from_secs(5);
/// What a refused caller is told to wait when the house is full.
const RETRY_AFTER_SECONDS: u64 = 1;

/// What the listener works with.
pub struct ExecDeps {
    /// Nonces, revocations, sandbox rows, prompts.
    pub records: Arc<dyn ExecRecords>,
    /// The sandboxes.
    pub targets: Arc<dyn Targets>,
    /// For driver grants.
    pub driver_keys: Arc<KeyRing>,
    /// For exec tickets; without them every request is answered `not_configured`.
    pub exec_keys: Option<KeyRing>,
    /// Counts.
    pub metrics: ExecMetrics,
    /// Times and sizes.
    pub limits: ExecLimits,
}

/// Times and sizes of the listener.
#[derive(Debug, Clone, Copy)]
pub struct ExecLimits {
    /// For observe and read-transcript.
    pub read: Duration,
    /// For a user's command.
    pub run: Duration,
    /// For turn and stop, dialling included.
    pub driver: Duration,
    /// Operations at once.
    pub parallel: usize,
    /// Users' commands at once.
    pub run_parallel: usize,
}

impl Default for ExecLimits {
    fn default() -> Self {
        Self {
            read: limits::EXEC_READ_TIMEOUT,
            run: limits::EXEC_RUN_TIMEOUT,
            driver: limits::DRIVER_CALL_TIMEOUT,
            parallel: EXEC_PARALLEL,
            run_parallel: EXEC_RUN_PARALLEL,
        }
    }
}

/// The exec listener.
pub struct Exec {
    deps: ExecDeps,
    seats: Arc<Semaphore>,
    run_seats: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl std::fmt::Debug for Exec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exec")
            .field("running", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

impl Exec {
    /// A listener.
    pub fn new(deps: ExecDeps) -> Self {
        Self {
            seats: Arc::new(Semaphore::new(deps.limits.parallel)),
            run_seats: Arc::new(Semaphore::new(deps.limits.run_parallel)),
            tasks: TaskTracker::new(),
            deps,
        }
    }

    /// Answers one request. Dropping the future or the answer's body ends what runs for it.
    pub async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Response<ResponseBody> {
        let admitted = match self.admit(request).await {
            Ok(admitted) => admitted,
            Err(refusal) => {
                info!(%peer, code = refusal.code().as_str(), "exec request refused");
                let label = RefusedLabels {
                    code: refusal.code().as_str(),
                };
                self.deps.metrics.refused.get_or_create(&label).inc();
                return refusal.response();
            }
        };
        let span = admitted.span;
        span.hold(self.perform(admitted)).await
    }

    async fn perform(self: Arc<Self>, admitted: Admitted) -> Response<ResponseBody> {
        let located = match self.find(&admitted).await {
            Ok(located) => located,
            Err(refusal) => {
                let result = refusal.code().as_str();
                self.note_end(&admitted, result);
                return refusal.response();
            }
        };
        match located {
            Located::Inside(target) => self.relay(admitted, target).await,
            Located::Driver(driver) => {
                let end = self.call_driver(&admitted, &driver).await;
                self.note_end(&admitted, end.err().map_or("ok", ExecCode::as_str));
                match end {
                    Ok(()) => answer::exit_zero(),
                    Err(ExecCode::Busy) => answer::error_frame(ExecCode::Busy),
                    Err(code) => Refusal::from(code).response(),
                }
            }
        }
    }

    /// Looks at the target before its driver is asked anything; a process is started by who looks for himself.
    async fn find(&self, admitted: &Admitted) -> Result<Located, Refusal> {
        let claims = &admitted.claims;
        let session = &admitted.session;
        let row = records::bounded(self.deps.records.sandbox(session, claims.generation))
            .await
            .map_err(|error| unavailable(&error))?
            .ok_or(Refusal::from(ExecCode::SandboxTerminated))?;
        let target = TargetRef {
            session: session.clone(),
            generation: claims.generation,
            namespace: claims.ns.clone(),
            pod: claims.pod.clone(),
            pod_uid: claims.pod_uid.clone(),
            container: claims.container.clone(),
            legacy: row.legacy,
            driver_kid: row.driver_kid,
        };
        match &admitted.operation {
            Operation::Observe { .. }
            | Operation::ReadTranscript { .. }
            | Operation::Run { .. } => Ok(Located::Inside(target)),
            Operation::Turn { .. } | Operation::Stop { .. } => {
                match self.deps.targets.look(&target).await {
                    Look::Running {
                        address,
                        terminating: false,
                    } => Ok(Located::Driver(Dialable { target, address })),
                    Look::Running {
                        terminating: true, ..
                    }
                    | Look::Leaving
                    | Look::Gone => Err(ExecCode::SandboxTerminated.into()),
                    Look::NotYet | Look::Unknown => Err(ExecCode::ExecTransport.into()),
                }
            }
        }
    }

    fn note_end(&self, admitted: &Admitted, result: &'static str) {
        let op = admitted.claims.op.as_str();
        let labels = ExecLabels { op, result };
        self.deps.metrics.total.get_or_create(&labels).inc();
        let seconds = self
            .deps
            .metrics
            .seconds
            .get_or_create_owned(&OpLabel { op });
        seconds.observe(admitted.since.elapsed().as_secs_f64());
        info!(
            session = %admitted.session,
            generation = %admitted.claims.generation,
            op,
            result,
            "exec operation ended"
        );
        let attributes: [Attribute<'_>; 4] = [
            ("bex.session", &admitted.session),
            ("bex.generation", &admitted.claims.generation),
            ("bex.op", &op),
            ("bex.result", &result),
        ];
        admitted.span.end("exec", &attributes);
    }

    fn deadline(&self, admitted: &Admitted) -> Instant {
        let limits = &self.deps.limits;
        admitted.since
            + match admitted.operation {
                Operation::Observe { .. } | Operation::ReadTranscript { .. } => limits.read,
                Operation::Run { .. } => limits.run,
                Operation::Turn { .. } | Operation::Stop { .. } => limits.driver,
            }
    }
}

/// A target, for what is asked of it.
enum Located {
    /// A process is to be started in it, if it is there.
    Inside(TargetRef),
    /// It was there a moment ago, and its driver may be dialled.
    Driver(Dialable),
}

struct Dialable {
    target: TargetRef,
    address: SocketAddr,
}

fn unavailable(error: &records::RecordsError) -> Refusal {
    warn!(error = %Chain(error), "the store did not answer");
    Refusal::new(Code::Unavailable)
}
