//! Who may watch what: the checks in the contract's order, each with its own answer, the ticket used up last.
//!
//! Nothing here says or logs a ticket. Store trouble refuses: nothing fails open.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bex_proto::problem::Code;
use bex_proto::ticket::{
    ATTACH_HEADER, AttachAction, AttachClaims, KeyRing, RemoteClaims, TicketFault, keep_nonce,
};
use bex_proto::{Chain, WorkspaceId, limits};
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

/// What tickets of every kind say.
#[derive(Debug, Clone, Copy)]
pub struct Pass<'a> {
    /// Who reads.
    pub subject: &'a str,
    /// The session's workspace.
    pub workspace: &'a WorkspaceId,
    /// The session.
    pub session: &'a str,
    /// The audit row's word for what the ticket allows.
    pub action: &'static str,
    /// Issued and expires at, Unix seconds.
    pub life: (i64, i64),
    /// Single use.
    pub jti: &'a str,
}

/// A kind of ticket.
pub trait Claims {
    /// What this one says.
    fn pass(&self) -> Pass<'_>;
}

impl Claims for AttachClaims {
    fn pass(&self) -> Pass<'_> {
        Pass {
            subject: &self.sub,
            workspace: &self.ws,
            session: self.ses.as_str(),
            action: self.act.as_str(),
            life: (self.iat, self.exp),
            jti: &self.jti,
        }
    }
}

impl Claims for RemoteClaims {
    fn pass(&self) -> Pass<'_> {
        Pass {
            subject: &self.sub,
            workspace: &self.ws,
            session: self.ses.as_str(),
            action: AttachAction::Read.as_str(),
            life: (self.iat, self.exp),
            jti: &self.jti,
        }
    }
}

/// A stream that may begin once its ticket is used up.
#[derive(Debug)]
pub struct Admitted<C = AttachClaims> {
    /// What the ticket says.
    pub claims: C,
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
    let token = token(asked.headers)?;
    let claims = AttachClaims::verify(token, ring, asked.now.as_second()).map_err(refused)?;
    if claims.act != asked.action {
        return Err(Code::ActionMismatch);
    }
    if claims.ses.as_str() != asked.session {
        return Err(Code::SessionMismatch);
    }
    Ok(claims)
}

/// The same for a remote session, which is only read: 401, then 403 session.
///
/// # Errors
/// The refusal's code.
pub fn remote_ticket(ring: &KeyRing, asked: &Asked<'_>) -> Result<RemoteClaims, Code> {
    let token = token(asked.headers)?;
    let claims = RemoteClaims::verify(token, ring, asked.now.as_second()).map_err(refused)?;
    if claims.ses.as_str() != asked.session {
        return Err(Code::SessionMismatch);
    }
    Ok(claims)
}

fn token(headers: &HeaderMap) -> Result<&str, Code> {
    let token = headers
        .get(ATTACH_HEADER)
        .and_then(|value| value.to_str().ok());
    token.ok_or(Code::TicketInvalid)
}

fn refused(fault: TicketFault) -> Code {
    tracing::debug!(%fault, "ticket refused");
    Code::TicketInvalid
}

/// 403 revoked, then 429. The ticket is still good after either.
///
/// # Errors
/// The refusal's code.
pub async fn place<G: Gate, C: Claims>(
    gate: &G,
    streams: &Arc<Streams>,
    limiter: &Arc<Limiter>,
    claims: C,
) -> Result<Admitted<C>, Code> {
    let pass = claims.pass();
    let key = StreamKey {
        workspace: pass.workspace.clone(),
        subject: pass.subject.to_owned(),
        session: pass.session.to_owned(),
        issued_at: Timestamp::from_second(pass.life.0).map_err(|_| Code::TicketInvalid)?,
    };
    let registration = streams.register(key.clone());
    match in_time(gate.standing(&key)).await? {
        Standing::Good => {}
        // a session that is gone answers as one that is closed to the caller
        Standing::Revoked | Standing::SessionGone => return Err(Code::Revoked),
    }
    let permit = limiter.admit(pass.subject).ok_or(Code::TooManyStreams)?;
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
pub async fn redeem<G: Gate, C: Claims>(
    gate: &G,
    claims: &C,
    instance: &str,
    remote_address: &str,
    now: Timestamp,
) -> Result<G::Row, Code> {
    let pass = claims.pass();
    let keep = keep_nonce(pass.life.1, now.as_second());
    match in_time(gate.burn(pass.jti, keep)).await? {
        Burn::Burnt => {}
        Burn::Used => return Err(Code::TicketUsed),
    }
    let opened = StreamOpened {
        workspace: pass.workspace,
        session: pass.session,
        subject: pass.subject,
        action: pass.action,
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
