//! Identifiers. Ids of rows are `<kind>-<20 lower-case base32 characters>`; a part is named by `(turn, index)`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {kind}")]
pub struct InvalidId {
    /// What was expected, e.g. `session id`.
    pub kind: &'static str,
}

const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const RANDOM_CHARS: usize = 20;

/// A fresh id: `<prefix>-` and 20 base32 characters (100 random bits).
pub fn random_id(prefix: &str) -> String {
    let mut bytes = [0u8; RANDOM_CHARS];
    getrandom::fill(&mut bytes).expect("the operating system always has randomness after boot");
    let mut id = String::with_capacity(prefix.len() + 1 + RANDOM_CHARS);
    id.push_str(prefix);
    id.push('-');
    id.extend(
        bytes
            .iter()
            .map(|b| char::from(BASE32[usize::from(b & 31)])),
    );
    id
}

fn has_shape(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('-'))
        .is_some_and(|random| {
            random.len() == RANDOM_CHARS && random.bytes().all(|b| BASE32.contains(&b))
        })
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The id as it goes over the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) { Ok(Self(text.to_owned())) } else { Err(InvalidId { kind: $kind }) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

text_id! {
    /// An agent session, `ags-…`. One agent working for one workspace.
    SessionId, "session id", |text| has_shape(text, "ags")
}

text_id! {
    /// A workspace, which is the organisation everywhere: 1 to 63 characters of `a-z`, `0-9` and `-`, as a
    /// Kubernetes namespace is derived from it.
    WorkspaceId, "workspace id", |text| {
        (1..=63).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !text.starts_with('-')
            && !text.ends_with('-')
    }
}

text_id! {
    /// A remote session, `rms-…`. An agent on a machine that is not ours.
    RemoteSessionId, "remote session id", |text| has_shape(text, "rms")
}

text_id! {
    /// A machine that reports remote sessions, `mac-…`.
    MachineId, "machine id", |text| has_shape(text, "mac")
}

text_id! {
    /// A command to a machine, `cmd-…`.
    CommandId, "command id", |text| has_shape(text, "cmd")
}

text_id! {
    /// An execution of a workflow, `exe-…`. Whoever records it chooses it; it is one workspace's.
    ExecutionId, "execution id", |text| has_shape(text, "exe")
}

text_id! {
    /// A replay package, `pkg-…`: named by its content.
    PackageId, "package id", |text| has_shape(text, "pkg")
}

text_id! {
    /// A run, `run-…`: one turn of a session, as findings and usage name it. Only the server gives it.
    RunId, "run id", |text| has_shape(text, "run")
}

macro_rules! random {
    ($($name:ident $prefix:literal),+) => {
        $(impl $name {
            /// A fresh id.
            pub fn random() -> Self {
                Self(random_id($prefix))
            }
        })+
    };
}
random!(SessionId "ags", RemoteSessionId "rms", MachineId "mac", CommandId "cmd", ExecutionId "exe", RunId "run");

/// An id that is the same wherever it is made again: `<prefix>-` and 20 base32 characters of the SHA-256 of `of`.
pub fn derived_id(prefix: &str, of: &str) -> String {
    encoded(prefix, &Sha256::digest(of.as_bytes()).into())
}

fn encoded(prefix: &str, digest: &[u8; 32]) -> String {
    let random: String = digest[..RANDOM_CHARS]
        .iter()
        .map(|b| char::from(BASE32[usize::from(b & 31)]))
        .collect();
    format!("{prefix}-{random}")
}

impl PackageId {
    /// The name of content with this SHA-256.
    pub fn of(digest: &[u8; 32]) -> Self {
        Self(encoded("pkg", digest))
    }
}

impl RunId {
    /// The run of a remote session's turn. Rows of turns may be made again from the log, and have the same runs then.
    pub fn of_remote(session: &RemoteSessionId, turn_id: &str) -> Self {
        Self(derived_id("run", &format!("{session}/{turn_id}")))
    }
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_id! {
    /// A turn of a session, numbered from 1.
    TurnNo(u32)
}
number_id! {
    /// A part's position within its turn, numbered from 0 by the driver.
    PartIndex(u32)
}
number_id! {
    /// One sandbox life of a session, numbered from 1. A turn is spoken by exactly one generation.
    Generation(u32)
}
number_id! {
    /// The store's per-session ingestion cursor: 0, 1, 2, … in commit order. −1 stands before the first part.
    Seq(i64)
}

impl TurnNo {
    /// The first turn of every session.
    pub const FIRST: TurnNo = TurnNo(1);

    /// The turn after this one.
    pub fn next(self) -> TurnNo {
        TurnNo(self.0 + 1)
    }
}

impl PartIndex {
    /// The index after this one.
    pub fn next(self) -> PartIndex {
        PartIndex(self.0 + 1)
    }
}

/// The identity of a part for ever, in the driver's stream, its log, the store and a browser's cursor: `3.120`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartId {
    /// The turn, from 1.
    pub turn: TurnNo,
    /// The position within the turn, from 0.
    pub index: PartIndex,
}

impl PartId {
    /// A part id from plain numbers.
    pub fn new(turn: u32, index: u32) -> Self {
        Self {
            turn: TurnNo(turn),
            index: PartIndex(index),
        }
    }

    /// The id of the next part of the same turn.
    pub fn next(self) -> Self {
        self.plus(1)
    }

    /// The id `count` parts further in the same turn.
    pub fn plus(self, count: u32) -> Self {
        Self {
            turn: self.turn,
            index: PartIndex(self.index.0.saturating_add(count)),
        }
    }

    /// The first part of a turn.
    pub fn first_of(turn: TurnNo) -> Self {
        Self {
            turn,
            index: PartIndex(0),
        }
    }
}

impl fmt::Display for PartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.turn, self.index)
    }
}

/// The largest turn or index: what a signed 32-bit column holds, so that no id of the wire can overflow the store.
const MAX_NUMBER: u32 = i32::MAX as u32;

fn number(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.len() <= 10 && text.bytes().all(|b| b.is_ascii_digit());
    let canonical = plain && (text == "0" || !text.starts_with('0'));
    canonical
        .then(|| text.parse().ok())
        .flatten()
        .filter(|n| *n <= MAX_NUMBER)
}

impl FromStr for PartId {
    type Err = InvalidId;

    /// Only the canonical form: digits, a dot, digits; no sign, no leading zero; the turn is at least 1.
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = InvalidId { kind: "part id" };
        let (turn, index) = text.split_once('.').ok_or(invalid.clone())?;
        match (number(turn), number(index)) {
            (Some(turn), Some(index)) if turn >= 1 => Ok(Self::new(turn, index)),
            _ => Err(invalid),
        }
    }
}

impl Serialize for PartId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PartId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_session_ids_parse_and_differ() {
        let (a, b) = (SessionId::random(), SessionId::random());
        assert_ne!(a, b);
        assert_eq!(a.as_str().parse::<SessionId>(), Ok(a.clone()));
        assert_eq!(a.as_str().len(), "ags-".len() + 20);
    }

    #[test]
    fn foreign_shapes_are_refused() {
        for bad in [
            "",
            "ags-",
            "ags-ABCDEFGHIJKLMNOPQRST",
            "rms-aaaaaaaaaaaaaaaaaaaa",
            "ags-aaaaaaaaaaaaaaaaaaa1",
            "ags-aaaaaaaaaaaaaaaaaaaaa",
        ] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad}");
        }
        for bad in ["", "-a", "a-", "A", "a/b", "a b"] {
            assert!(bad.parse::<WorkspaceId>().is_err(), "{bad}");
        }
        assert!("acme-1".parse::<WorkspaceId>().is_ok());
    }

    #[test]
    fn part_ids_have_one_spelling_and_order_by_turn_then_index() {
        assert_eq!("3.120".parse(), Ok(PartId::new(3, 120)));
        assert_eq!(PartId::new(3, 120).to_string(), "3.120");
        for bad in [
            "",
            "3",
            "3.",
            ".3",
            "0.1",
            "03.1",
            "3.01",
            "+3.1",
            "3.-1",
            "3.1 ",
            "3.1.2",
            "99999999999.1",
            "4294967295.0",
            "3.9223372036854775808",
        ] {
            assert!(bad.parse::<PartId>().is_err(), "{bad}");
        }
        assert!(PartId::new(2, 900) < PartId::new(3, 0));
    }
}
