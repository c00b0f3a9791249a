//! One request: refused with a status, or answered with a stream that then runs in a task of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use bex_proto::Chain;
use bex_proto::problem::Code;
use bex_proto::ticket::{AttachAction, AttachClaims};
use bex_proto::ui_stream::{Compact, Guard};
use bex_store::Db;
use bex_store::audit::StreamAuditId;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use jiff::Timestamp;
use tokio::time::Instant;

use super::admission::{self, Admitted, Asked, action_of};
use super::answer::{bare, refusal, session_of, stream_headers};
use super::cursor::{Density, Wish};
use super::phases::{Asking, Phases};
use super::plan::{Plan, Planned};
use super::replay::Pages;
use super::viewer::{self, Ends, Viewer};
use super::{Attach, body, forwarded, post, remote};
use crate::metrics::{Counted, RefusedLabels};
use crate::serve::ResponseBody;

/// The audit row's word for a viewer that could not be told where to resume.
pub(super) const CUT: &str = "cut";
/// The audit row's word for an answer that is no stream.
pub(super) const NOTHING_NEW: &str = "nothing_new";

impl Attach {
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
        let methods = match session_of(request.uri().path()) {
            Some(session) if remote::is_remote(session) => "GET, OPTIONS",
            _ => "GET, POST, OPTIONS",
        };
        let mut response = match self.serve(request, peer).await {
            Ok(response) => response,
            Err(code) => {
                let label = RefusedLabels {
                    code: code.as_str(),
                };
                self.metrics.refused.get_or_create(&label).inc();
                refusal(code, methods)
            }
        };
        response.headers_mut().extend(cors);
        response
    }

    async fn serve<B>(
        self: &Arc<Self>,
        request: Request<B>,
        peer: SocketAddr,
    ) -> Result<Response<ResponseBody>, Code>
    where
        B: Body + Unpin + Send,
        B::Data: Send,
        B::Error: Send,
    {
        let Some(session) = session_of(request.uri().path()) else {
            return Err(Code::NotFound);
        };
        let keys = self.keys.as_ref().ok_or(Code::NotConfigured)?;
        if self.drain.is_cancelled() {
            return Err(Code::Draining);
        }
        if request.method() == Method::OPTIONS {
            return Ok(bare(StatusCode::NO_CONTENT));
        }
        if remote::is_remote(session) {
            return self.serve_remote(keys, session, &request, peer).await;
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
            AttachAction::Turn => Wish::of_turn(request.uri()),
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
            Err(Code::Unavailable)
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
    ) -> Result<Response<ResponseBody>, Code> {
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
                Ok(bare(StatusCode::NO_CONTENT))
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
        let viewer = self.viewer(&plan, wish, claims, out, phases);
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

    pub(super) fn viewer(
        &self,
        plan: &Plan,
        wish: Wish,
        claims: AttachClaims,
        out: body::Out,
        phases: Phases,
    ) -> Viewer {
        Viewer {
            db: self.db.clone(),
            hub: Arc::clone(&self.hub),
            pages: Pages::new(self.db.clone(), claims.ses.clone(), self.budget.clone()),
            seat: self.rooms.enter(claims.ses.as_str()),
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
pub(super) async fn close_audit(db: &Db, audit: StreamAuditId, word: &str) {
    if let Err(error) = db.close_stream_audit(audit, word, 0, 0).await {
        tracing::warn!(error = %Chain(&error), "audit row of a stream stays open");
    }
}
