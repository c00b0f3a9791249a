//! The issuer of access tokens: everything, or nothing.

use super::{Faults, ServeArgs};
use crate::auth::{ClaimNames, Endpoint};
use crate::config::OidcConfig;

pub(super) fn is_asked_for(args: &ServeArgs) -> bool {
    [&args.oidc_issuer, &args.oidc_audience, &args.oidc_jwks_url]
        .iter()
        .any(|value| value.is_some())
}

pub(super) fn oidc(faults: &mut Faults, args: &ServeArgs) -> Option<OidcConfig> {
    if !is_asked_for(args) {
        return None;
    }
    let issuer = faults
        .required("BEX_OIDC_ISSUER", &args.oidc_issuer)
        .cloned();
    let audiences = faults
        .required("BEX_OIDC_AUDIENCE", &args.oidc_audience)
        .map(|list| {
            let words = list.split(',').map(str::trim);
            words
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
    if audiences.as_ref().is_some_and(Vec::is_empty) {
        faults.add("BEX_OIDC_AUDIENCE", "names nothing");
    }
    let jwks = faults
        .required("BEX_OIDC_JWKS_URL", &args.oidc_jwks_url)
        .map(|url| Endpoint::parse(url, args.oidc_ca.as_deref()));
    let jwks = jwks.and_then(|read| faults.keep("BEX_OIDC_JWKS_URL", read));
    Some(OidcConfig {
        issuer: issuer?,
        audiences: audiences?,
        jwks: jwks?,
        claims: ClaimNames {
            workspaces: args.oidc_workspaces_claim.clone(),
            role: args.oidc_role_claim.clone(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(issuer: &str, audience: &str, url: &str) -> (Option<OidcConfig>, Vec<String>) {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let args = ServeArgs {
            oidc_issuer: given(issuer),
            oidc_audience: given(audience),
            oidc_jwks_url: given(url),
            ..ServeArgs::default()
        };
        let mut faults = Faults::default();
        let config = oidc(&mut faults, &args);
        (config, faults.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn an_issuer_is_configured_wholly_or_not_at_all() {
        let (config, faults) = judged("", "", "");
        assert!(config.is_none() && faults.is_empty());
        let url = "http://127.0.0.1:9/keys";
        let (config, faults) = judged("https://issuer.example", "bex, other", url);
        assert_eq!(config.expect("it is good").audiences, ["bex", "other"]);
        assert!(faults.is_empty());
        for (given, fault) in [
            (("", "bex", url), "BEX_OIDC_ISSUER: is not set"),
            (("i", "", url), "BEX_OIDC_AUDIENCE: is not set"),
            (("i", ", ", url), "BEX_OIDC_AUDIENCE: names nothing"),
            (("i", "bex", ""), "BEX_OIDC_JWKS_URL: is not set"),
            (
                ("i", "bex", "http://issuer.example/keys"),
                "BEX_OIDC_JWKS_URL: must be https; http is for loopback addresses only",
            ),
        ] {
            let (_, faults) = judged(given.0, given.1, given.2);
            assert_eq!(faults, [fault], "{given:?}");
        }
    }
}
