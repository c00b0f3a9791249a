//! The key of one sandbox life, and the proof that a peer has it.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::ids::{Generation, SessionId};

/// `K = HKDF-SHA256(ring key, session ⏎ generation)`: the one secret a driver and its gateway share.
#[derive(Clone)]
pub struct DriverKey([u8; 32]);

impl std::fmt::Debug for DriverKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DriverKey([redacted])")
    }
}

impl DriverKey {
    /// Derives the key of one sandbox life from a ring key.
    pub fn derive(ring_key: &[u8], session: &SessionId, generation: Generation) -> Self {
        let mut key = [0u8; 32];
        hkdf::Hkdf::<Sha256>::new(Some(b"bex-driver-key"), ring_key)
            .expand(format!("{session}\n{generation}").as_bytes(), &mut key)
            .expect("32 bytes is a valid HKDF-SHA256 length");
        Self(key)
    }

    /// Reads the hexadecimal form that a driver is given at its creation.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut key = [0u8; 32];
        hex::decode_to_slice(text.trim(), &mut key).ok()?;
        Some(Self(key))
    }

    /// The hexadecimal form.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }

    /// The raw key, for signing grants.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// What a driver answers to the grant `jti`: HMAC(K, "bex-proof" ⏎ jti ⏎ session ⏎ generation), hexadecimal.
    pub fn proof(&self, jti: &str, session: &SessionId, generation: Generation) -> String {
        hex::encode(self.mac(jti, session, generation).finalize().into_bytes())
    }

    /// Checks a proof in constant time.
    pub fn verify_proof(
        &self,
        proof: &str,
        jti: &str,
        session: &SessionId,
        generation: Generation,
    ) -> bool {
        hex::decode(proof).is_ok_and(|tag| {
            self.mac(jti, session, generation)
                .verify_slice(&tag)
                .is_ok()
        })
    }

    fn mac(&self, jti: &str, session: &SessionId, generation: Generation) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(format!("bex-proof\n{jti}\n{session}\n{generation}").as_bytes());
        mac
    }
}

/// `K = HKDF-SHA256(ring key, session)`: keys the tokens that stand for secrets, so that one secret has one token in all of a session's lives.
/// It changes with the ring.
#[derive(Clone)]
pub struct TokenSeed([u8; 32]);

impl std::fmt::Debug for TokenSeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenSeed([redacted])")
    }
}

impl TokenSeed {
    /// Derives the seed of one session from a ring key.
    pub fn derive(ring_key: &[u8], session: &SessionId) -> Self {
        let mut key = [0u8; 32];
        hkdf::Hkdf::<Sha256>::new(Some(b"bex-token-key"), ring_key)
            .expand(session.as_str().as_bytes(), &mut key)
            .expect("32 bytes is a valid HKDF-SHA256 length");
        Self(key)
    }

    /// Reads the hexadecimal form that a driver is given at its creation.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut key = [0u8; 32];
        hex::decode_to_slice(text.trim(), &mut key).ok()?;
        Some(Self(key))
    }

    /// The hexadecimal form.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }

    /// The raw key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_bound_to_jti_session_and_generation() {
        let (a, b) = (SessionId::random(), SessionId::random());
        let key = DriverKey::derive(b"ring", &a, Generation(1));
        let proof = key.proof("j", &a, Generation(1));
        assert!(key.verify_proof(&proof, "j", &a, Generation(1)));
        assert!(!key.verify_proof(&proof, "k", &a, Generation(1)));
        assert!(!key.verify_proof(&proof, "j", &b, Generation(1)));
        assert!(!key.verify_proof(&proof, "j", &a, Generation(2)));
        assert!(!DriverKey::derive(b"ring", &a, Generation(2)).verify_proof(
            &proof,
            "j",
            &a,
            Generation(1)
        ));
        assert_eq!(
            DriverKey::from_hex(&key.to_hex()).map(|k| k.to_hex()),
            Some(key.to_hex())
        );
    }
}
