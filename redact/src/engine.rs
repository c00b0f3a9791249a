//! The redactor: texts and the views of them.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memmem};
use serde::Serialize;
use serde::de::IgnoredAny;

use crate::bounds::{DECODED_FACTOR, DECODED_FLOOR, MAX_DEPTH};
use crate::decode::{self, View};
use crate::find::{Bytes, EVENT, may_hold_json_lines};
use crate::hit::{self, Hit, rank};
use crate::joined::{Joined, Run, may_join};
use crate::runs::unresolved;
use crate::switch::{Stage, Stages};
use crate::{Class, Counts, Profile, TokenKey, json, pii, rules};

/// Takes secrets, and personal data where its profile says so, out of texts.
#[derive(Debug, Clone)]
pub struct Redactor {
    pub(crate) rules: &'static rules::Rules,
    pub(crate) key: TokenKey,
    pub(crate) profile: Profile,
    pub(crate) stages: Stages,
}

impl std::fmt::Debug for rules::Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rules(version {})", self.version)
    }
}

/// What is known on the way into the views of one text.
pub(crate) struct Scan {
    depth: u8,
    budget: usize,
    /// The text stands under a key whose value may be random.
    pub opaque: bool,
    /// The text is what a run says.
    pub packed: bool,
    passed: Vec<usize>,
}

impl Scan {
    pub fn new(text: usize) -> Self {
        Self {
            depth: 0,
            budget: text
                .saturating_mul(DECODED_FACTOR)
                .saturating_add(DECODED_FLOOR),
            opaque: false,
            packed: false,
            passed: Vec::new(),
        }
    }

    /// Takes decoded bytes from the budget; whether there were enough left.
    pub fn spend(&mut self, bytes: usize) -> bool {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.unwrap_or(0);
        left.is_some()
    }

    /// Decoded bytes that may still be looked at.
    pub fn left(&self) -> usize {
        self.budget
    }

    /// For each rule how far the text is passed; the memory is used again.
    pub fn passed(&mut self, rules: usize) -> Vec<usize> {
        let mut passed = std::mem::take(&mut self.passed);
        passed.clear();
        passed.resize(rules, 0);
        passed
    }

    pub fn give_back(&mut self, passed: Vec<usize>) {
        self.passed = passed;
    }
}

/// How often a redacted text is looked at again.
const MAX_ROUNDS: usize = 4;
/// Shorter texts hold nothing.
pub(crate) const MIN_TEXT: usize = 6;

impl Redactor {
    /// A redactor for one organisation or session: tokens are made with its key.
    pub fn new(profile: Profile, key: TokenKey) -> Self {
        Self {
            rules: rules::Rules::get(),
            key,
            profile,
            stages: Stages::default(),
        }
    }

    /// The same without one stage.
    #[cfg(feature = "switches")]
    #[must_use]
    pub fn without(mut self, stage: Stage) -> Self {
        self.stages = Stages::without(stage);
        self
    }

    /// A text of any kind, JSON or not, with every find replaced; JSON stays JSON.
    pub fn redact<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        let hits = self.hits(text);
        if hits.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut out = hit::apply(text, &hits);
        self.again(&mut out);
        Cow::Owned(out)
    }

    /// The same, and counts what was taken out.
    pub fn redact_counting<'t>(&self, text: &'t [u8], counts: &mut Counts) -> Cow<'t, [u8]> {
        let hits = self.hits(text);
        if hits.is_empty() {
            return Cow::Borrowed(text);
        }
        for hit in &hits {
            *counts.entry(hit.id).or_default() += 1;
        }
        let mut out = hit::apply(text, &hits);
        self.again(&mut out);
        Cow::Owned(out)
    }

    /// A value's JSON with every find replaced, keys, strings and numbers by what they stand under. A caller that writes a long document
    /// writes it piece by piece, each an object or array of its own: the key that a piece stands under is not known here.
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    pub fn json<T: Serialize + ?Sized>(
        &self,
        value: &T,
        counts: &mut Counts,
    ) -> serde_json::Result<Vec<u8>> {
        let text = serde_json::to_vec(value)?;
        match self.redact_counting(&text, counts) {
            Cow::Borrowed(_) => Ok(text),
            Cow::Owned(out) => Ok(out),
        }
    }

    /// Takes out what only shows once something else is gone: what stood beside it is read anew.
    pub(crate) fn again(&self, text: &mut Vec<u8>) {
        for _ in 0..MAX_ROUNDS {
            let hits = self.hits(text);
            if hits.is_empty() {
                return;
            }
            *text = hit::apply(text, &hits);
        }
    }

    /// A text whose redacted segments are looked at again, see [`Self::again`].
    pub(crate) fn settled(&self, text: &[u8]) -> Vec<u8> {
        if !self.stages.runs(Stage::Json) {
            return text.to_vec();
        }
        let mut out = Vec::with_capacity(text.len());
        let mut settle = |segment: &[u8]| {
            if memmem::find(segment, rules::TOKEN_START.as_bytes()).is_some() {
                let mut segment = segment.to_vec();
                self.again(&mut segment);
                out.extend_from_slice(&segment);
            } else {
                out.extend_from_slice(segment);
            }
        };
        if is_json(text) {
            settle(text)
        } else {
            each_segment(text, |span, _| settle(&text[span]))
        }
        out
    }

    /// The same for a `str`.
    pub fn redact_str<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.redact(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// Settled finds of a text.
    pub(crate) fn hits(&self, text: &[u8]) -> Vec<Hit> {
        let (mut scan, mut hits) = (Scan::new(text.len()), Vec::new());
        self.text(text, &mut scan, &mut hits);
        hit::settle(&mut hits);
        hits
    }

    pub(crate) fn wants(&self, class: Class) -> bool {
        match class {
            Class::Secret => true,
            Class::Pii => self.profile != Profile::Secrets,
        }
    }

    /// Whether runs are called secret for being random.
    pub(crate) fn guesses(&self) -> bool {
        self.profile != Profile::Secrets
    }

    /// Scans a text one view deeper.
    pub(crate) fn deeper(&self, text: &[u8], scan: &mut Scan, hits: &mut Vec<Hit>) {
        if scan.depth >= MAX_DEPTH {
            if text.len() >= MIN_TEXT {
                hits.push(unresolved(0..text.len()));
            }
            return;
        }
        scan.depth += 1;
        self.text(text, scan, hits);
        scan.depth -= 1;
    }

    /// Adds the finds of a text: of JSON by its keys, else of its lines of JSON and of what stands between; and of what deltas in either
    /// join to.
    fn text(&self, text: &[u8], scan: &mut Scan, hits: &mut Vec<Hit>) {
        if text.len() < MIN_TEXT {
            return;
        }
        let joins = || (self.stages.runs(Stage::Join) && may_join(text)).then(Joined::default);
        let mut joined = None;
        if !self.stages.runs(Stage::Json) {
            self.flat(text, scan, hits);
        } else if is_json(text) {
            self.document(text, scan, hits);
            joined = joins();
            if let Some(joined) = &mut joined {
                joined.take(text, 0, 0..text.len());
            }
        } else if may_hold_json_lines(text) {
            joined = joins();
            each_segment(text, |span, is_json| {
                let first = hits.len();
                if is_json {
                    self.document(&text[span.clone()], scan, hits);
                    if let Some(joined) = &mut joined {
                        joined.take(text, 0, span.clone());
                    }
                } else {
                    self.flat(&text[span.clone()], scan, hits);
                }
                for hit in &mut hits[first..] {
                    hit.span = hit.span.start + span.start..hit.span.end + span.start;
                }
            });
        } else {
            self.flat(text, scan, hits);
        }
        for run in joined.into_iter().flat_map(Joined::runs) {
            self.run(&run, text, scan, hits);
        }
    }

    /// Adds the finds of what pieces of a text join to, where the pieces stand.
    pub(crate) fn run(&self, run: &Run, text: &[u8], scan: &mut Scan, hits: &mut Vec<Hit>) {
        let mut found = Vec::new();
        if scan.spend(run.text.len()) {
            self.deeper(&run.text, scan, &mut found);
            hit::settle(&mut found);
        } else {
            found.push(unresolved(0..run.text.len()));
        }
        hits.extend(run.spread(found, |_| text).into_iter().map(|(_, hit)| hit));
    }

    /// A line that is JSON, with JSON as a stage.
    pub(crate) fn json_or_flat(&self, line: &[u8], scan: &mut Scan, hits: &mut Vec<Hit>) {
        if self.stages.runs(Stage::Json) {
            self.document(line, scan, hits);
        } else {
            self.flat(line, scan, hits);
        }
    }

    /// A text that is not JSON, and its views: one after the other, each made of the one before.
    fn flat(&self, text: &[u8], scan: &mut Scan, hits: &mut Vec<Hit>) {
        let first = hits.len();
        self.find(text, Bytes::Text, scan, hits);
        self.runs(text, first, scan, hits);
        if self.profile != Profile::Secrets && !scan.opaque {
            pii::scan(text, |kind, span| self.personal(kind, span, text, hits));
        }
        if let Some(view) = self.next_view(text) {
            if scan.spend(view.text.len()) {
                self.through(&view, scan, hits);
            } else {
                hits.push(unresolved(0..text.len()));
            }
        }
    }

    fn next_view<'t>(&self, text: &'t [u8]) -> Option<View<'t>> {
        let ansi = || decode::strip(text).filter(|_| self.stages.runs(Stage::Ansi));
        let percent = || decode::percent(text).filter(|_| self.stages.runs(Stage::Percent));
        let escapes = || {
            memchr(b'\\', text).filter(|_| self.stages.runs(Stage::Unescape))?;
            let view = json::decode(text);
            (view.text.len() < text.len()).then_some(view)
        };
        let entities = || decode::entities(text).filter(|_| self.stages.runs(Stage::Entities));
        ansi().or_else(percent).or_else(entities).or_else(escapes)
    }

    /// Adds the finds of a view where they stand in its origin.
    fn through(&self, view: &View<'_>, scan: &mut Scan, hits: &mut Vec<Hit>) {
        let mut inner = Vec::new();
        self.deeper(&view.text, scan, &mut inner);
        hits.extend(inner.into_iter().map(|mut hit| {
            hit.span = view.origin(hit.span);
            hit
        }));
    }

    fn personal(&self, kind: pii::Kind, span: Range<usize>, text: &[u8], hits: &mut Vec<Hit>) {
        let rank = match kind {
            pii::Kind::Card => rank::CARD,
            pii::Kind::Iban => rank::IBAN,
            pii::Kind::Phone => rank::PHONE,
            pii::Kind::National if self.profile != Profile::WithNationalIds => return,
            pii::Kind::National => rank::NATIONAL,
        };
        if self.stages.runs_rule(kind.id()) {
            hits.push(self.hit(span.clone(), rank, kind.id(), Class::Pii, &text[span]));
        }
    }
}

/// Whether a text is a JSON object or array, whole.
pub(crate) fn is_json(text: &[u8]) -> bool {
    let trimmed = text.trim_ascii();
    let brackets = matches!(
        (trimmed.first(), trimmed.last()),
        (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']'))
    );
    brackets && serde_json::from_slice::<IgnoredAny>(trimmed).is_ok()
}

/// Cuts a text into lines that are JSON, or events whose data is, and what stands between them.
pub(crate) fn each_segment(text: &[u8], mut found: impl FnMut(Range<usize>, bool)) {
    let (mut from, mut at) = (0, 0);
    while at < text.len() {
        let end = memchr(b'\n', &text[at..]).map_or(text.len(), |n| at + n + 1);
        let begin = at + text[at..end].strip_prefix(EVENT).map_or(0, |_| EVENT.len());
        let line = &text[begin..end];
        if matches!(line.trim_ascii_start().first(), Some(b'{' | b'[')) && is_json(line) {
            if from < begin {
                found(from..begin, false);
            }
            found(begin..end, true);
            from = end;
        }
        at = end;
    }
    if from < text.len() {
        found(from..text.len(), false);
    }
}
