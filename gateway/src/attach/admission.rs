//! Who may watch what: the checks in the contract's order, each with its own answer, the ticket used up last.
//!
//! Nothing here says or logs a ticket. Store trouble refuses: nothing fails open.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bex_proto::problem::Code;
use bex_proto::ticket::{ATTACH_HEADER, AttachAction, AttachClaims, KeyRing, keep_nonce};
use bex_proto::{Chain, limits};
use bex_store::audit::{StreamAuditId, StreamOpened};
use bex_store::revocations::{Standing, StreamKey};
use bex_store::tickets::Burn;
use bex_store::{Db, StoreError};
use http::{HeaderMap, Method};
use jiff::Timestamp;
use tokio::time::timeout;

use super::limiter::{Limiter, Permit};
use super::revocation::{Registration, Streams};

/// What admission asks of the store, small enough to be scripted.
#[async_trait]
pub trait Gate: Send + Sync {
    /// Names an audit row.
    type Row: Send;
    /// Whether a stream with this ticket may begin.
    async fn standing(&self, key: &StreamKey) -> Result<Standing, StoreError>;
    /// Uses the ticket up.
    async fn burn(&self, jti: &str, keep: Duration) -> Result<Burn, StoreError>;
    /// Records that the stream begins.
    async fn open_audit(&self, stream: &StreamOpened<'_>) -> Result<Self::Row, StoreError>;
}

#[async_trait]
impl Gate for Db {
    type Row = StreamAuditId;

    async fn standing(&self, key: &StreamKey) -> Result<Standing, StoreError> {
        Db::standing(self, key).await
    }

    async fn burn(&self, jti: &str, keep: Duration) -> Result<Burn, StoreError> {
        self.burn_nonce(jti, keep).await
    }

    async fn open_audit(&self, stream: &StreamOpened<'_>) -> Result<StreamAuditId, StoreError> {
        self.open_stream_audit(stream).await
    }
}

/// The part of a request that admission judges.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// GET or POST.
    pub action: AttachAction,
    /// The path's id, as it was sent.
    pub session: &'a str,
    /// With the ticket in it.
    pub headers: &'a HeaderMap,
    /// When.
    pub now: Timestamp,
}

/// A stream that may begin once its ticket is used up.
#[derive(Debug)]
pub struct Admitted {
    /// What the ticket says.
    pub claims: AttachClaims,
    /// Hears of revocations.
    pub registration: Registration,
    /// Its place among the streams.
    pub permit: Permit,
}

/// Which action a method is. `None`: not served here.
pub fn action_of(method: &Method) -> Option<AttachAction> {
    match *method {
        Method::GET => Some(AttachAction::Read),
        Method::POST => Some(AttachAction::Turn),
        _ => None,
    }
}

/// The ticket itself: 401, then 403 action, then 403 session.
///
/// # Errors
/// The refusal's code.
pub fn ticket(ring: &KeyRing, asked: &Asked<'_>) -> Result<AttachClaims, Code> {
    let token = asked
        .headers
        .get(ATTACH_HEADER)
        .and_then(|value| value.to_str().ok());
    let token = token.ok_or(Code::TicketInvalid)?;
    let claims = AttachClaims::verify(token, ring, asked.now.as_second()).map_err(|fault| {
        tracing::debug!(%fault, "ticket refused");
        Code::TicketInvalid
    })?;
    if claims.act != asked.action {
        return Err(Code::ActionMismatch);
    }
    if claims.ses.as_str() != asked.session {
        return Err(Code::SessionMismatch);
    }
    Ok(claims)
}

/// 403 revoked, then 429. The ticket is still good after either.
///
/// # Errors
/// The refusal's code.
pub async fn place<G: Gate>(
    gate: &G,
    streams: &Arc<Streams>,
    limiter: &Arc<Limiter>,
    claims: AttachClaims,
) -> Result<Admitted, Code> {
    let issued_at = Timestamp::from_second(claims.iat).map_err(|_| Code::TicketInvalid)?;
    let key = StreamKey {
        workspace: claims.ws.clone(),
        subject: claims.sub.clone(),
        session: claims.ses.clone(),
        issued_at,
    };
    let registration = streams.register(key.clone());
    match in_time(gate.standing(&key)).await? {
        Standing::Good => {}
        // a session that is gone answers as one that is closed to the caller
        Standing::Revoked | Standing::SessionGone => return Err(Code::Revoked),
    }
    let permit = limiter.admit(&claims.sub).ok_or(Code::TooManyStreams)?;
    Ok(Admitted {
        claims,
        registration,
        permit,
    })
}

/// 401 used: the last refusal. Then the audit row.
///
/// # Errors
/// The refusal's code.
pub async fn redeem<G: Gate>(
    gate: &G,
    claims: &AttachClaims,
    instance: &str,
    remote_address: &str,
    now: Timestamp,
) -> Result<G::Row, Code> {
    let keep = keep_nonce(claims.exp, now.as_second());
    match in_time(gate.burn(&claims.jti, keep)).await? {
        Burn::Burnt => {}
        Burn::Used => return Err(Code::TicketUsed),
    }
    let opened = StreamOpened {
        workspace: &claims.ws,
        session: &claims.ses,
        subject: &claims.sub,
        action: claims.act.as_str(),
        instance,
        remote_address,
    };
    in_time(gate.open_audit(&opened)).await
}

/// Store trouble while checking refuses, and soon.
pub async fn in_time<T>(question: impl Future<Output = Result<T, StoreError>>) -> Result<T, Code> {
    match timeout(limits::ADMISSION_TIMEOUT, question).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            tracing::warn!(error = %Chain(&error), "admission could not ask the store");
            Err(Code::Unavailable)
        }
        Err(_) => {
            tracing::warn!("admission's question to the store took too long");
            Err(Code::Unavailable)
        }
    }
}

#[cfg(test)]
mod tests;
