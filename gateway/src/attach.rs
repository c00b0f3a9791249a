//! Viewers: who may read, what they are shown, and when they are sent away.
//!
//! The bytes of one stream pass these files in order: [`admission`] → [`plan`] → `viewer` (which reads [`replay`] and the
//! [`hub`](crate::hub), deciding by [`pull`]) → [`body`]. It promises that a request is refused in the contract's order, that an
//! admitted viewer sees each part once and in order, and that no viewer can slow another, a driver or the store's writers.

pub mod admission;
mod answer;
pub mod body;
pub mod cors;
pub mod cursor;
mod events;
mod forwarded;
pub mod limiter;
mod phases;
pub mod plan;
pub mod post;
pub mod pull;
pub mod replay;
mod revocation;
mod rooms;
mod viewer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bex_proto::problem::Code;
use bex_proto::ticket::{AttachAction, AttachClaims, KeyRing};
use bex_proto::ui_stream::{Compact, Guard};
use bex_proto::{Chain, limits};
use bex_store::audit::StreamAuditId;
use bex_store::listen::{Listener, Source as NoticeSource};
use bex_store::{ConfigError, Db};
use bex_telemetry::Span;
use futures::stream;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use jiff::Timestamp;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Network;
use crate::hub::{Hub, HubDeps, TeeMode};
use crate::metrics::{AttachMetrics, Counted, Level, RefusedLabels};
use crate::sandbox::Targets;
use crate::serve::ResponseBody;
use admission::{Admitted, Asked, action_of};
use answer::{bare, refusal, session_of, stream_headers};
use cors::Cors;
use cursor::{Density, Wish};
use limiter::Limiter;
use phases::{Asking, Phases};
use plan::{Plan, Planned};
use replay::{Pages, ReplayBudget};
use revocation::Streams;
use rooms::Rooms;
use viewer::{Ends, Viewer};

/// How long draining streams may take to be told where to resume.
pub const GOODBYE: Duration = Duration::from_secs(5);

/// How long the audit rows of the others may take to be closed then.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The audit row's word for a viewer that could not be told where to resume.
const CUT: &str = "cut";
/// The audit row's word for an answer that is no stream.
const NOTHING_NEW: &str = "nothing_new";

/// What the attach listener works with.
pub struct AttachDeps {
    /// The store.
    pub db: Db,
    /// Where notices come from.
    pub notices: NoticeSource,
    /// Where sandboxes are.
    pub targets: Arc<dyn Targets>,
    /// From which drivers' keys are derived.
    pub driver_keys: Arc<KeyRing>,
    /// Who may sign tickets; `None`: the listener is not configured.
    pub attach_keys: Option<KeyRing>,
    /// Listed origins.
    pub cors_origins: Vec<String>,
    /// Peers whose `X-Forwarded-For` is believed, for audit rows.
    pub trusted_proxies: Vec<Network>,
    /// Whether live parts are stored from here.
    pub tee: TeeMode,
    /// This process, in audit rows.
    pub instance: String,
    /// How long a lost driver is dialled again: [`limits::SOURCE_RETRY`], but in tests.
    pub source_retry: Duration,
    /// Counts.
    pub metrics: AttachMetrics,
}

/// The attach listener.
pub struct Attach {
    db: Db,
    hub: Arc<Hub>,
    keys: Option<KeyRing>,
    cors: Cors,
    trusted_proxies: Vec<Network>,
    instance: String,
    limiter: Arc<Limiter>,
    budget: ReplayBudget,
    rooms: Arc<Rooms>,
    streams: Arc<Streams>,
    metrics: AttachMetrics,
    viewers: TaskTracker,
    drain: CancellationToken,
    /// Revocations are not heard of any more.
    lost: CancellationToken,
    /// Ends viewers that could not be told.
    cut: CancellationToken,
}

impl std::fmt::Debug for Attach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attach")
            .field("streams", &self.streams.count())
            .finish_non_exhaustive()
    }
}

/// A request that is not served, with what may be said about it.
#[derive(Debug)]
enum Refused {
    Code(Code),
    /// The viewer has everything.
    NothingNew,
}

impl From<Code> for Refused {
    fn from(code: Code) -> Self {
        Self::Code(code)
    }
}

impl Attach {
    /// A listener without streams. Starts to hear notices.
    ///
    /// # Errors
    /// When the notices' database configuration is unusable.
    pub fn new(deps: AttachDeps) -> Result<Arc<Self>, ConfigError> {
        let hub = Hub::new(HubDeps {
            store: Arc::new(deps.db.clone()),
            targets: deps.targets,
            driver_keys: deps.driver_keys,
            tee: deps.tee,
            retry: deps.source_retry,
            metrics: deps.metrics.hub.clone(),
        });
        let (rooms, streams) = (Arc::new(Rooms::default()), Arc::new(Streams::default()));
        let drain = CancellationToken::new();
        let listener = Listener::start(deps.notices)?;
        let notices = stream::unfold(listener, async |mut listener| {
            Some((listener.next().await?, listener))
        });
        let lost = CancellationToken::new();
        let watching = revocation::watch(
            deps.db.clone(),
            Box::pin(notices),
            Arc::clone(&rooms),
            Arc::clone(&streams),
            drain.clone(),
        );
        revocation::spawn(watching, drain.clone(), lost.clone());
        Ok(Arc::new(Self {
            db: deps.db,
            hub,
            keys: deps.attach_keys,
            cors: Cors::new(deps.cors_origins),
            trusted_proxies: deps.trusted_proxies,
            instance: deps.instance,
            limiter: Limiter::new(limits::STREAMS_PER_PROCESS, limits::STREAMS_PER_SUBJECT),
            budget: ReplayBudget::default(),
            rooms,
            streams,
            metrics: deps.metrics,
            viewers: TaskTracker::new(),
            drain,
            lost,
            cut: CancellationToken::new(),
        }))
    }

    /// Answers one request. Generic in the body, so that tests need no socket.
    pub async fn handle<B>(
        self: Arc<Self>,
        request: Request<B>,
        peer: SocketAddr,
    ) -> Response<ResponseBody>
    where
        B: Body + Unpin + Send,
        B::Data: Send,
        B::Error: Send,
    {
        let cors = self.cors.answer(request.headers());
        let mut response = match self.serve(request, peer).await {
            Ok(response) => response,
            Err(Refused::Code(code)) => {
                let label = RefusedLabels {
                    code: code.as_str(),
                };
                self.metrics.refused.get_or_create(&label).inc();
                refusal(code)
            }
            Err(Refused::NothingNew) => bare(StatusCode::NO_CONTENT),
        };
        response.headers_mut().extend(cors);
        response
    }

    /// Tells every viewer where to resume, then has every tee store what it holds.
    pub async fn drain(&self) {
        self.drain.cancel();
        self.viewers.close();
        let goodbye = async {
            if timeout(GOODBYE, self.viewers.wait()).await.is_err() {
                let late = self.viewers.len();
                tracing::warn!(
                    late,
                    "viewers that take nothing were not told where to resume"
                );
                self.cut.cancel();
                let _ = timeout(LAST_WORDS, self.viewers.wait()).await;
            }
        };
        tokio::join!(goodbye, self.hub.drain());
    }

    /// Waits for what ended with its connection, after a drain, to end in the audit too.
    pub async fn closed(&self) {
        if timeout(LAST_WORDS, self.viewers.wait()).await.is_err() {
            tracing::warn!("audit rows of the last streams stay open");
        }
    }

    /// Waits until this process may not go on: revocations would reach nobody any more. New streams are refused then.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// What it holds now, for metrics.
    pub fn levels(&self) -> [Level; 4] {
        let level = |name, help, value| Level { name, help, value };
        [
            level("sources", "Live turns being read", self.hub.live()),
            level(
                "stream_places",
                "Places taken by streams, of those there are",
                self.limiter.count(),
            ),
            level(
                "streams_watched",
                "Streams that hear of revocations",
                self.streams.count(),
            ),
            level(
                "replay_free_bytes",
                "Replay memory that nobody uses",
                self.budget.free_bytes(),
            ),
        ]
    }

    async fn serve<B>(
        self: &Arc<Self>,
        request: Request<B>,
        peer: SocketAddr,
    ) -> Result<Response<ResponseBody>, Refused>
    where
        B: Body + Unpin + Send,
        B::Data: Send,
        B::Error: Send,
    {
        let Some(session) = session_of(request.uri().path()) else {
            return Err(Code::NotFound.into());
        };
        let keys = self.keys.as_ref().ok_or(Code::NotConfigured)?;
        if self.drain.is_cancelled() {
            return Err(Code::Draining.into());
        }
        if request.method() == Method::OPTIONS {
            return Ok(bare(StatusCode::NO_CONTENT));
        }
        let action = action_of(request.method()).ok_or(Code::MethodNotAllowed)?;
        let asked = Asked {
            action,
            session,
            headers: request.headers(),
            now: Timestamp::now(),
        };
        let claims = admission::ticket(keys, &asked)?;
        let asking = Asking::begin(&claims.ses, bex_telemetry::asked_by(request.headers()));
        let wish = match action {
            AttachAction::Read => {
                Wish::read(request.headers(), request.uri()).map_err(|_| Code::InvalidCursor)?
            }
            AttachAction::Turn => Wish::default(),
        };
        let remote = forwarded::address(request.headers(), peer, &self.trusted_proxies);
        let admitted = admission::place(&self.db, &self.streams, &self.limiter, claims).await?;
        // what may still be refused for itself is refused before the ticket is used up
        if action == AttachAction::Turn {
            post::drain(request.into_body()).await?;
        }
        let planned = Plan::make(&self.db, &admitted.claims, wish).await?;
        // in a task of its own, which a client that leaves now does not end: what begins in the audit also ends there
        let begun = Arc::clone(self).begin(planned, wish, admitted, remote.to_string(), asking);
        self.viewers.spawn(begun).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a stream did not begin");
            Err(Code::Unavailable.into())
        })
    }

    /// Uses the ticket up and begins the stream.
    async fn begin(
        self: Arc<Self>,
        planned: Planned,
        wish: Wish,
        admitted: Admitted,
        remote: String,
        asking: Asking,
    ) -> Result<Response<ResponseBody>, Refused> {
        let audit = admission::redeem(
            &self.db,
            &admitted.claims,
            &self.instance,
            &remote,
            Timestamp::now(),
        )
        .await?;
        match planned {
            Planned::Show(plan) => {
                let phases = asking.admitted(&admitted.claims.ses);
                Ok(self.open(plan, wish, admitted, audit, phases))
            }
            Planned::Nothing => {
                self.metrics.stream_ended(NOTHING_NEW);
                close_audit(&self.db, audit, NOTHING_NEW).await;
                Err(Refused::NothingNew)
            }
        }
    }

    fn open(
        self: &Arc<Self>,
        plan: Plan,
        wish: Wish,
        admitted: Admitted,
        audit: StreamAuditId,
        phases: Phases,
    ) -> Response<ResponseBody> {
        let Admitted {
            claims,
            registration,
            permit,
        } = admitted;
        let ends = Ends {
            revoked: registration.revoked.clone(),
            drain: self.drain.clone(),
        };
        let (out, body) = body::stream((
            registration,
            permit,
            Counted::new(self.metrics.streams.clone()),
        ));
        let viewer = Viewer {
            phases,
            ..self.viewer(&plan, wish, claims, out)
        };
        let (db, cut, metrics) = (self.db.clone(), self.cut.clone(), self.metrics.clone());
        self.viewers.spawn(async move {
            let word = tokio::select! {
                word = viewer.run(plan, ends, audit) => word,
                () = cut.cancelled() => {
                    close_audit(&db, audit, CUT).await;
                    CUT
                }
            };
            metrics.stream_ended(word);
        });
        let mut response = Response::new(body.map_err(Into::into).boxed_unsync());
        response.headers_mut().extend(stream_headers());
        response
    }

    fn viewer(&self, plan: &Plan, wish: Wish, claims: AttachClaims, out: body::Out) -> Viewer {
        let phases = Phases::of(Span::asked(&claims.ses, None));
        Viewer {
            db: self.db.clone(),
            hub: Arc::clone(&self.hub),
            pages: Pages::new(self.db.clone(), claims.ses.clone(), self.budget.clone()),
            seat: self.rooms.enter(&claims.ses),
            claims,
            out,
            guard: Guard::for_profile(wish.profile),
            compact: (wish.density == Density::Compact).then(Compact::default),
            outputs: Vec::new(),
            newest: plan.newest,
            scope: plan.scope,
            silence: None,
            opened: viewer::Opened::default(),
            begun_at: Instant::now(),
            phases,
        }
    }
}

/// Closes the audit row of a stream that was sent nothing, or nothing that is known any more.
async fn close_audit(db: &Db, audit: StreamAuditId, word: &str) {
    if let Err(error) = db.close_stream_audit(audit, word, 0, 0).await {
        tracing::warn!(error = %Chain(&error), "audit row of a stream stays open");
    }
}

#[cfg(test)]
mod tests;
