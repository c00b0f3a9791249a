//! Who may ask for what: the checks before anything runs, in their order.
//!
//! Configured · path · method · ticket · a free seat · body within its bound · body is the ticket's · operation is the ticket's ·
//! not revoked · nonce. The nonce is burnt last, so that no refusal costs a ticket.

use std::sync::Arc;

use bex_proto::exec::{Operation, OperationName, TICKET_HEADER};
use bex_proto::problem::Code;
use bex_proto::ticket::{COMPLETER_SUBJECT, ExecClaims, KeyRing, keep_nonce};
use bex_proto::transcript::sha256_hex;
use bex_proto::{SessionId, limits};
use bex_store::tickets::Burn;
use bex_telemetry::Span;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::answer::Refusal;
use super::{EXEC_BODY_TIMEOUT, Exec, records, unavailable};
use crate::metrics::Counted;

/// The one route.
const PATH: &str = "/v1/exec";

/// A request that may go on.
pub(super) struct Admitted {
    pub(super) claims: ExecClaims,
    pub(super) session: SessionId,
    pub(super) operation: Operation,
    pub(super) seat: Seat,
    /// When it came.
    pub(super) since: Instant,
    /// Of the session's trace, asked for by the api's span.
    pub(super) span: Span,
}

/// Room for one operation; held until its process and its body are gone.
#[derive(Clone)]
pub(super) struct Seat {
    _shared: Arc<Held>,
}

struct Held {
    _all: OwnedSemaphorePermit,
    _run: Option<OwnedSemaphorePermit>,
    _active: Counted,
}

impl Exec {
    pub(super) async fn admit(&self, request: Request<Incoming>) -> Result<Admitted, Refusal> {
        let since = Instant::now();
        let asked_by = bex_telemetry::asked_by(request.headers());
        let ring = self
            .deps
            .exec_keys
            .as_ref()
            .ok_or(Refusal::new(Code::NotConfigured))?;
        if request.uri().path() != PATH {
            return Err(Refusal::new(Code::NotFound));
        }
        if request.method() != Method::POST {
            return Err(Refusal::new(Code::MethodNotAllowed));
        }
        let claims = ticket(request.headers(), ring)?;
        // a ticket without a session is for another kind of target, which this process does not have
        let session = claims.ses.clone().ok_or(Refusal::because(
            Code::TicketInvalid,
            "The ticket names no session.",
        ))?;
        let span = Span::asked(&session, asked_by);
        let seat = self.seat(claims.op)?;
        let body = read_body(request).await?;
        if sha256_hex(&body) != claims.body {
            return Err(Refusal::because(
                Code::ActionMismatch,
                "The body is not the one the ticket was made for.",
            ));
        }
        let operation = parse(&body)?;
        if operation.name() != claims.op {
            return Err(Refusal::because(
                Code::ActionMismatch,
                "The operation is not the one the ticket was made for.",
            ));
        }
        self.check_revocations(&claims, &session).await?;
        self.burn(&claims).await?;
        Ok(Admitted {
            claims,
            session,
            operation,
            seat,
            since,
            span,
        })
    }

    fn seat(&self, op: OperationName) -> Result<Seat, Refusal> {
        let full = |_| Refusal::new(Code::Overloaded);
        let run = match op {
            OperationName::Run => Some(
                Arc::clone(&self.run_seats)
                    .try_acquire_owned()
                    .map_err(full)?,
            ),
            _ => None,
        };
        let all = Arc::clone(&self.seats).try_acquire_owned().map_err(full)?;
        let held = Held {
            _all: all,
            _run: run,
            _active: Counted::new(self.deps.metrics.active.clone()),
        };
        Ok(Seat {
            _shared: Arc::new(held),
        })
    }

    async fn check_revocations(
        &self,
        claims: &ExecClaims,
        session: &SessionId,
    ) -> Result<(), Refusal> {
        if claims.sub == COMPLETER_SUBJECT {
            return Ok(());
        }
        let revoked = records::bounded(self.deps.records.is_revoked(claims, session))
            .await
            .map_err(|error| unavailable(&error))?;
        if revoked {
            Err(Refusal::new(Code::Revoked))
        } else {
            Ok(())
        }
    }

    async fn burn(&self, claims: &ExecClaims) -> Result<(), Refusal> {
        let keep = keep_nonce(claims.exp, unix_now());
        let burn = records::bounded(self.deps.records.burn(&claims.jti, keep))
            .await
            .map_err(|error| unavailable(&error))?;
        match burn {
            Burn::Burnt => Ok(()),
            Burn::Used => Err(Refusal::new(Code::TicketUsed)),
        }
    }
}

fn ticket(headers: &HeaderMap, ring: &KeyRing) -> Result<ExecClaims, Refusal> {
    let mut values = headers.get_all(TICKET_HEADER).iter();
    let token = match (values.next(), values.next()) {
        (Some(one), None) => one
            .to_str()
            .map_err(|_| Refusal::new(Code::TicketInvalid))?,
        _ => return Err(Refusal::new(Code::TicketInvalid)),
    };
    ExecClaims::verify(token, ring, unix_now()).map_err(|_| Refusal::new(Code::TicketInvalid))
}

async fn read_body(request: Request<Incoming>) -> Result<Bytes, Refusal> {
    let declared = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limits::EXEC_REQUEST_BYTES as u64) {
        return Err(Refusal::new(Code::BodyTooLarge));
    }
    let body = Limited::new(request.into_body(), limits::EXEC_REQUEST_BYTES).collect();
    match tokio::time::timeout(EXEC_BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::new(Code::BodyTooLarge)),
        Ok(Err(_)) => Err(Refusal::because(
            Code::InvalidRequest,
            "The body did not come to its end.",
        )),
        Err(_) => Err(Refusal::because(
            Code::InvalidRequest,
            "The body came too slowly.",
        )),
    }
}

fn parse(body: &[u8]) -> Result<Operation, Refusal> {
    serde_json::from_slice(body).map_err(|error| {
        let code = if !error.is_data() {
            Code::InvalidJson
        } else if error.to_string().starts_with("unknown field") {
            Code::UnknownField
        } else {
            Code::InvalidRequest
        };
        Refusal::new(code)
    })
}

fn unix_now() -> i64 {
    jiff::Timestamp::now().as_second()
}
