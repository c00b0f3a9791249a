//! Who calls. Either kind of bearer token yields the same three things: subject, workspaces, role.

mod oidc;
mod service_tokens;

use std::collections::BTreeSet;

use bex_proto::WorkspaceId;
use bex_proto::problem::Code;
use serde::Deserialize;

pub(crate) use oidc::Tls;
pub use oidc::{
    ClaimNames, Endpoint, EndpointFault, FetchFault, JwksSource, KeyCache, KeySet, KeySetFault,
    Oidc, OidcRules, Refresher, key_cache,
};
pub use service_tokens::{ServiceTokens, TokensFault};

/// What a caller may do; each role may do what the ones before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads and attaches.
    Viewer,
    /// Creates, steers, stops, cancels, archives.
    Operator,
    /// Deletes, revokes.
    Admin,
}

impl Role {
    fn from_word(word: &str) -> Option<Self> {
        match word {
            "viewer" => Some(Self::Viewer),
            "operator" => Some(Self::Operator),
            "admin" => Some(Self::Admin),
            _ => None,
        }
    }
}

/// The workspaces a caller acts for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workspaces {
    /// Every one.
    All,
    /// These.
    Some(BTreeSet<WorkspaceId>),
}

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Who; goes into tickets and audit.
    pub subject: String,
    /// For whom.
    pub workspaces: Workspaces,
    /// How much.
    pub role: Role,
}

impl Caller {
    /// Whether the caller acts for this workspace.
    pub fn acts_for(&self, workspace: &WorkspaceId) -> bool {
        match &self.workspaces {
            Workspaces::All => true,
            Workspaces::Some(own) => own.contains(workspace),
        }
    }

    /// Refuses a lesser role. Asked before anything is looked up, so that the refusal says nothing about what exists.
    ///
    /// # Errors
    /// [`Code::Forbidden`].
    pub fn need(&self, role: Role) -> Result<(), Code> {
        if self.role >= role {
            Ok(())
        } else {
            Err(Code::Forbidden)
        }
    }
}

/// One way to check a bearer token.
#[derive(Debug)]
pub enum Verifier {
    /// Tokens from the configuration.
    ServiceTokens(ServiceTokens),
    /// Access tokens of an issuer.
    Oidc(Box<Oidc>),
}

/// Checks bearer tokens: the first verifier that knows a token decides.
#[derive(Debug)]
pub struct Authenticator {
    verifiers: Vec<Verifier>,
}

impl Authenticator {
    /// Asks these, in order.
    pub fn new(verifiers: Vec<Verifier>) -> Self {
        Self { verifiers }
    }

    /// The caller behind an `Authorization` header's value.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`], whatever is wrong with it; [`Code::Forbidden`] of an access token that gives no rights;
    /// [`Code::Unavailable`] while its key can not be looked up.
    pub async fn authenticate(&self, header: Option<&[u8]>) -> Result<Caller, Code> {
        let token = header.and_then(bearer).ok_or(Code::Unauthenticated)?;
        for verifier in &self.verifiers {
            let known = match verifier {
                Verifier::ServiceTokens(tokens) => tokens.find(token).cloned(),
                Verifier::Oidc(oidc) => oidc.caller(token).await?,
            };
            if let Some(caller) = known {
                return Ok(caller);
            }
        }
        Err(Code::Unauthenticated)
    }
}

pub(crate) fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(b"bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authenticator() -> Authenticator {
        let digest = bex_proto::transcript::sha256_hex(b"open sesame");
        let text = format!(
            r#"[{{"sha256":"{digest}","subject":"svc:a","workspaces":["demo"],"role":"operator"}}]"#
        );
        let tokens = ServiceTokens::parse(&text).expect("a tokens file");
        Authenticator::new(vec![Verifier::ServiceTokens(tokens)])
    }

    #[tokio::test]
    async fn only_the_whole_token_under_its_scheme_is_known() {
        let auth = authenticator();
        for good in [
            "Bearer open sesame",
            "bearer open sesame",
            "BEARER  open sesame ",
        ] {
            assert_eq!(
                auth.authenticate(Some(good.as_bytes()))
                    .await
                    .map(|c| c.subject),
                Ok("svc:a".to_owned()),
                "{good}"
            );
        }
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "Basic open sesame",
            "open sesame",
            "Bearer open sesam",
        ] {
            assert_eq!(
                auth.authenticate(Some(bad.as_bytes())).await,
                Err(Code::Unauthenticated),
                "{bad}"
            );
        }
        assert_eq!(auth.authenticate(None).await, Err(Code::Unauthenticated));
    }

    #[tokio::test]
    async fn a_role_includes_the_lesser_ones_and_a_workspace_no_other() {
        let caller = authenticator()
            .authenticate(Some(b"Bearer open sesame"))
            .await
            .expect("known");
        assert_eq!(
            [Role::Viewer, Role::Operator, Role::Admin].map(|r| caller.need(r).is_ok()),
            [true, true, false]
        );
        let workspace = |text: &str| text.parse::<WorkspaceId>().expect("an id");
        assert!(caller.acts_for(&workspace("demo")) && !caller.acts_for(&workspace("demo2")));
    }
}
