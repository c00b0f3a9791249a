//! Finds, and what is put in their places.

use std::ops::Range;

/// A find in a text.
#[derive(Debug, Clone)]
pub(crate) struct Hit {
    /// Where it stands.
    pub span: Range<usize>,
    /// The lower of two that overlap gives the name.
    pub rank: usize,
    /// What was found.
    pub id: &'static str,
    /// Whether it is personal, not secret.
    pub personal: bool,
    /// What is put in its place.
    pub with: Vec<u8>,
}

impl Hit {
    /// Whether a find of a rule of this rank adds nothing to this one.
    pub fn covers(&self, span: &Range<usize>, rank: usize) -> bool {
        self.rank <= rank && self.span.start <= span.start && span.end <= self.span.end
    }
}

/// The ranks of finds that are no rule's; a rule's rank is its place in the file.
pub(crate) mod rank {
    pub const UNRESOLVED: usize = 0;
    pub const SENSITIVE_KEY: usize = 500;
    pub const ENTROPY: usize = 600;
    pub const CARD: usize = 700;
    pub const IBAN: usize = 701;
    pub const NATIONAL: usize = 702;
    pub const PHONE: usize = 703;
}

/// Sorts the finds and makes those that overlap one, named after the best of them. What is personal gives way to a secret: the
/// host behind a password is no part of an e-mail address.
pub(crate) fn settle(hits: &mut Vec<Hit>) {
    if hits.len() < 2 {
        return;
    }
    hits.sort_by(|a, b| {
        a.span
            .start
            .cmp(&b.span.start)
            .then(a.span.end.cmp(&b.span.end))
    });
    let mut out: Vec<Hit> = Vec::with_capacity(hits.len());
    for hit in hits.drain(..) {
        if let Some(last) = out.last_mut()
            && hit.span.start < last.span.end
        {
            if last.personal && !hit.personal && hit.span.end >= last.span.end {
                *last = hit;
                continue;
            }
            if hit.personal && !last.personal {
                continue;
            }
            let end = last.span.end.max(hit.span.end);
            if hit.rank < last.rank {
                let start = last.span.start;
                *last = hit;
                last.span.start = start;
            }
            last.span.end = end;
            continue;
        }
        out.push(hit);
    }
    *hits = out;
}

/// The text with every find replaced. The finds are settled.
pub(crate) fn apply(text: &[u8], hits: &[Hit]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    for hit in hits {
        out.extend_from_slice(&text[at..hit.span.start]);
        out.extend_from_slice(&hit.with);
        at = hit.span.end;
    }
    out.extend_from_slice(&text[at..]);
    out
}
