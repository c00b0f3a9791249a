//! What stands in the place of a secret: `[redacted:github-token:7f3a]`.
//!
//! The four digits are of a keyed hash of the secret, so that one secret is seen to be the same everywhere under one key, and
//! nothing is told to those without it.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::rules::TOKEN_START;

/// The key of tokens: one per organisation, or one per session.
#[derive(Clone)]
pub struct TokenKey(Hmac<Sha256>);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey([redacted])")
    }
}

impl TokenKey {
    /// A key for these bytes of any length; whoever has them can tell which guess a token stands for.
    pub fn new(bytes: &[u8]) -> Self {
        let mut key = keyed(b"bex-redact token key 1");
        key.update(bytes);
        Self(keyed(&key.finalize().into_bytes()))
    }

    /// A key that nobody has.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(keyed(&bytes)))
    }

    /// The token for a secret.
    pub(crate) fn token(&self, id: &str, secret: &[u8]) -> Vec<u8> {
        let mut mac = self.0.clone();
        mac.update(secret);
        let tag = mac.finalize().into_bytes();
        let mut digits = [0; 4];
        hex::encode_to_slice(&tag[..2], &mut digits).expect("two bytes are four digits");
        [TOKEN_START.as_bytes(), id.as_bytes(), b":", &digits, b"]"].concat()
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of every length")
}

/// The length of the token at the start of a text.
pub(crate) fn length_at(text: &[u8]) -> Option<usize> {
    let body = text.strip_prefix(TOKEN_START.as_bytes())?;
    let end = body.iter().take(64).position(|b| *b == b']')?;
    let (id, tag) = match body[..end].iter().position(|b| *b == b':') {
        Some(at) => (&body[..at], Some(&body[at + 1..end])),
        None => (&body[..end], None),
    };
    let named = !id.is_empty()
        && id
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-');
    let tagged = tag.is_none_or(|tag| tag.len() == 4 && tag.iter().all(u8::is_ascii_hexdigit));
    (named && tagged).then_some(TOKEN_START.len() + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_stable_under_one_key_and_tell_nothing_under_another() {
        let (a, b) = (TokenKey::new(b"org a"), TokenKey::new(b"org b"));
        let token = a.token("jwt", b"secret");
        assert_eq!(token, TokenKey::new(b"org a").token("jwt", b"secret"));
        assert_ne!(token, b.token("jwt", b"secret"));
        assert_ne!(token, a.token("jwt", b"other"));
        assert_eq!(length_at(&token), Some(token.len()));
        assert_eq!(length_at(b"[redacted:unresolved] x"), Some(21));
        for text in [
            "[redacted:]",
            "[redacted:Jwt:12ab]",
            "[redacted:jwt:12abc]",
            "[redacted:jwt",
        ] {
            assert_eq!(length_at(text.as_bytes()), None, "{text}");
        }
        assert_eq!(format!("{a:?}"), "TokenKey([redacted])");
    }
}
