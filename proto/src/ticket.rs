//! Tickets and grants: JWT HS256 with a required key id. One algorithm, so there is nothing to confuse.
//!
//! Three audiences, three separate rings: attach (browsers), exec (api to gateway), driver (gateway to driver).

use std::time::Duration;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::driver::DriverKey;
use crate::exec::OperationName;
use crate::ids::{Generation, RemoteSessionId, SessionId, TurnNo, WorkspaceId};
use crate::limits;

/// Issuer of every ticket.
pub const ISSUER: &str = "bex-api";
/// The api's own subject in exec tickets; revocations end what people may do, never the harvest.
pub const COMPLETER_SUBJECT: &str = "system:agent-session-completer";
/// Header of an attach ticket.
pub const ATTACH_HEADER: &str = "x-bex-agent-ticket";
const ATTACH_AUDIENCE: &str = "bex-attach";
const REMOTE_AUDIENCE: &str = "bex-remote";
const EXEC_AUDIENCE: &str = "bex-exec";
const DRIVER_AUDIENCE: &str = "bex-driver";
/// The key id of every grant: a driver has one key.
const GRANT_KID: &str = "driver";

mod ring;

pub use ring::{KeyRing, KeyRingFault};

crate::session::words! {
    /// What a viewer's ticket allows.
    AttachAction {
        /// GET.
        Read = "read",
        /// POST.
        Turn = "turn",
    }
}

/// Claims of an attach ticket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachClaims {
    /// Who reads.
    pub sub: String,
    /// The session.
    pub ses: SessionId,
    /// Its workspace.
    pub ws: WorkspaceId,
    /// What for.
    pub act: AttachAction,
    /// The turn, for `turn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trn: Option<TurnNo>,
    /// Never dial: only what is stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rpo: bool,
    /// Generation of the target; `gen`, `pod`, `podUid`, `ns` all or none.
    #[serde(default, rename = "gen", skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// Target pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Target pod's UID.
    #[serde(default, rename = "podUid", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Target namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns: Option<String>,
    /// Issued at, Unix seconds.
    pub iat: i64,
    /// Expires at, Unix seconds.
    pub exp: i64,
    /// Single use.
    pub jti: String,
}

/// Claims of a ticket to watch a remote session: signed with the attach ring, good for nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteClaims {
    /// Who reads.
    pub sub: String,
    /// The session.
    pub ses: RemoteSessionId,
    /// Its workspace.
    pub ws: WorkspaceId,
    /// Issued at, Unix seconds.
    pub iat: i64,
    /// Expires at, Unix seconds.
    pub exp: i64,
    /// Single use.
    pub jti: String,
}

/// Claims of an exec ticket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecClaims {
    /// [`COMPLETER_SUBJECT`] or a user.
    pub sub: String,
    /// The workspace.
    pub ws: WorkspaceId,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ses: Option<SessionId>,
    /// Generation of the target.
    #[serde(rename = "gen")]
    pub generation: Generation,
    /// Target pod.
    pub pod: String,
    /// Its UID.
    #[serde(rename = "podUid")]
    pub pod_uid: String,
    /// Its namespace.
    pub ns: String,
    /// Its container.
    pub container: String,
    /// The one operation allowed.
    pub op: OperationName,
    /// SHA-256 of the request body, lower-case hexadecimal.
    pub body: String,
    /// Issued at.
    pub iat: i64,
    /// Expires at.
    pub exp: i64,
    /// Single use; also the end mark's nonce.
    pub jti: String,
}

/// What a driver is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "each is the driver's route of that name")]
pub enum DriverOp {
    Hello,
    Stream,
    Turn,
    Stop,
}

/// Claims of a driver grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverGrant {
    /// What for.
    pub op: DriverOp,
    /// The turn, except for hello.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trn: Option<TurnNo>,
    /// [`turn_digest`] of prompt and priming, for turn; lower-case hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Issued at; a restarted driver refuses grants older than its start.
    pub iat: i64,
    /// Expires at.
    pub exp: i64,
    /// Answered in the proof; single use.
    pub jti: String,
}

/// Digest of a turn request for [`DriverGrant::body`]: the prompt's length in bytes, ⏎, prompt, priming (empty when absent).
/// The length keeps the border between the two from moving.
pub fn turn_digest(prompt: &str, priming: Option<&str>) -> String {
    crate::transcript::sha256_hex(
        format!("{}\n{prompt}{}", prompt.len(), priming.unwrap_or("")).as_bytes(),
    )
}

/// Why a ticket is not accepted. Nothing of the ticket is echoed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TicketFault {
    /// Not a JWT, another algorithm, missing claims, wrong issuer or audience, issued in the future.
    #[error("the ticket is malformed")]
    Malformed,
    /// No key of the ring verifies it.
    #[error("the ticket's key is not known here")]
    UnknownKey,
    /// The signature is wrong.
    #[error("the ticket's signature is wrong")]
    Signature,
    /// Too old.
    #[error("the ticket has expired")]
    Expired,
}

/// A fresh jti: 100 random bits, base32.
pub fn random_jti() -> String {
    crate::ids::random_id("t").split_off(2)
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    iss: String,
    aud: String,
    #[serde(flatten)]
    claims: T,
}

fn sign<T: Serialize>(kid: &str, key: &[u8], audience: &str, claims: T) -> String {
    let header = Header {
        kid: Some(kid.to_owned()),
        ..Header::new(Algorithm::HS256)
    };
    let envelope = Envelope {
        iss: ISSUER.into(),
        aud: audience.into(),
        claims,
    };
    let key = EncodingKey::from_secret(key).expect("ring keys have at least 32 bytes");
    jsonwebtoken::encode(&header, &envelope, &key)
        .expect("claims are plain data and HS256 signs with any key")
}

/// Claims with a life.
trait Timed {
    /// Issued at and expires at, Unix seconds.
    fn life(&self) -> (i64, i64);
}

macro_rules! timed {
    ($($claims:ident),+) => {
        $(impl Timed for $claims {
            fn life(&self) -> (i64, i64) {
                (self.iat, self.exp)
            }
        })+
    };
}
timed!(AttachClaims, RemoteClaims, ExecClaims, DriverGrant);

fn verify<'k, T: DeserializeOwned + Timed>(
    token: &str,
    key_of: impl Fn(&str) -> Option<&'k [u8]>,
    audience: &str,
    now: i64,
    skew: Duration,
) -> Result<T, TicketFault> {
    if token.len() > limits::TICKET_BYTES {
        return Err(TicketFault::Malformed);
    }
    let header = jsonwebtoken::decode_header(token).map_err(|_| TicketFault::Malformed)?;
    if header.alg != Algorithm::HS256 {
        return Err(TicketFault::Malformed);
    }
    let key = key_of(&header.kid.ok_or(TicketFault::Malformed)?).ok_or(TicketFault::UnknownKey)?;
    let mut validation = Validation::new(Algorithm::HS256);
    validation.set_issuer(&[ISSUER]);
    validation.set_audience(&[audience]);
    validation.set_required_spec_claims(&["iss", "aud", "exp"]);
    // time is checked below against the caller's clock, so that tests need no sleeping
    validation.validate_exp = false;
    let decoded = DecodingKey::from_secret(key)
        .and_then(|key| jsonwebtoken::decode::<Envelope<T>>(token, &key, &validation));
    let claims = decoded.map_err(|e| match e.kind() {
        jsonwebtoken::errors::ErrorKind::InvalidSignature => TicketFault::Signature,
        _ => TicketFault::Malformed,
    })?;
    let claims = claims.claims.claims;
    let (issued, expires) = claims.life();
    if issued > now.saturating_add_unsigned(skew.as_secs()) {
        return Err(TicketFault::Malformed);
    }
    if now.saturating_sub_unsigned(skew.as_secs()) > expires {
        return Err(TicketFault::Expired);
    }
    Ok(claims)
}

impl AttachClaims {
    /// To read a session, wherever its sandbox is: from `now` (Unix seconds) for [`limits::ATTACH_TICKET_TTL`].
    pub fn to_read(session: &SessionId, workspace: WorkspaceId, subject: &str, now: i64) -> Self {
        Self {
            sub: subject.to_owned(),
            ses: session.clone(),
            ws: workspace,
            act: AttachAction::Read,
            trn: None,
            rpo: false,
            generation: None,
            pod: None,
            pod_uid: None,
            ns: None,
            iat: now,
            exp: now.saturating_add_unsigned(limits::ATTACH_TICKET_TTL.as_secs()),
            jti: random_jti(),
        }
    }

    /// Signs with the ring's first key.
    pub fn sign(&self, ring: &KeyRing) -> String {
        let (kid, key) = ring.signing_key();
        sign(kid, key, ATTACH_AUDIENCE, self)
    }

    /// Verifies with any key of the ring. `now` in Unix seconds. A partial target and a replay-only target are malformed,
    /// and so is a `turn` ticket without its turn.
    pub fn verify(token: &str, ring: &KeyRing, now: i64) -> Result<Self, TicketFault> {
        let claims: Self = verify(
            token,
            |kid| ring.key(kid),
            ATTACH_AUDIENCE,
            now,
            limits::TICKET_SKEW,
        )?;
        let named = [
            claims.generation.is_some(),
            claims.pod.is_some(),
            claims.pod_uid.is_some(),
            claims.ns.is_some(),
        ];
        let all_or_none = named.iter().all(|n| *n) || named.iter().all(|n| !n);
        let turn_fits = claims.act == AttachAction::Read || claims.trn.is_some();
        if !all_or_none || (claims.rpo && named[0]) || !turn_fits {
            return Err(TicketFault::Malformed);
        }
        Ok(claims)
    }
}

impl RemoteClaims {
    /// To watch a session, from `now` (Unix seconds) for [`limits::ATTACH_TICKET_TTL`].
    pub fn to_read(
        session: &RemoteSessionId,
        workspace: WorkspaceId,
        subject: &str,
        now: i64,
    ) -> Self {
        Self {
            sub: subject.to_owned(),
            ses: session.clone(),
            ws: workspace,
            iat: now,
            exp: now.saturating_add_unsigned(limits::ATTACH_TICKET_TTL.as_secs()),
            jti: random_jti(),
        }
    }

    /// Signs with the ring's first key.
    pub fn sign(&self, ring: &KeyRing) -> String {
        let (kid, key) = ring.signing_key();
        sign(kid, key, REMOTE_AUDIENCE, self)
    }

    /// Verifies with any key of the ring. `now` in Unix seconds. An attach ticket is malformed here, as one of these is there.
    ///
    /// # Errors
    /// See [`TicketFault`].
    pub fn verify(token: &str, ring: &KeyRing, now: i64) -> Result<Self, TicketFault> {
        verify(
            token,
            |kid| ring.key(kid),
            REMOTE_AUDIENCE,
            now,
            limits::TICKET_SKEW,
        )
    }
}

impl ExecClaims {
    /// Signs with the ring's first key.
    pub fn sign(&self, ring: &KeyRing) -> String {
        let (kid, key) = ring.signing_key();
        sign(kid, key, EXEC_AUDIENCE, self)
    }

    /// Verifies with any key of the ring. `now` in Unix seconds.
    pub fn verify(token: &str, ring: &KeyRing, now: i64) -> Result<Self, TicketFault> {
        verify(
            token,
            |kid| ring.key(kid),
            EXEC_AUDIENCE,
            now,
            limits::TICKET_SKEW,
        )
    }
}

/// How long the nonce of a ticket that expires at `exp` is kept once it is used up, by the clock that reads `now`; both in Unix
/// seconds. Until then a process whose clock is up to [`limits::TICKET_SKEW`] behind this one may still accept the ticket, which
/// every clock accepts for that skew longer, and for the whole second in which that ends.
pub fn keep_nonce(exp: i64, now: i64) -> Duration {
    let left = u64::try_from(exp.saturating_sub(now)).unwrap_or(0);
    Duration::from_secs(left.saturating_add(1)).saturating_add(limits::TICKET_SKEW * 2)
}

impl DriverGrant {
    /// Signs with the driver's key.
    pub fn sign(&self, key: &DriverKey) -> String {
        sign(GRANT_KID, key.as_bytes(), DRIVER_AUDIENCE, self)
    }

    /// Verifies with the driver's key. `now` in Unix seconds.
    pub fn verify(token: &str, key: &DriverKey, now: i64) -> Result<Self, TicketFault> {
        verify(
            token,
            |kid| (kid == GRANT_KID).then(|| key.as_bytes()),
            DRIVER_AUDIENCE,
            now,
            limits::GRANT_SKEW,
        )
    }
}

#[cfg(test)]
mod tests;
