//! Finding the forms of all credentials in text.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::AhoCorasick;

use crate::{MARKER, forms};

/// The credentials to look for. Cheap to clone; prints nothing of them.
#[derive(Clone)]
pub struct Secrets(Option<Arc<Known>>);

struct Known {
    /// All forms, sorted, so that a text's end can be looked up as the beginning of one.
    forms: Vec<Vec<u8>>,
    automaton: AhoCorasick,
    longest: usize,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets([redacted])")
    }
}

impl Secrets {
    /// Knows these values: each as it is, JSON-escaped, and from [`crate::MIN_ENCODED_BYTES`] on in base64, hexadecimal and
    /// percent-encoding. Values under [`crate::MIN_SECRET_BYTES`] are ignored. A value of several lines is known as a whole
    /// and without its surrounding white space, as files and environments differ in the last newline.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut forms = BTreeSet::new();
        for value in values {
            forms.append(&mut forms::of(value));
            forms.append(&mut forms::of(value.trim()));
        }
        if forms.is_empty() {
            return Self(None);
        }
        let forms: Vec<Vec<u8>> = forms.into_iter().collect();
        let automaton = AhoCorasick::new(&forms)
            .expect("the forms of a sandbox's credentials are far below the automaton's limits");
        let longest = forms.iter().map(Vec::len).max().unwrap_or(0);
        Self(Some(Arc::new(Known {
            forms,
            automaton,
            longest,
        })))
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Free text with every credential replaced, for error texts and logs.
    pub fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let spans = self.spans(text.as_bytes());
        if spans.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut out, mut at) = (String::with_capacity(text.len()), 0);
        for span in spans {
            out.push_str(&text[at..span.start]);
            out.push_str(MARKER);
            at = span.end;
        }
        out.push_str(&text[at..]);
        Cow::Owned(out)
    }

    /// Where credentials stand: in order, without overlaps; overlapping finds are one span.
    pub(crate) fn spans(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut spans: Vec<Range<usize>> = Vec::new();
        let Some(known) = &self.0 else { return spans };
        // overlapping finds arrive ordered by their end, so a later one may begin before several earlier ones
        for found in known.automaton.find_overlapping_iter(text) {
            let mut span = found.range();
            while let Some(last) = spans.last()
                && last.end > span.start
            {
                span.start = span.start.min(last.start);
                spans.pop();
            }
            spans.push(span);
        }
        spans
    }

    /// The start of the longest end of `text` that is a proper beginning of a form; `text.len()` when there is none.
    pub(crate) fn held_from(&self, text: &[u8]) -> usize {
        let Some(known) = &self.0 else {
            return text.len();
        };
        let earliest = (text.len() + 1).saturating_sub(known.longest);
        (earliest..text.len())
            .find(|start| known.begins_a_form(&text[*start..]))
            .unwrap_or(text.len())
    }
}

impl Known {
    fn begins_a_form(&self, end: &[u8]) -> bool {
        // forms that start with `end` stand together, right behind `end` itself if that is one of them
        let at = self.forms.partition_point(|form| form.as_slice() <= end);
        self.forms.get(at).is_some_and(|form| form.starts_with(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_finds_are_one_span() {
        let secrets = Secrets::new(["abcdef", "defghi", "cdefgh", "uvwxyz"]);
        assert_eq!(secrets.spans(b"..abcdefghi..uvwxyz"), [2..11, 13..19]);
        assert_eq!(
            secrets.redact_text("abcdefghi and uvwxyz"),
            "[redacted:credential] and [redacted:credential]"
        );
    }

    #[test]
    fn held_from_is_the_longest_proper_beginning() {
        let secrets = Secrets::new(["abcdef", "abcdefgh", "abab--"]);
        for (text, held) in [
            ("xyz", 3),
            ("xyza", 3),
            ("xababa", 1 + 2),
            ("abab", 0),
            ("abcde", 0),
            ("abcdef", 0),
            ("abcdefgh", 8),
        ] {
            assert_eq!(secrets.held_from(text.as_bytes()), held, "{text}");
        }
    }

    #[test]
    fn nothing_is_printed() {
        let shown = format!("{:?}", Secrets::new(["hunter2hunter2"]));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(Secrets::new(["short"]).is_empty());
        assert_eq!(
            Secrets::new([" \n line-end \n"]).redact_text("line-end!"),
            "[redacted:credential]!"
        );
    }
}
