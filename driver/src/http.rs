//! What the gateway asks: hello, stream, turn, stop. Every call is granted and every answer proved.

mod grants;
mod stream;

use std::convert::Infallible;
use std::sync::Arc;

use bex_proto::driver::{GRANT_HEADER, PROOF_HEADER, StopRequest, TurnRequest};
use bex_proto::ids::TurnNo;
use bex_proto::limits;
use bex_proto::ticket::{DriverGrant, DriverOp, turn_digest};
use bex_proto::trace::{TRACE_HEADER, TraceContext};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::timeout;
use tracing::{Span, debug, info_span, warn};

pub use grants::{GrantFault, Grants};

use crate::agent::Prompt;
use crate::bounds::BODY_TIMEOUT;
use crate::profile::Profile;
use crate::turns::{Begun, Refused, Source, Turns};

/// A body of this server.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Answers requests.
pub struct Service {
    profile: Arc<Profile>,
    turns: Arc<Turns>,
    grants: Grants,
}

/// An answer that is not the wanted one.
struct Refusal(StatusCode, &'static str);

impl Service {
    /// A service over a driver's turns.
    pub fn new(profile: Arc<Profile>, turns: Arc<Turns>, grants: Grants) -> Self {
        Self {
            profile,
            turns,
            grants,
        }
    }

    /// Answers one request.
    pub async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        match (method, path.as_str()) {
            (Method::GET, "/healthz") => text(StatusCode::OK, "ok"),
            (Method::GET, "/stream") if self.profile.legacy.is_some() => self.old_stream(),
            _ if self.profile.legacy.is_some() => {
                text(StatusCode::NOT_FOUND, "not in this driver's form")
            }
            (Method::GET, "/hello") => self.granted(request, DriverOp::Hello).await,
            (Method::GET, "/stream") => self.granted(request, DriverOp::Stream).await,
            (Method::POST, "/turn") => self.granted(request, DriverOp::Turn).await,
            (Method::POST, "/stop") => self.granted(request, DriverOp::Stop).await,
            (_, "/healthz" | "/hello" | "/stream" | "/turn" | "/stop") => {
                text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
            }
            _ => text(StatusCode::NOT_FOUND, "not found"),
        }
    }

    /// Checks the grant, does the work, proves the answer. The grant is spent once it is known to fit the request.
    async fn granted(&self, request: Request<Incoming>, op: DriverOp) -> Response<Body> {
        let token = request
            .headers()
            .get(GRANT_HEADER)
            .and_then(|value| value.to_str().ok());
        let grant = match self.grants.check(token, op) {
            Ok(grant) => grant,
            Err(fault) => return refused(fault),
        };
        let log = trace_of(&request);
        let work = match self.read(request, op).await {
            Ok(work) => work,
            Err(refusal) => return self.proved(&grant, refusal.into_response()),
        };
        if !work.fits(&grant) {
            return refused(GrantFault::OtherRequest);
        }
        if let Err(fault) = self.grants.spend(&grant) {
            return refused(fault);
        }
        // also a turn's whole work is logged with the trace that delivered it
        let response = log
            .in_scope(|| self.work(work))
            .unwrap_or_else(|refusal| refusal.into_response());
        self.proved(&grant, response)
    }

    async fn read(&self, request: Request<Incoming>, op: DriverOp) -> Result<Work, Refusal> {
        match op {
            DriverOp::Hello => Ok(Work::Hello),
            DriverOp::Stream => stream::query(request.uri().query().unwrap_or_default())
                .map(|(turn, from)| Work::Stream(turn, from))
                .ok_or(Refusal(
                    StatusCode::BAD_REQUEST,
                    "turn and from are numbers",
                )),
            DriverOp::Turn => read_json(request).await.map(Work::Turn),
            DriverOp::Stop => read_json(request)
                .await
                .map(|stop: StopRequest| Work::Stop(stop.turn)),
        }
    }

    fn work(&self, work: Work) -> Result<Response<Body>, Refusal> {
        match work {
            Work::Hello => Ok(json_answer(
                StatusCode::OK,
                &json!({"session": self.profile.session, "generation": self.profile.generation}),
            )),
            Work::Stream(turn, from) => match self.turns.source(turn) {
                Source::Spoken(tail) => Ok(event_stream(stream::of(tail, turn, from))),
                Source::Awaited => Ok(event_stream(stream::awaited(
                    Arc::clone(&self.turns),
                    turn,
                    from,
                ))),
                Source::Never => Err(Refusal(
                    StatusCode::NOT_FOUND,
                    "this generation will not speak that turn",
                )),
            },
            Work::Turn(request) => {
                let turn = request.turn;
                let begun = self.turns.begin(Prompt {
                    turn,
                    text: request.prompt,
                    priming: request.priming,
                });
                match begun {
                    Ok(Begun::Started | Begun::Before) => {
                        Ok(json_answer(StatusCode::ACCEPTED, &json!({"turn": turn})))
                    }
                    Err(Refused::Busy) => Err(Refusal(StatusCode::CONFLICT, "another turn runs")),
                    Err(Refused::Older) => {
                        Err(Refusal(StatusCode::CONFLICT, "a later turn was begun"))
                    }
                    Err(Refused::Failed) => {
                        Err(Refusal(StatusCode::CONFLICT, "takes no more turns"))
                    }
                }
            }
            Work::Stop(turn) if self.turns.stop(turn) => {
                Ok(json_answer(StatusCode::ACCEPTED, &json!({"turn": turn})))
            }
            Work::Stop(_) => Err(Refusal(StatusCode::NOT_FOUND, "no such turn")),
        }
    }

    fn old_stream(&self) -> Response<Body> {
        match self.turns.only() {
            Some(tail) => event_stream(stream::old(tail)),
            None => text(StatusCode::NOT_FOUND, "nothing was said"),
        }
    }

    fn proved(&self, grant: &DriverGrant, mut response: Response<Body>) -> Response<Body> {
        let profile = &self.profile;
        let proof = profile
            .key
            .proof(&grant.jti, &profile.session, profile.generation);
        let proof = proof.try_into().expect("a proof is hexadecimal");
        response.headers_mut().insert(PROOF_HEADER, proof);
        response
    }
}

/// A request that was read.
enum Work {
    Hello,
    Stream(TurnNo, u32),
    Turn(TurnRequest),
    Stop(TurnNo),
}

impl Work {
    /// Whether a grant is for exactly this.
    fn fits(&self, grant: &DriverGrant) -> bool {
        match self {
            Self::Hello => true,
            Self::Stream(turn, _) | Self::Stop(turn) => grant.trn == Some(*turn),
            Self::Turn(request) => {
                let digest = turn_digest(&request.prompt, request.priming.as_deref());
                grant.trn == Some(request.turn) && grant.body.as_deref() == Some(&digest)
            }
        }
    }
}

impl Refusal {
    fn into_response(self) -> Response<Body> {
        debug!(status = self.0.as_u16(), reason = self.1, "request refused");
        text(self.0, self.1)
    }
}

fn refused(fault: GrantFault) -> Response<Body> {
    warn!(reason = %fault, "grant refused");
    text(StatusCode::UNAUTHORIZED, "grant refused")
}

async fn read_json<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Refusal> {
    let body = Limited::new(request.into_body(), limits::DRIVER_TURN_BODY).collect();
    let body = timeout(BODY_TIMEOUT, body)
        .await
        .map_err(|_| Refusal(StatusCode::REQUEST_TIMEOUT, "the body did not arrive"))?
        .map_err(|_| {
            Refusal(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body is too large or broke",
            )
        })?;
    serde_json::from_slice(&body.to_bytes())
        .map_err(|_| Refusal(StatusCode::BAD_REQUEST, "not the body of this call"))
}

fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// What log lines of a request say of its trace.
fn trace_of(request: &Request<Incoming>) -> Span {
    let value = request.headers().get(TRACE_HEADER);
    value
        .and_then(|value| TraceContext::parse(value.to_str().ok()?))
        .map_or_else(
            Span::none,
            |context| info_span!("trace", trace_id = %context.trace),
        )
}

fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(whole(text));
    *response.status_mut() = status;
    response
}

fn json_answer(status: StatusCode, value: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(whole(value.to_string()));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(
        header::CACHE_CONTROL,
        header::HeaderValue::from_static("no-cache, no-transform"),
    );
    response
}
