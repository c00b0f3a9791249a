//! The ring of signing keys: one signs, all are published.

use std::collections::BTreeMap;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Bytes of a seed and of a public key.
const KEY_BYTES: usize = 32;
/// Longest key id.
const KID_BYTES: usize = 64;
/// Marks an entry of which only the public half is left.
const RETIRED: &str = "public";

/// Ed25519 keys by id. The first signs; all are published, so that what they signed can be checked.
pub struct ProofRing {
    kid: String,
    pair: Ed25519KeyPair,
    public: PublicKeys,
}

impl std::fmt::Debug for ProofRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProofRing")
            .field("kids", &self.public.0.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Why a text is no ring. No key is echoed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofRingFault {
    /// Nothing in it.
    #[error("a key ring needs at least one kid:hex entry")]
    Empty,
    /// An entry of another form.
    #[error("key ring entry {0} is not kid:hex with a seed of 32 bytes, or kid:public:hex")]
    Entry(usize),
    /// The same kid twice.
    #[error("key ring entry {0} repeats a kid")]
    Repeated(usize),
    /// The first entry cannot sign.
    #[error("the first key ring entry has no seed")]
    CannotSign,
}

/// Keys that verify, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublicKeys(BTreeMap<String, [u8; KEY_BYTES]>);

/// Public keys as they are published (RFC 7517, RFC 8037).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Jwks {
    /// Each of them.
    pub keys: Vec<Jwk>,
}

/// One public key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Jwk {
    kty: String,
    crv: String,
    alg: String,
    r#use: String,
    kid: String,
    x: String,
}

impl ProofRing {
    /// Reads `kid:hex,kid:hex,…`: seeds of 32 bytes, the first signs. `kid:public:hex` keeps a retired key's public half.
    ///
    /// # Errors
    /// See [`ProofRingFault`].
    pub fn parse(text: &str) -> Result<Self, ProofRingFault> {
        let entries = text.split(',').map(str::trim).filter(|e| !e.is_empty());
        let mut signer = None;
        let mut public = PublicKeys::default();
        for (i, entry) in entries.enumerate() {
            let fault = || ProofRingFault::Entry(i);
            let (kid, key) = entry.split_once(':').ok_or_else(fault)?;
            let kid_ok = (1..=KID_BYTES).contains(&kid.len())
                && kid
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
            if !kid_ok {
                return Err(fault());
            }
            let (retired, key) = match key.split_once(':') {
                Some((RETIRED, key)) => (true, key),
                Some(_) => return Err(fault()),
                None => (false, key),
            };
            let bytes: [u8; KEY_BYTES] = hex::decode(key)
                .ok()
                .and_then(|bytes| bytes.try_into().ok())
                .ok_or_else(fault)?;
            let half = if retired {
                bytes
            } else {
                let pair = Ed25519KeyPair::from_seed_unchecked(&bytes).map_err(|_| fault())?;
                let half = pair.public_key().as_ref().try_into().map_err(|_| fault())?;
                if i == 0 {
                    signer = Some((kid.to_owned(), pair));
                }
                half
            };
            if i == 0 && retired {
                return Err(ProofRingFault::CannotSign);
            }
            if public.0.insert(kid.to_owned(), half).is_some() {
                return Err(ProofRingFault::Repeated(i));
            }
        }
        let (kid, pair) = signer.ok_or(ProofRingFault::Empty)?;
        Ok(Self { kid, pair, public })
    }

    /// What is published.
    pub fn public(&self) -> &PublicKeys {
        &self.public
    }

    pub(super) fn kid(&self) -> &str {
        &self.kid
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

impl PublicKeys {
    /// Whether a key of this id made this signature.
    pub(super) fn verifies(&self, kid: &str, message: &[u8], signature: &[u8]) -> Option<bool> {
        let key = UnparsedPublicKey::new(&ED25519, self.0.get(kid)?);
        Some(key.verify(message, signature).is_ok())
    }

    /// As published.
    pub fn to_jwks(&self) -> Jwks {
        let keys = self.0.iter().map(|(kid, key)| Jwk {
            kty: "OKP".to_owned(),
            crv: "Ed25519".to_owned(),
            alg: "EdDSA".to_owned(),
            r#use: "sig".to_owned(),
            kid: kid.clone(),
            x: URL_SAFE_NO_PAD.encode(key),
        });
        Jwks {
            keys: keys.collect(),
        }
    }

    /// Keys that were published; those of another sort are passed over.
    pub fn of_jwks(jwks: &Jwks) -> Self {
        let keys = jwks.keys.iter().filter(|key| key.crv == "Ed25519");
        let keys = keys.filter_map(|key| {
            let x = URL_SAFE_NO_PAD.decode(&key.x).ok()?;
            Some((key.kid.clone(), x.try_into().ok()?))
        });
        Self(keys.collect())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signs_and_all_are_published() {
        let (new, old) = ("11".repeat(32), "22".repeat(32));
        let ring = ProofRing::parse(&format!("n:{new}, o:{old}")).expect("a ring");
        let signature = ring.sign(b"words");
        let public = PublicKeys::of_jwks(&ring.public().to_jwks());
        assert_eq!(&public, ring.public());
        assert_eq!(public.verifies("n", b"words", &signature), Some(true));
        assert_eq!(public.verifies("n", b"wordz", &signature), Some(false));
        assert_eq!(public.verifies("o", b"words", &signature), Some(false));
        assert_eq!(public.verifies("x", b"words", &signature), None);
        assert!(!format!("{ring:?}").contains("1111"));
    }

    #[test]
    fn a_retired_key_keeps_its_public_half() {
        let old = ProofRing::parse(&format!("o:{}", "22".repeat(32))).expect("a ring");
        let signature = old.sign(b"words");
        let half = hex::encode(old.public().0["o"]);
        let ring = ProofRing::parse(&format!("n:{},o:public:{half}", "11".repeat(32)));
        let ring = ring.expect("a ring");
        assert_eq!(
            ring.public().verifies("o", b"words", &signature),
            Some(true)
        );
    }

    #[test]
    fn what_is_no_ring_is_refused_without_echo() {
        let seed = "11".repeat(32);
        for (text, fault) in [
            (String::new(), ProofRingFault::Empty),
            ("k".into(), ProofRingFault::Entry(0)),
            (format!("k:{}", "11".repeat(31)), ProofRingFault::Entry(0)),
            (
                format!("k:{seed},l:secret:{seed}"),
                ProofRingFault::Entry(1),
            ),
            (format!("k:{seed},k:{seed}"), ProofRingFault::Repeated(1)),
            (format!("k:public:{seed}"), ProofRingFault::CannotSign),
        ] {
            let refused = ProofRing::parse(&text).expect_err("no ring");
            assert_eq!(refused, fault);
            assert!(!refused.to_string().contains("1111"));
        }
    }
}
