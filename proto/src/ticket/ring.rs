//! Rings of signing keys, and how they are written in a configuration.

use std::collections::BTreeMap;

/// Keys by id: the first signs, all verify.
#[derive(Clone)]
pub struct KeyRing {
    signer: String,
    keys: BTreeMap<String, Vec<u8>>,
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyRing")
            .field("kids", &self.keys.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Why a text is not a key ring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingFault {
    /// Nothing in it.
    #[error("a key ring needs at least one kid:hex entry")]
    Empty,
    /// An entry without a colon, an odd kid, bad hexadecimal, or a key under 32 bytes.
    #[error("key ring entry {0} is not kid:hex with a key of at least 32 bytes")]
    Entry(usize),
    /// The same kid twice.
    #[error("key ring entry {0} repeats a kid")]
    Repeated(usize),
}

impl KeyRing {
    /// Reads `kid:hex,kid:hex,…`; the first entry signs. The text is never echoed in an error.
    pub fn parse(text: &str) -> Result<Self, KeyRingFault> {
        let mut ring = Self {
            signer: String::new(),
            keys: BTreeMap::new(),
        };
        for (i, entry) in text
            .split(',')
            .map(str::trim)
            .filter(|e| !e.is_empty())
            .enumerate()
        {
            let (kid, key) = entry.split_once(':').ok_or(KeyRingFault::Entry(i))?;
            let key = hex::decode(key).map_err(|_| KeyRingFault::Entry(i))?;
            let kid_ok = (1..=64).contains(&kid.len())
                && kid
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
            if !kid_ok || key.len() < 32 {
                return Err(KeyRingFault::Entry(i));
            }
            if ring.signer.is_empty() {
                ring.signer = kid.to_owned();
            }
            if ring.keys.insert(kid.to_owned(), key).is_some() {
                return Err(KeyRingFault::Repeated(i));
            }
        }
        if ring.keys.is_empty() {
            Err(KeyRingFault::Empty)
        } else {
            Ok(ring)
        }
    }

    /// The key that signs, with its id.
    pub fn signing_key(&self) -> (&str, &[u8]) {
        (&self.signer, &self.keys[&self.signer])
    }

    /// The key of an id, if it is still in the ring.
    pub fn key(&self, kid: &str) -> Option<&[u8]> {
        self.keys.get(kid).map(Vec::as_slice)
    }

    /// The ids in the ring.
    pub fn kids(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// Whether a key of this ring is also in another, under whatever id: then whoever signs for one audience could sign for
    /// the other's.
    pub fn shares_a_key_with(&self, other: &Self) -> bool {
        self.keys
            .values()
            .any(|key| other.keys.values().any(|theirs| theirs == key))
    }
}
