//! The gate: a second look at finished bytes, which refuses them when anything is left.
//!
//! It shares with the redactor what a rule says (`rules.toml`) and what is a fact (a checksum, a placeholder, the name of a
//! password), and nothing of the way there: it loads the rules itself, lets serde read JSON instead of our own reader, decodes with
//! its own functions, joins deltas its own way, and has no notion of places. Whatever it cannot look through within its bounds is
//! refused too. Before it serves it must find a planted secret of every kind ([`GateError::SelfCheck`]).

mod canary;
mod lines;
mod load;
mod look;
mod unpack;
mod value;

use std::collections::BTreeSet;

use crate::Profile;
use crate::switch::{Stage, Stages};

use look::Look;

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

/// Something is left: the ids of the rules that found it, never what they found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refused by the gate: {}", .ids.iter().cloned().collect::<Vec<_>>().join(", "))]
pub struct Refused {
    /// Ids of rules.
    pub ids: BTreeSet<String>,
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

    fn checked(profile: Profile, stages: Stages) -> Result<Self, GateError> {
        let rules =
            load::load(crate::rules::SOURCE, stages.runs(Stage::Load)).map_err(GateError::Rules)?;
        let gate = Self {
            rules,
            profile,
            stages,
        };
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
        if look.found.is_empty() {
            Ok(())
        } else {
            Err(Refused { ids: look.found })
        }
    }
}
