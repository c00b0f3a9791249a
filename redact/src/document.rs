//! JSON by its keys: every string and number of a document, arrays of bytes, and texts whose lines are elements.

use std::ops::Range;

use memchr::memchr;

use crate::bounds::MIN_BASE64;
use crate::checks::{self, Style};
use crate::engine::{MIN_TEXT, Redactor, Scan};
use crate::hit::{Hit, rank};
use crate::joined::lists;
use crate::keys::{self, Sensitivity};
use crate::switch::Stage;
use crate::walk::{Leaf, walk};
use crate::{Class, Profile, json, pii};

impl Redactor {
    /// A valid JSON text: every key, string and number of it, and texts whose lines are elements.
    pub(crate) fn document(&self, text: &[u8], scan: &mut Scan, hits: &mut Vec<Hit>) {
        let mut bytes = ByteArray::default();
        walk(text, |leaf, body, key| {
            let raw = &text[body.clone()];
            let is_number = leaf == Leaf::Number;
            if !(is_number && bytes.takes(text, raw, &body)) && bytes.ended() {
                self.bytes(std::mem::take(&mut bytes), scan, hits);
                if is_number {
                    // the first of the next array
                    bytes.takes(text, raw, &body);
                }
            }
            if leaf == Leaf::Key {
                if raw.len() >= MIN_TEXT {
                    self.string(raw, body.start, None, scan, hits);
                }
                return;
            }
            let name = key.map(|key| json::decode(&text[key]).text);
            match leaf {
                Leaf::Number => self.number(raw, body, name.as_deref(), hits),
                Leaf::Beside => {
                    let name = name.as_deref().map(|name| (name, Style::Loose));
                    self.string(raw, body.start, name, scan, hits);
                }
                _ => {
                    let name = name.as_deref().map(|name| (name, Style::Json));
                    self.string(raw, body.start, name, scan, hits);
                }
            }
        });
        self.bytes(bytes, scan, hits);
        for lines in lists(text) {
            self.run(&lines, text, scan, hits);
        }
    }

    /// Bytes that stand as numbers, as some languages print them; a find becomes a string in their place.
    fn bytes(&self, array: ByteArray, scan: &mut Scan, hits: &mut Vec<Hit>) {
        if array.bytes.len() < MIN_BASE64 || !self.stages.runs(Stage::Bytes) {
            return;
        }
        let first = hits.len();
        self.unpacked(&array.bytes, &array.span, scan, hits);
        for hit in &mut hits[first..] {
            hit.with = [b"\"", &hit.with[..], b"\""].concat();
        }
    }

    /// The body of a string that begins at `start`, and how it stands behind its key.
    fn string(
        &self,
        body: &[u8],
        start: usize,
        key: Option<(&[u8], Style)>,
        scan: &mut Scan,
        hits: &mut Vec<Hit>,
    ) {
        let view = json::decode(body);
        let first = hits.len();
        let how = key
            .and_then(|(key, style)| Some((keys::sensitivity(key)?, style)))
            .filter(|_| self.stages.runs(Stage::Keys));
        if let Some((how, style)) = how
            && checks::looks_assigned(how, &view.text, style)
        {
            hits.push(self.hit(
                0..view.text.len(),
                rank::SENSITIVE_KEY,
                "sensitive-key",
                Class::Secret,
                &view.text,
            ));
        }
        if view.text.len() >= MIN_TEXT {
            let was = scan.opaque;
            // several words are a text, whatever they stand under
            let is_text = || view.text.iter().any(u8::is_ascii_whitespace);
            scan.opaque = key.is_some_and(|(key, _)| keys::is_opaque(key)) && !is_text();
            self.deeper(&view.text, scan, hits);
            scan.opaque = was;
        }
        for hit in &mut hits[first..] {
            let origin = view.origin(hit.span.clone());
            hit.span = origin.start + start..origin.end + start;
            // a number that became a string brought quotes
            if memchr(b'"', &hit.with).is_some() || memchr(b'\\', &hit.with).is_some() {
                hit.with = json::encode(&hit.with);
            }
        }
    }

    /// A number, which becomes a string where it is taken out.
    fn number(&self, raw: &[u8], span: Range<usize>, key: Option<&[u8]>, hits: &mut Vec<Hit>) {
        let whole = raw.strip_suffix(b".0").unwrap_or(raw);
        let digits = whole.iter().all(u8::is_ascii_digit);
        let how = key
            .and_then(keys::sensitivity)
            .filter(|_| self.stages.runs(Stage::Keys));
        let mut found = None;
        if how == Some(Sensitivity::Secret) && raw.len() >= 4 {
            found = Some((rank::SENSITIVE_KEY, "sensitive-key", Class::Secret));
        } else if self.profile != Profile::Secrets
            && digits
            && pii::is_card(whole, false)
            && self.stages.runs_rule("card")
        {
            found = Some((rank::CARD, "card", Class::Pii));
        }
        if let Some((rank, id, class)) = found {
            let mut hit = self.hit(span, rank, id, class, raw);
            hit.with = [b"\"", &hit.with[..], b"\""].concat();
            hits.push(hit);
        }
    }
}

/// Neighbours in an array that are bytes.
#[derive(Default)]
struct ByteArray {
    bytes: Vec<u8>,
    span: Range<usize>,
}

impl ByteArray {
    /// Whether there were any.
    fn ended(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Whether a number is a byte, and the first or the next.
    fn takes(&mut self, text: &[u8], raw: &[u8], at: &Range<usize>) -> bool {
        let byte = std::str::from_utf8(raw).ok().and_then(|n| n.parse().ok());
        let Some(byte) = byte.filter(|_| raw.len() <= 3) else {
            return false;
        };
        if self.bytes.is_empty() {
            self.span.start = at.start;
        } else if text[self.span.end..at.start].trim_ascii() != b"," {
            return false;
        }
        self.span.end = at.end;
        self.bytes.push(byte);
        true
    }
}
