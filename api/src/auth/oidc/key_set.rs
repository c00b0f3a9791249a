//! A published key set (RFC 7517), reduced to what may prove a token.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// Keys of one set. An issuer that rotates has two or three.
const KEYS: usize = 64;

/// The algorithms of public keys, and nothing else.
pub(super) const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
const RSA: &[Algorithm] = ALGORITHMS.split_at(6).0;

/// One key, with the algorithms under which it may prove anything.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) kid: String,
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) key: DecodingKey,
}

/// The usable keys of a set: at least one.
#[derive(Debug, Clone)]
pub struct KeySet {
    pub(super) keys: Vec<Key>,
}

/// Why a set is not taken over.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetFault {
    /// Not a JSON object with a list of keys.
    #[error("it is no key set")]
    Json,
    /// More than [`KEYS`].
    #[error("it has more than {KEYS} keys")]
    TooMany,
    /// Taking it over would refuse everybody, which a set that is half written does not mean.
    #[error("it has no key with an id that can prove a token")]
    NoneUsable,
}

impl KeySet {
    /// Reads a set. Keys that are not for proving tokens, of unknown kinds or without an id are left out.
    ///
    /// # Errors
    /// See [`KeySetFault`].
    pub fn parse(bytes: &[u8]) -> Result<Self, KeySetFault> {
        #[derive(Deserialize)]
        struct Published {
            keys: Vec<Value>,
        }
        let set: Published = serde_json::from_slice(bytes).map_err(|_| KeySetFault::Json)?;
        if set.keys.len() > KEYS {
            return Err(KeySetFault::TooMany);
        }
        let keys: Vec<_> = set.keys.into_iter().filter_map(usable).collect();
        if keys.is_empty() {
            Err(KeySetFault::NoneUsable)
        } else {
            Ok(Self { keys })
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Never: see [`KeySetFault::NoneUsable`].
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

fn usable(published: Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(published).ok()?;
    let common = &jwk.common;
    let signs = matches!(common.public_key_use, None | Some(PublicKeyUse::Signature));
    let verifies = common
        .key_operations
        .as_ref()
        .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
    let kid = common.key_id.clone().filter(|_| signs && verifies)?;
    let mut algorithms = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => RSA.to_vec(),
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => vec![Algorithm::ES256],
            EllipticCurve::P384 => vec![Algorithm::ES384],
            _ => vec![],
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            vec![Algorithm::EdDSA]
        }
        // a secret is no key of a public set, whoever published it
        _ => vec![],
    };
    if let Some(only) = common.key_algorithm {
        algorithms
            .retain(|algorithm| Algorithm::try_from(only).is_ok_and(|only| only == *algorithm));
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    (!algorithms.is_empty()).then_some(Key {
        kid,
        algorithms,
        key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(keys: Value) -> Result<Vec<(String, Vec<Algorithm>)>, KeySetFault> {
        let set = KeySet::parse(json!({"keys": keys}).to_string().as_bytes())?;
        Ok(set
            .keys
            .into_iter()
            .map(|k| (k.kid, k.algorithms))
            .collect())
    }

    #[test]
    fn a_key_is_only_for_what_it_says_it_is_for() {
        let rsa = |kid: &str, more: Value| {
            let mut key = json!({"kty": "RSA", "kid": kid, "n": "AQAB", "e": "AQAB"});
            let more = more.as_object().expect("an object").clone();
            key.as_object_mut().expect("an object").extend(more);
            key
        };
        let set = json!([
            rsa("any", json!({})),
            rsa("one", json!({"alg": "PS256", "use": "sig", "key_ops": ["verify"]})),
            {"kty": "EC", "crv": "P-256", "kid": "ec", "x": "AQAB", "y": "AQAB"},
            {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": "AQAB"},
            // and none of these
            rsa("encrypts", json!({"use": "enc"})),
            rsa("signs", json!({"key_ops": ["sign"]})),
            rsa("secret algorithm", json!({"alg": "HS256"})),
            rsa("unknown algorithm", json!({"alg": "XY1"})),
            {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
            {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
            {"kty": "EC", "crv": "P-521", "kid": "curve", "x": "AQAB", "y": "AQAB"},
            {"kty": "EC", "crv": "P-256", "alg": "ES384", "kid": "other curve", "x": "AQAB", "y": "AQAB"},
            {"kty": "new", "kid": "new"},
            "text",
        ]);
        let expected = [
            ("any".to_owned(), RSA.to_vec()),
            ("one".to_owned(), vec![Algorithm::PS256]),
            ("ec".to_owned(), vec![Algorithm::ES256]),
            ("ed".to_owned(), vec![Algorithm::EdDSA]),
        ];
        assert_eq!(found(set), Ok(expected.to_vec()));
    }

    #[test]
    fn a_set_that_proves_nothing_is_not_taken_over() {
        assert_eq!(found(json!([])), Err(KeySetFault::NoneUsable));
        assert_eq!(found(json!({})), Err(KeySetFault::Json));
        assert!(matches!(KeySet::parse(b"<html>"), Err(KeySetFault::Json)));
        let many = vec![json!({"kty": "oct"}); KEYS + 1];
        assert_eq!(found(json!(many)), Err(KeySetFault::TooMany));
    }
}
