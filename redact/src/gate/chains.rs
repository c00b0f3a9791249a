//! Long chains of letters and digits: what they say, and whether they are random.

use super::look::Look;
use super::{unpack, values};
use crate::Profile;
use crate::bounds::{
    MAX_RANDOM, MIN_BASE64, MIN_HEX, MIN_RANDOM, MIN_WRAPPED, RANDOM_CHANGES, RANDOM_ENTROPY,
    RANDOM_PIECE,
};
use crate::lists::{FILES, ID_PREFIXES};
use crate::switch::Stage;

/// What stands in front of a chain on its line is looked at so far.
const AHEAD: usize = 160;

/// Looks into every long chain of a text. Lines that were wrapped are one.
pub(super) fn each(look: &mut Look<'_>, text: &[u8]) {
    let length = |from: usize| text[from..].iter().take_while(|b| is_link(**b)).count();
    let mut at = 0;
    while at < text.len() {
        // a chain of this length covers the place where it would end, so most bytes are not looked at
        if let Some(gap) = text[at..text.len().min(at + MIN_BASE64)]
            .iter()
            .rposition(|b| !is_link(*b))
        {
            at += gap + 1;
            continue;
        }
        let (start, mut line) = (at, length(at));
        at += line;
        while line >= MIN_WRAPPED {
            let ends = text[at..].iter().take(2);
            let gap = ends.take_while(|b| b"\r\n".contains(b)).count();
            line = length(at + gap);
            let closed = text
                .get(at + gap + line)
                .is_none_or(|b| b"\r\n=\"'".contains(b));
            if gap == 0 || line == 0 || !closed {
                break;
            }
            at += gap + line;
        }
        if at - start >= MIN_BASE64 {
            let padding = text[at..].iter().take(2).take_while(|b| **b == b'=');
            at += padding.count();
            chain(look, text, start, at);
        }
    }
}

fn is_link(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

fn chain(look: &mut Look<'_>, text: &[u8], start: usize, end: usize) {
    let chain = &text[start..end];
    let has = |what: fn(&u8) -> bool| chain.iter().any(what);
    let (digit, upper, lower) = (
        has(u8::is_ascii_digit),
        has(u8::is_ascii_uppercase),
        has(u8::is_ascii_lowercase),
    );
    if !(digit || upper && lower) {
        return;
    }
    let hex = |b: &u8| b.is_ascii_hexdigit() || b"\r\n".contains(b);
    // behind `0x`, or behind a name
    let digits = chain.rsplit(|b| !hex(b)).next().unwrap_or_default();
    if look.runs(Stage::Hex) && digits.len() >= MIN_HEX {
        for bytes in unpack::unhex(digits) {
            look.unpacked(&bytes);
        }
    }
    if look.runs(Stage::Base64) && lower {
        for bytes in unpack::base64(chain) {
            look.unpacked(&bytes);
        }
    }
    let gate = look.gate;
    for number in &gate.rules.unbegun {
        let rule = &gate.rules.rules[*number];
        if gate.stages.runs_rule(&rule.id)
            && chain.len() <= rule.window
            && rule.pattern.matches(chain)
        {
            look.find(&rule.id);
        }
    }
    if digit
        && upper
        && lower
        && gate.profile != Profile::Secrets
        && look.may_be_random()
        && gate.stages.runs_rule("high-entropy")
        && is_random(text, start, end)
    {
        look.find("high-entropy");
    }
}

/// Whether a chain of small letters, capital ones and digits is random, as a key is and an id, a path or a name is not.
fn is_random(text: &[u8], start: usize, end: usize) -> bool {
    let chain = text[start..end].trim_ascii_end();
    if chain.len() < MIN_RANDOM || chain.len() > MAX_RANDOM {
        return false;
    }
    let begins = |list: &[&str]| list.iter().any(|start| chain.starts_with(start.as_bytes()));
    if begins(&FILES) || begins(&ID_PREFIXES) || values::is_public_id(chain) {
        return false;
    }
    // a piece of something longer is not judged
    let in_front = text[..start].last();
    if in_front.is_some_and(|b| b"./%@#&".contains(b)) || text.get(end) == Some(&b'.') {
        return false;
    }
    let ahead = &text[start.saturating_sub(AHEAD)..start];
    let line = ahead.rsplit(|b| *b == b'\n').next().unwrap_or_default();
    if line.ends_with(b";base64,") || line.windows(3).any(|w| w == b"://") {
        return false;
    }
    let pieces = chain.split(|b| !b.is_ascii_alphanumeric());
    if pieces.map(<[u8]>::len).max() < Some(RANDOM_PIECE) {
        return false;
    }
    let sort = |b: &u8| {
        (
            b.is_ascii_digit(),
            b.is_ascii_uppercase(),
            b.is_ascii_lowercase(),
        )
    };
    let same = chain.chunk_by(|a, b| sort(a) == sort(b)).count();
    (same - 1) * 100 >= chain.len() * RANDOM_CHANGES && values::bits(chain) >= RANDOM_ENTROPY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_random_and_ids_are_not() {
        let random = |text: &str| is_random(text.as_bytes(), 0, text.len());
        for text in [
            "Zk93hfQ8vLq2RtWm71kdT5xNe9YpAb3C",
            "q8Kx+0Zc/Lm4Tn7Vb2Yw9Rs5Hd1Gf6Jp3Ua",
            "dGhpc0lzQSBzZWNyZXQga2V5IHdpdGggc29tZSBieXRlcw9z",
        ] {
            assert!(random(text), "{text}");
        }
        for text in [
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
