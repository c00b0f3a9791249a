//! The gate: a second look at finished bytes, which refuses them when anything is left.
//!
//! It shares with the redactor data alone: what the rules say (`rules.toml`), words and bounds. It loads the rules itself, judges names,
//! values and numbers by its own predicates, reads JSON, decodes and joins deltas its own way, and has no notion of places. A mistake in
//! one of the two is none of the other's, and a test holds that nothing here calls the redactor. Below the rules lie a few shapes that
//! are in no list. Whatever it cannot look through within its bounds is refused too. Before it serves it must find a planted secret of
//! every kind ([`GateError::SelfCheck`]).

mod ask;
mod canary;
mod chains;
mod digits;
mod json;
mod lines;
mod load;
mod look;
mod names;
mod parts;
mod shapes;
mod taker;
mod unpack;
mod values;

use std::collections::BTreeSet;
use std::io::{BufReader, Read};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::Profile;
use crate::switch::{Stage, Stages};

use json::{Bound, Reader};
use look::Look;

/// The rules, as they are written.
const RULES: &str = include_str!("rules.toml");
/// Pieces in which a document is read.
const PIECE: usize = 64 * 1024;

/// Looks through finished bytes.
#[derive(Debug)]
pub struct Gate {
    rules: load::GateRules,
    profile: Profile,
    stages: Stages,
}

/// Why a gate does not serve.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The rules cannot be read.
    #[error("the gate cannot read its rules: {0}")]
    Rules(String),
    /// Planted secrets came through, or clean text did not.
    #[error("the gate fails its self-check: {}", .0.join(", "))]
    SelfCheck(Vec<String>),
}

/// Something is left: the ids of the rules that found it, never what they found. Ids that begin with `gate-` say that the text could
/// not be looked through: `gate-bytes` and `gate-depth` for what exceeds a bound, `gate-form` for a document that is no JSON;
/// `gate-shape` is a secret that no rule knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refused by the gate: {}", .ids.iter().cloned().collect::<Vec<_>>().join(", "))]
pub struct Refused {
    /// Ids of rules.
    pub ids: BTreeSet<String>,
}

/// Why a document does not pass.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It cannot be read.
    #[error("the document cannot be read")]
    Read(#[source] std::io::Error),
    /// Something is left in it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl Gate {
    /// A gate that has shown that it finds what it should.
    ///
    /// # Errors
    /// When its rules cannot be read, or it misses what is planted.
    pub fn new(profile: Profile) -> Result<Self, GateError> {
        Self::checked(profile, Stages::default())
    }

    /// A gate without one stage; it does not pass its self-check.
    ///
    /// # Errors
    /// Always, unless the stage is none of its own.
    #[cfg(feature = "switches")]
    pub fn without(profile: Profile, stage: Stage) -> Result<Self, GateError> {
        Self::checked(profile, Stages::without(stage))
    }

    /// The same without the self-check, to see what such a gate would miss.
    ///
    /// # Errors
    /// When its rules cannot be read.
    #[cfg(feature = "switches")]
    pub fn unchecked(profile: Profile, stage: Stage) -> Result<Self, GateError> {
        Self::unproved(profile, Stages::without(stage))
    }

    fn unproved(profile: Profile, stages: Stages) -> Result<Self, GateError> {
        let rules = load::load(RULES, stages.runs(Stage::Load)).map_err(GateError::Rules)?;
        Ok(Self {
            rules,
            profile,
            stages,
        })
    }

    fn checked(profile: Profile, stages: Stages) -> Result<Self, GateError> {
        let gate = Self::unproved(profile, stages)?;
        let missed = canary::missed(&gate);
        if missed.is_empty() {
            Ok(gate)
        } else {
            Err(GateError::SelfCheck(missed))
        }
    }

    /// Lets the texts of one conversation through, or not. Their lines of JSON are parts, or records with a `part`.
    ///
    /// # Errors
    /// When anything is left in them.
    pub fn check<'t>(&self, texts: impl IntoIterator<Item = &'t [u8]>) -> Result<(), Refused> {
        let mut look = Look::new(self);
        let mut joined = lines::Joined::default();
        for text in texts {
            lines::each(
                text,
                &mut look,
                self.stages.runs(Stage::Join).then_some(&mut joined),
            );
        }
        joined.finish(&mut look);
        verdict(look.found)
    }

    /// Lets one JSON document of any length through, or not: an envelope in its spool file. It is read once, piece by piece; the memory
    /// that it takes is bounded by its longest text ([`crate::bounds::MAX_GATE_TEXT`]), not by its length. What is no JSON is refused.
    /// Deltas are not joined over elements of the document itself: who has such gives them to [`Self::check`], line by line.
    ///
    /// # Errors
    /// When it cannot be read, or anything is left in it.
    pub fn check_document(&self, document: impl Read) -> Result<(), DocumentError> {
        let mut look = Look::new(self);
        let mut reader = Reader::new(Bound::Each);
        let told = Told {
            document,
            tell: |piece: &[u8]| reader.feed(piece, &mut look),
        };
        let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(PIECE, told));
        let read = IgnoredAny::deserialize(&mut json).and_then(|_| json.end());
        drop(json);
        reader.finish(&mut look);
        match read {
            Ok(()) => {}
            Err(error) if error.is_io() => return Err(DocumentError::Read(error.into())),
            Err(_) => look.find("gate-form"),
        }
        Ok(verdict(look.found)?)
    }
}

fn verdict(found: BTreeSet<String>) -> Result<(), Refused> {
    if found.is_empty() {
        Ok(())
    } else {
        Err(Refused { ids: found })
    }
}

/// A reader that tells what is read.
struct Told<R, F> {
    document: R,
    tell: F,
}

impl<R: Read, F: FnMut(&[u8])> Read for Told<R, F> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let length = self.document.read(into)?;
        (self.tell)(&into[..length]);
        Ok(length)
    }
}
