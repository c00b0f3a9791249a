//! Keeps secrets out of requests: an environment value is named by reference, and a reference that looks like the secret
//! itself is refused before anything of it is stored or logged.

use bex_proto::limits;

/// How the tokens of common issuers begin.
const PREFIXES: &[&str] = &[
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_",
    "pk_live_",
    "rk_live_",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "eyJ",
    "npm_",
    "pypi-",
    "hf_",
    "dop_v1_",
    "shpat_",
    "-----BEGIN",
    "Bearer ",
    "Basic ",
];
/// A run of letters and digits this long is no name that a person chose.
const RANDOM_RUN: usize = 24;

/// Whether a text can be a reference: a name of letters, digits and `._-/`.
pub fn is_reference(text: &str) -> bool {
    (1..=limits::SECRET_REF_BYTES).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b))
}

/// Whether a text looks like a secret rather than the name of one.
pub fn looks_like_secret(text: &str) -> bool {
    PREFIXES.iter().any(|prefix| text.starts_with(prefix))
        || text.split(['.', '_', '-', '/']).any(is_random)
}

/// Long, with digits and letters in several turns, as base64 and hexadecimal have them.
fn is_random(run: &str) -> bool {
    let bytes = run.as_bytes();
    let changes = bytes
        .windows(2)
        .filter(|w| w[0].is_ascii_digit() != w[1].is_ascii_digit())
        .count();
    bytes.len() >= RANDOM_RUN && changes >= 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_pass_and_secrets_do_not() {
        for name in [
            "github-token",
            "GITHUB_TOKEN",
            "team-7/anthropic-api-key",
            "prod.eu-west-1/database-password-2026",
            "skaffold-key",
            "averyveryverylongbutpronounceablesecretname",
        ] {
            assert!(is_reference(name) && !looks_like_secret(name), "{name}");
        }
        for secret in [
            "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
            "sk-ant-api03-abc",
            "AKIAIOSFODNN7EXAMPLE",
            "eyJhbGciOiJIUzI1NiJ9.e30.abc",
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
            "-----BEGIN PRIVATE KEY-----",
        ] {
            assert!(looks_like_secret(secret), "{secret}");
        }
        for odd in ["", "a b", "p@ssw0rd!", "a\nb", &"x".repeat(254)] {
            assert!(!is_reference(odd), "{odd}");
        }
    }
}
