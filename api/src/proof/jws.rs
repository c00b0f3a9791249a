//! Compact JWS with Ed25519 (RFC 7515, RFC 8037). The type in the header keeps one kind of signed text from standing for another.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ring::{ProofRing, PublicKeys};

/// Why a signed text is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JwsFault {
    /// Not three parts, or a part that is not what it should be.
    #[error("it is no signed text of this kind")]
    Malformed,
    /// No key of that id.
    #[error("its key is not known")]
    UnknownKey,
    /// The key did not sign this.
    #[error("its signature does not fit")]
    Signature,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    alg: String,
    kid: String,
    typ: String,
}

const ALGORITHM: &str = "EdDSA";

/// Signs a payload of this type.
pub(super) fn sign(ring: &ProofRing, typ: &str, payload: &impl Serialize) -> String {
    let header = Header {
        alg: ALGORITHM.to_owned(),
        kid: ring.kid().to_owned(),
        typ: typ.to_owned(),
    };
    let part = |json: Vec<u8>| URL_SAFE_NO_PAD.encode(json);
    let header = serde_json::to_vec(&header).expect("a header is plain data");
    let payload = serde_json::to_vec(payload).expect("a payload is plain data");
    let message = format!("{}.{}", part(header), part(payload));
    let signature = URL_SAFE_NO_PAD.encode(ring.sign(message.as_bytes()));
    format!("{message}.{signature}")
}

/// What was signed, if one of these keys signed it.
pub(super) fn verify<T: DeserializeOwned>(
    text: &str,
    typ: &str,
    keys: &PublicKeys,
) -> Result<T, JwsFault> {
    let (message, signature) = text.rsplit_once('.').ok_or(JwsFault::Malformed)?;
    let (header, payload) = message.split_once('.').ok_or(JwsFault::Malformed)?;
    // the decoder refuses padding and spare bits: one signed text has one form
    let bytes = |part: &str| {
        URL_SAFE_NO_PAD
            .decode(part)
            .map_err(|_| JwsFault::Malformed)
    };
    let header: Header =
        serde_json::from_slice(&bytes(header)?).map_err(|_| JwsFault::Malformed)?;
    if header.alg != ALGORITHM || header.typ != typ {
        return Err(JwsFault::Malformed);
    }
    match keys.verifies(&header.kid, message.as_bytes(), &bytes(signature)?) {
        None => Err(JwsFault::UnknownKey),
        Some(false) => Err(JwsFault::Signature),
        Some(true) => serde_json::from_slice(&bytes(payload)?).map_err(|_| JwsFault::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_other_bit_is_another_text() {
        let ring = ProofRing::parse(&format!("k:{}", "11".repeat(32))).expect("a ring");
        let text = sign(&ring, "a", &[1, 2]);
        assert_eq!(verify::<Vec<u8>>(&text, "a", ring.public()), Ok(vec![1, 2]));
        assert_eq!(
            verify::<Vec<u8>>(&text, "b", ring.public()),
            Err(JwsFault::Malformed)
        );
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let Ok(other) = String::from_utf8(bytes) else {
                    continue;
                };
                assert!(
                    verify::<Vec<u8>>(&other, "a", ring.public()).is_err(),
                    "byte {at}, bit {bit}"
                );
            }
        }
    }
}
