//! OIDC access tokens: JWTs of one issuer, for our audience, proved by a key of the issuer's published set.
//!
//! What is believed of a token: nothing before its signature is proved by a key that was fetched for it by id, under an
//! algorithm that the key itself is for. `none` and every shared-secret algorithm are no algorithms here, and keys that a token
//! brings along or points to are not looked at. Keys are kept by [`KeyCache`]; a token whose key is known needs nobody.

mod claims;
mod endpoint;
mod key_cache;
mod key_set;

use std::collections::BTreeSet;

use bex_proto::limits;
use bex_proto::problem::Code;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Header, Validation, decode, decode_header};

use super::Caller;
use crate::metrics::OidcMetrics;

pub use claims::ClaimNames;
pub(crate) use endpoint::Tls;
pub use endpoint::{Endpoint, EndpointFault, FetchFault};
pub use key_cache::{JwksSource, KeyCache, Refresher, key_cache};
pub use key_set::{KeySet, KeySetFault};

use claims::Claims;
use key_cache::Lookup;

/// The longest token: what fits into a header beside everything else.
const TOKEN_BYTES: usize = 16 * 1024;
/// Kinds of JWT that may be an access token; the issuer's other kinds (logout tokens, proofs) say so in their header.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// What a token must say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcRules {
    /// The issuer, compared exactly.
    pub issuer: String,
    /// A token must be for one of these.
    pub audiences: Vec<String>,
    /// Where rights stand in it.
    pub claims: ClaimNames,
    /// Subjects that no token may speak as: those of service tokens.
    pub reserved: BTreeSet<String>,
}

/// Checks access tokens.
#[derive(Debug)]
pub struct Oidc {
    rules: OidcRules,
    validation: Validation,
    keys: KeyCache,
    metrics: OidcMetrics,
}

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it is no signed JWT of a kind that is an access token, with the claims of one")]
    Malformed,
    #[error("its algorithm is not one of a public key, or not its key's")]
    Algorithm,
    #[error("the issuer has no such key")]
    UnknownKey,
    #[error("the key did not sign it")]
    Signature,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYet,
    #[error("it is of another issuer")]
    Issuer,
    #[error("it is for another audience")]
    Audience,
    #[error("its subject is missing, too long or reserved")]
    Subject,
    #[error("it gives no role or no workspace")]
    NoRights,
    #[error("the issuer's keys can not be read")]
    KeysUnavailable,
}

impl Refusal {
    /// Word for metrics.
    fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Algorithm => "algorithm",
            Self::UnknownKey => "unknown_key",
            Self::Signature => "signature",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::Subject => "subject",
            Self::NoRights => "no_rights",
            Self::KeysUnavailable => "keys_unavailable",
        }
    }

    /// A proved token without rights is somebody who may nothing; every other refusal says nothing about who asks.
    fn code(self) -> Code {
        match self {
            Self::Malformed
            | Self::Algorithm
            | Self::UnknownKey
            | Self::Signature
            | Self::Expired
            | Self::NotYet
            | Self::Issuer
            | Self::Audience
            | Self::Subject => Code::Unauthenticated,
            Self::NoRights => Code::Forbidden,
            Self::KeysUnavailable => Code::Unavailable,
        }
    }
}

impl From<jsonwebtoken::errors::Error> for Refusal {
    fn from(error: jsonwebtoken::errors::Error) -> Self {
        match error.kind() {
            ErrorKind::InvalidSignature => Self::Signature,
            ErrorKind::InvalidAlgorithm | ErrorKind::InvalidAlgorithmName => Self::Algorithm,
            ErrorKind::ExpiredSignature => Self::Expired,
            ErrorKind::ImmatureSignature => Self::NotYet,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::InvalidAudience => Self::Audience,
            // the rest are ways not to be a JWT with the claims that are asked for
            _ => Self::Malformed,
        }
    }
}

impl Oidc {
    /// Checks tokens against these rules, by the keys of this cache.
    pub fn new(rules: OidcRules, keys: KeyCache, metrics: OidcMetrics) -> Self {
        // its algorithms are set per key
        let mut validation = Validation::default();
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&rules.issuer]);
        validation.set_audience(&rules.audiences);
        validation.validate_nbf = true;
        validation.leeway = limits::TICKET_SKEW.as_secs();
        Self {
            rules,
            validation,
            keys,
            metrics,
        }
    }

    /// The caller behind a token. `None`: it is not even shaped like an access token.
    ///
    /// # Errors
    /// `unauthenticated`, `forbidden` of a proved token without rights, `unavailable` while its key cannot be looked up.
    pub(super) async fn caller(&self, token: &[u8]) -> Result<Option<Caller>, Code> {
        if token.iter().filter(|byte| **byte == b'.').count() != 2 {
            return Ok(None);
        }
        let judged = self.judge(token).await;
        let word = judged.as_ref().map_or_else(|r| r.as_str(), |_| "accepted");
        self.metrics.judged(word);
        judged.map(Some).map_err(|refusal| {
            tracing::debug!(reason = %refusal, "an access token was refused");
            refusal.code()
        })
    }

    async fn judge(&self, token: &[u8]) -> Result<Caller, Refusal> {
        if token.len() > TOKEN_BYTES {
            return Err(Refusal::Malformed);
        }
        let header = decode_header(token)?;
        let kid = key_id(&header)?;
        if !key_set::ALGORITHMS.contains(&header.alg) {
            return Err(Refusal::Algorithm);
        }
        let key = match self.keys.find(kid, header.alg).await {
            Lookup::Key(key) => key,
            Lookup::OtherAlgorithm => return Err(Refusal::Algorithm),
            Lookup::Unknown => return Err(Refusal::UnknownKey),
            Lookup::Unavailable => return Err(Refusal::KeysUnavailable),
        };
        let validation = Validation {
            algorithms: key.algorithms.clone(),
            ..self.validation.clone()
        };
        let claims: Claims = decode(token, &key.key, &validation)?.claims;
        claims.caller(&self.rules)
    }
}

fn key_id(header: &Header) -> Result<&str, Refusal> {
    let kind = header.typ.as_deref().unwrap_or(TYPES[0]);
    if !TYPES.iter().any(|known| kind.eq_ignore_ascii_case(known)) {
        return Err(Refusal::Malformed);
    }
    header.kid.as_deref().ok_or(Refusal::Malformed)
}

#[cfg(test)]
mod tests;
