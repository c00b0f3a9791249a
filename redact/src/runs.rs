//! Runs of letters and digits without a break: what they decode to, and whether they are random.

use std::ops::Range;

use memchr::memrchr;

use crate::bounds::{
    MAX_RANDOM, MAX_UNPACKED, MIN_BASE64, MIN_HEX, MIN_RANDOM, MIN_WRAPPED, RANDOM_CHANGES,
    RANDOM_ENTROPY, RANDOM_PIECE,
};
use crate::checks;
use crate::decode::packed::{self, Inflated};
use crate::engine::{Redactor, Scan};
use crate::find::Bytes;
use crate::hit::{Hit, rank};
use crate::lists::{FILES, ID_PREFIXES};
use crate::switch::Stage;
use crate::{Class, bounds};

const IN_RUN: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < 256 {
        let b = at as u8;
        table[at] = b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'_' | b'-');
        at += 1;
    }
    table
};

/// Calls `found` for every run of at least `min` characters; lines that were wrapped are one run.
pub(crate) fn each(text: &[u8], min: usize, mut found: impl FnMut(Range<usize>)) {
    let mut at = 0;
    // every run covers a multiple of `min`, so most bytes are never looked at
    while let Some(probe) = Some(at + min - 1).filter(|p| *p < text.len()) {
        if !IN_RUN[usize::from(text[probe])] {
            at = probe + 1;
            continue;
        }
        let start = probe
            - text[at..probe]
                .iter()
                .rev()
                .take_while(|b| IN_RUN[usize::from(**b)])
                .count();
        let mut end = probe + run_at(&text[probe..]);
        let mut line = end - start;
        while line >= MIN_WRAPPED {
            let next = end
                + text[end..]
                    .iter()
                    .take(2)
                    .take_while(|b| matches!(b, b'\r' | b'\n'))
                    .count();
            if next == end {
                break;
            }
            line = run_at(&text[next..]);
            // something else follows when the next line goes on with another character
            let closed = text
                .get(next + line)
                .is_none_or(|b| matches!(b, b'\r' | b'\n' | b'=' | b'"' | b'\''));
            if line == 0 || !closed {
                break;
            }
            end = next + line;
        }
        if end - start >= min {
            let padded = end
                + text[end..]
                    .iter()
                    .take(2)
                    .take_while(|b| **b == b'=')
                    .count();
            found(start..padded);
            end = padded;
        }
        at = end;
    }
}

fn run_at(text: &[u8]) -> usize {
    text.iter().take_while(|b| IN_RUN[usize::from(**b)]).count()
}

/// What kinds of characters a run has.
#[derive(Default)]
struct Kinds {
    digit: bool,
    upper: bool,
    lower: bool,
    /// How many of its last are hexadecimal digits: `0x` or a name may stand before them.
    hex: usize,
}

fn kinds(run: &[u8]) -> Kinds {
    let mut kinds = Kinds {
        hex: run
            .iter()
            .rev()
            .take_while(|b| b.is_ascii_hexdigit())
            .count(),
        ..Kinds::default()
    };
    for byte in run {
        kinds.digit |= byte.is_ascii_digit();
        kinds.upper |= byte.is_ascii_uppercase();
        kinds.lower |= byte.is_ascii_lowercase();
    }
    kinds
}

impl Redactor {
    /// Adds what stands in encoded runs, and random runs themselves.
    /// Those that are finds as a whole already, from `first` on, are not looked into.
    pub(crate) fn runs(&self, text: &[u8], first: usize, scan: &mut Scan, hits: &mut Vec<Hit>) {
        let (mut next, found) = (first, hits.len());
        each(text, MIN_BASE64, |span| {
            while next < found && hits[next].span.end < span.end {
                next += 1;
            }
            if next < found && hits[next].span.start <= span.start && !hits[next].personal {
                return;
            }
            let run = packed::unwrapped(&text[span.clone()]);
            let run = run.trim_ascii_end();
            let kinds = kinds(run);
            // a word, or several: nothing encoded of this length has one kind of letter only
            if !(kinds.digit || kinds.upper && kinds.lower) {
                return;
            }
            if kinds.hex >= MIN_HEX
                && self.stages.runs(Stage::Hex)
                && let Some(bytes) = packed::hex(&run[run.len() - kinds.hex..])
            {
                self.unpacked(&bytes, &span, scan, hits);
            }
            if kinds.lower
                && self.stages.runs(Stage::Base64)
                && let Some(bytes) = packed::base64(run)
            {
                self.unpacked(&bytes, &span, scan, hits);
            }
            if self.stages.runs(Stage::Load) {
                self.rules_of_runs(text, &span, hits);
            }
            if self.guesses()
                && !scan.opaque
                && !scan.packed
                && self.stages.runs_rule("high-entropy")
                && is_random(text, &span)
            {
                hits.push(self.hit(
                    span.clone(),
                    rank::ENTROPY,
                    "high-entropy",
                    Class::Secret,
                    &text[span],
                ));
            }
        });
    }

    fn rules_of_runs(&self, text: &[u8], span: &Range<usize>, hits: &mut Vec<Hit>) {
        for at in &self.rules.of_runs {
            let rule = &self.rules.list[*at];
            let run = &text[span.clone()];
            if run.len() <= rule.max
                && self.wants(rule.class)
                && self.stages.runs_rule(&rule.id)
                && let Some(found) = rule.pattern.find(run)
            {
                let found = span.start + found.start()..span.start + found.end();
                hits.push(self.hit(found.clone(), *at, &rule.id, rule.class, &text[found]));
            }
        }
    }

    /// Scans what a run says; a find takes out the run.
    pub(crate) fn unpacked(
        &self,
        bytes: &[u8],
        span: &Range<usize>,
        scan: &mut Scan,
        hits: &mut Vec<Hit>,
    ) {
        let inflated = if self.stages.runs(Stage::Gzip) {
            packed::inflate(bytes, MAX_UNPACKED.min(scan.left()))
        } else {
            Inflated::No
        };
        let bytes = match &inflated {
            Inflated::No => bytes,
            Inflated::Whole(out) => out,
            Inflated::TooMuch => {
                // what was unpacked in vain cost as much
                scan.spend(MAX_UNPACKED);
                hits.push(unresolved(span.clone()));
                return;
            }
        };
        if !scan.spend(bytes.len()) {
            hits.push(unresolved(span.clone()));
            return;
        }
        let mut inner = Vec::new();
        let was = std::mem::replace(&mut scan.packed, true);
        if packed::is_text(bytes) {
            self.deeper(bytes, scan, &mut inner);
        } else {
            self.find(bytes, Bytes::Binary, scan, &mut inner);
        }
        scan.packed = was;
        if let Some(best) = inner.into_iter().min_by_key(|hit| hit.rank) {
            hits.push(Hit {
                span: span.clone(),
                ..best
            });
        }
    }
}

/// What could not be decided.
pub(crate) fn unresolved(span: Range<usize>) -> Hit {
    Hit {
        span,
        rank: rank::UNRESOLVED,
        id: "unresolved",
        personal: false,
        with: bounds::UNRESOLVED.as_bytes().to_vec(),
    }
}

/// Whether a run is random: as a key is, and as an id, a digest, a path or a name is not.
///
/// The budget of false finds is one in 10 MiB of transcript. Digests of `sha256-...` form, UUIDs, hexadecimal digits and ids with a
/// known prefix are left alone.
pub(crate) fn is_random(text: &[u8], span: &Range<usize>) -> bool {
    let run = &text[span.clone()];
    let core = run.trim_ascii_end();
    if !(MIN_RANDOM..=MAX_RANDOM).contains(&core.len())
        || checks::is_known_id(core)
        || has_known_prefix(core)
        || core.iter().all(u8::is_ascii_hexdigit)
    {
        return false;
    }
    // a piece of something longer (a path, a URL, a digest) is not judged
    let before = &text[..span.start];
    let near = span.start.saturating_sub(160);
    let line = memrchr(b'\n', &before[near..]).map_or(near, |n| near + n + 1);
    let ahead = &before[line..];
    if matches!(before.last(), Some(b'.' | b'/' | b'%' | b'@' | b'#' | b'&'))
        || ahead.ends_with(b";base64,")
        || contains(ahead, b"://")
    {
        return false;
    }
    if text.get(span.end) == Some(&b'.')
        || FILES.iter().any(|start| core.starts_with(start.as_bytes()))
    {
        return false;
    }
    let kinds = kinds(core);
    let changes = core.windows(2).filter(|w| kind(w[0]) != kind(w[1])).count();
    let longest = core
        .split(|b| b"/-_+".contains(b))
        .map(<[u8]>::len)
        .max()
        .unwrap_or(0);
    kinds.digit
        && kinds.upper
        && kinds.lower
        && changes * 100 >= core.len() * RANDOM_CHANGES
        && longest >= RANDOM_PIECE
        && checks::entropy(core) >= RANDOM_ENTROPY
}

fn contains(text: &[u8], what: &[u8]) -> bool {
    memchr::memmem::find(text, what).is_some()
}

fn kind(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' => 0,
        b'A'..=b'Z' => 1,
        b'0'..=b'9' => 2,
        _ => 3,
    }
}

/// Ids that say what they are: of messages, calls, runs and files of the providers, digests, and our own.
fn has_known_prefix(run: &[u8]) -> bool {
    ID_PREFIXES
        .iter()
        .any(|prefix| run.starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        each(text.as_bytes(), 20, |span| found.push(&text[span]));
        found
    }

    #[test]
    fn runs_of_length() {
        let long = "A".repeat(20);
        assert_eq!(
            all(&format!("a {long}== b {} {long}", "A".repeat(19))),
            [format!("{long}=="), long.clone()]
        );
        let line = "B".repeat(76);
        let wrapped = format!("{line}\n{line}\nCC==\nprose goes on");
        assert_eq!(all(&wrapped), [format!("{line}\n{line}\nCC==")]);
        assert!(all("short words only, and nothing else here").is_empty());
    }

    #[test]
    fn keys_are_random_and_ids_are_not() {
        let random = |text: &str| is_random(text.as_bytes(), &(0..text.len()));
        for text in [
            "Zk93hfQ8vLq2RtWm71kdT5xNe9YpAb3C",
            "q8Kx+0Zc/Lm4Tn7Vb2Yw9Rs5Hd1Gf6Jp3Ua",
            "dGhpc0lzQSBzZWNyZXQga2V5IHdpdGggc29tZSBieXRlcw9z",
        ] {
            assert!(random(text), "{text}");
        }
        for text in [
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
            "msg_01XFDUDYJgAACzvnptvVoYELZk93hfQ8",
            "thisIsAVeryLongIdentifierOfTheCode2",
            "src/api/handlers/v2/SessionTranscriptHandler",
            "sha512-Zk93hfQ8vLq2RtWm71kdT5xNe9YpAb3CZk93hfQ8vLq2RtWm71kdT5x==",
            "2026-08-18T10-00-00-000Z-transcript-part",
        ] {
            assert!(!random(text), "{text}");
        }
    }
}
