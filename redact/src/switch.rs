//! Stages that tests can turn off, each to show that a secret gets through without it.

/// A stage of the redactor or of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// One rule, by its id; also `high-entropy`, `phone`, `card`, `iban` and `national-id`.
    #[cfg_attr(
        not(feature = "switches"),
        expect(dead_code, reason = "only tests name one")
    )]
    Rule(&'static str),
    /// The values of sensitive keys.
    Keys,
    /// JSON as such: texts that are JSON, and lines of a text that are.
    Json,
    /// Escapes of JSON in any text.
    Unescape,
    /// `%XX`.
    Percent,
    /// Hexadecimal digits.
    Hex,
    /// base64.
    Base64,
    /// gzip and zlib.
    Gzip,
    /// `&quot;` and its like.
    Entities,
    /// Arrays of bytes.
    Bytes,
    /// Escape sequences of terminals.
    Ansi,
    /// Deltas as the text they join to.
    Join,
    /// The rules as a whole, as they are loaded.
    Load,
    /// The gate's own shapes, which are in no rule.
    Shapes,
}

/// Which stage is off: none, but in tests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stages {
    #[cfg(feature = "switches")]
    off: Option<Stage>,
}

impl Stages {
    /// All but one.
    #[cfg(feature = "switches")]
    pub(crate) fn without(stage: Stage) -> Self {
        Self { off: Some(stage) }
    }

    #[inline]
    pub(crate) fn runs(self, stage: Stage) -> bool {
        #[cfg(feature = "switches")]
        return self.off != Some(stage);
        #[cfg(not(feature = "switches"))]
        {
            let _ = stage;
            true
        }
    }

    /// Whether a rule is on.
    #[inline]
    pub(crate) fn runs_rule(self, id: &str) -> bool {
        #[cfg(feature = "switches")]
        return !matches!(self.off, Some(Stage::Rule(off)) if off == id);
        #[cfg(not(feature = "switches"))]
        {
            let _ = id;
            true
        }
    }
}
