//! What the gate does with a text: the text itself, and every view of it.

use std::collections::BTreeSet;

use super::ask::{self, Bytes};
use super::names::{Kind, Names, Said};
use super::values::{self, Place};
use super::{Gate, chains, digits, json, lines, shapes, unpack};
use crate::Profile;
use crate::bounds::{DECODED_FACTOR, DECODED_FLOOR, MAX_DEPTH, MAX_UNPACKED};
use crate::switch::Stage;

/// One look at the texts of a conversation.
pub(super) struct Look<'g> {
    pub gate: &'g Gate,
    /// Ids of what was found.
    pub found: BTreeSet<String>,
    names: Names,
    depth: u8,
    /// Decoded bytes that may still be looked at.
    left: usize,
    /// The text stands under a key whose value may be random.
    opaque: bool,
    /// The text is what a chain says.
    packed: bool,
}

impl<'g> Look<'g> {
    pub fn new(gate: &'g Gate) -> Self {
        Self {
            gate,
            found: BTreeSet::new(),
            names: Names::default(),
            depth: 0,
            left: 0,
            opaque: false,
            packed: false,
        }
    }

    pub fn runs(&self, stage: Stage) -> bool {
        self.gate.stages.runs(stage)
    }

    pub fn find(&mut self, id: &str) {
        if !self.found.contains(id) {
            self.found.insert(id.to_owned());
        }
    }

    /// Sets the bound for what a text of so many bytes decodes to.
    pub fn allow(&mut self, bytes: usize) {
        // more than the redactor's: a reading of base64 at four alignments costs more
        self.left = bytes
            .saturating_mul(2 * DECODED_FACTOR)
            .saturating_add(2 * DECODED_FLOOR);
    }

    /// Looks at a text that nothing stands around.
    pub fn whole(&mut self, text: &[u8]) {
        self.allow(text.len());
        self.text(text);
    }

    /// Looks at a text within another.
    pub fn text(&mut self, text: &[u8]) {
        // the redactor stops at the same depth and takes out what lies below
        if self.depth > MAX_DEPTH + 2 {
            return self.find("gate-depth");
        }
        self.depth += 1;
        if !(self.runs(Stage::Json) && json::document(text, self)) {
            self.between_lines(text);
        }
        if self.runs(Stage::Join) {
            for joined in lines::within(text) {
                self.decoded(&joined);
            }
        }
        self.depth -= 1;
    }

    /// Lines of JSON by themselves, everything else as one text each.
    fn between_lines(&mut self, text: &[u8]) {
        let begins = |data: &[u8]| matches!(data.first(), Some(b'{' | b'['));
        let mut lines = text.split(|b| *b == b'\n').map(lines::data);
        if !self.runs(Stage::Json) || !lines.any(begins) {
            return self.plain(text);
        }
        let (mut from, mut at) = (0, 0);
        for line in text.split_inclusive(|b| *b == b'\n') {
            let data = lines::data(line);
            if begins(data) && json::document(data, self) {
                self.plain(&text[from..at + line.len() - data.len()]);
                from = at + line.len();
            }
            at += line.len();
        }
        self.plain(&text[from..]);
    }

    fn plain(&mut self, text: &[u8]) {
        if text.len() < 6 {
            return;
        }
        ask::rules(self, text, Bytes::Text);
        chains::each(self, text);
        if self.runs(Stage::Shapes) && !self.found.contains(shapes::ID) && shapes::any(text) {
            self.find(shapes::ID);
        }
        if self.gate.profile != Profile::Secrets && !self.opaque {
            digits::each(text, |id| {
                let national = id == "national-id" && self.gate.profile == Profile::Package;
                if !national && self.gate.stages.runs_rule(id) {
                    self.find(id);
                }
            });
        }
        let printed = unpack::printed(text).filter(|_| self.runs(Stage::Ansi));
        let printed =
            printed.or_else(|| unpack::unpercent(text).filter(|_| self.runs(Stage::Percent)));
        let printed =
            printed.or_else(|| unpack::unentitied(text).filter(|_| self.runs(Stage::Entities)));
        if let Some(next) =
            printed.or_else(|| unpack::unescaped(text).filter(|_| self.runs(Stage::Unescape)))
        {
            self.decoded(&next);
        }
    }

    /// Looks at what was decoded, as far as the bound allows.
    fn decoded(&mut self, text: &[u8]) {
        match self.left.checked_sub(text.len()) {
            Some(left) => {
                self.left = left;
                self.text(text);
            }
            None => self.find("gate-bytes"),
        }
    }

    /// Looks at what a chain says.
    pub fn unpacked(&mut self, bytes: &[u8]) {
        let inflated = if self.runs(Stage::Gzip) {
            unpack::inflated(bytes, MAX_UNPACKED.min(self.left))
        } else {
            Ok(None)
        };
        let Ok(inflated) = inflated else {
            // what was unpacked in vain cost as much
            self.left = self.left.saturating_sub(MAX_UNPACKED);
            return self.find("gate-bytes");
        };
        let bytes = inflated.as_deref().unwrap_or(bytes);
        let was = std::mem::replace(&mut self.packed, true);
        if unpack::is_text(bytes) {
            self.decoded(bytes);
        } else {
            ask::rules(self, bytes, Bytes::Other);
        }
        self.packed = was;
    }

    /// Whether it matters that something is random here.
    pub fn may_be_random(&self) -> bool {
        !self.opaque && !self.packed && !self.found.contains("high-entropy")
    }

    /// A text of JSON and the name that it stands under.
    pub fn named_text(&mut self, name: &[u8], text: &[u8], place: Place) {
        let Said { kind, opaque } = self.names.said(name);
        if let Some(kind) = kind
            && self.runs(Stage::Keys)
            && values::is_secret(kind, text, place)
        {
            self.find("sensitive-key");
        }
        // what has white space in it is a text, no id
        let one_word = opaque && !text.iter().any(u8::is_ascii_whitespace);
        let was = std::mem::replace(&mut self.opaque, one_word);
        self.text(text);
        self.opaque = was;
    }

    /// A text of JSON that is a name itself, or stands under none.
    pub fn bare_text(&mut self, text: &[u8]) {
        let was = std::mem::replace(&mut self.opaque, false);
        self.text(text);
        self.opaque = was;
    }

    /// A number of JSON.
    pub fn number(&mut self, name: &[u8], digits: &[u8]) {
        if self.names.said(name).kind == Some(Kind::Sure)
            && digits.len() >= 4
            && self.runs(Stage::Keys)
        {
            self.find("sensitive-key");
        }
        // what a table of floats makes of whole numbers
        let whole = digits.strip_suffix(b".0").unwrap_or(digits);
        if self.gate.profile != Profile::Secrets
            && whole.iter().all(u8::is_ascii_digit)
            && digits::is_card(whole, false)
            && self.gate.stages.runs_rule("card")
        {
            self.find("card");
        }
    }
}
