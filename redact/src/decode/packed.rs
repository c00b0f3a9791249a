//! What runs of characters say: base64, hexadecimal digits, and what is compressed within.

use std::borrow::Cow;
use std::io::Read;

use base64::Engine;
use base64::alphabet;
use base64::engine::GeneralPurpose;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use memchr::memchr2;

use crate::checks::LENIENT;

const ENGINE: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
/// Characters of a sample by which the alignment of base64 is told.
const SAMPLE: usize = 64;

/// A run without its line ends.
pub fn unwrapped(run: &[u8]) -> Cow<'_, [u8]> {
    if run.iter().any(|b| matches!(b, b'\n' | b'\r')) {
        Cow::Owned(
            run.iter()
                .copied()
                .filter(|b| !matches!(b, b'\n' | b'\r'))
                .collect(),
        )
    } else {
        Cow::Borrowed(run)
    }
}

/// What hexadecimal digits say; of an odd number the reading that is more of a text.
pub fn hex(run: &[u8]) -> Option<Vec<u8>> {
    let even = run.len() / 2 * 2;
    let first = hex::decode(&run[..even]).ok()?;
    if even == run.len() || is_text(&first) {
        return Some(first);
    }
    hex::decode(&run[1..]).ok()
}

/// What base64 says, of any alphabet. Letters that stand before it without a border shift it: the alignment that reads most
/// like text at the start, the middle or the end is taken.
pub fn base64(run: &[u8]) -> Option<Vec<u8>> {
    let plain: Cow<'_, [u8]> = if memchr2(b'-', b'_', run).is_some() {
        let standard = run.iter().map(|b| match b {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        });
        Cow::Owned(standard.collect())
    } else {
        Cow::Borrowed(run)
    };
    let best = (0..4usize).max_by_key(|offset| {
        let start = &plain[(*offset).min(plain.len())..];
        // the first alignment wins a tie
        (
            samples(start).map(printable_of_sample).max().unwrap_or(0),
            4 - *offset,
        )
    })?;
    let text = plain.get(best..)?;
    let text = if text.len() % 4 == 1 {
        &text[..text.len() - 1]
    } else {
        text
    };
    ENGINE.decode(text).ok()
}

/// Pieces at the start, the middle and the end, aligned like the start.
fn samples(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let cut = |at: usize| {
        let at = at / 4 * 4;
        &text[at..(at + SAMPLE).min(text.len()) / 4 * 4]
    };
    let places = if text.len() <= SAMPLE {
        [0, 0, 0]
    } else {
        [0, text.len() / 2, text.len().saturating_sub(SAMPLE + 4)]
    };
    let count = if text.len() <= SAMPLE { 1 } else { 3 };
    places
        .into_iter()
        .take(count)
        .filter(move |at| *at < text.len())
        .map(cut)
}

fn printable_of_sample(sample: &[u8]) -> usize {
    let mut bytes = [0; SAMPLE];
    let length = ENGINE.decode_slice(sample, &mut bytes).unwrap_or(0);
    let bytes = &bytes[..length];
    // a compressed text reads like nothing, but begins in its own way
    if is_compressed(bytes) {
        return SAMPLE;
    }
    bytes.iter().filter(|b| is_printable(**b)).count()
}

fn is_printable(byte: u8) -> bool {
    matches!(byte, 0x20..0x7f | b'\n' | b'\r' | b'\t')
}

/// Whether decoded bytes are likely to be text.
pub fn is_text(bytes: &[u8]) -> bool {
    let zeroes = bytes.iter().filter(|b| **b == 0).count();
    // two bytes a letter
    let length = bytes.len()
        - if zeroes * 5 >= bytes.len() * 2 {
            zeroes
        } else {
            0
        };
    let printable = bytes
        .iter()
        .filter(|b| is_printable(**b) || **b >= 0x80)
        .count();
    let ascii = bytes.iter().filter(|b| is_printable(**b)).count();
    printable * 20 >= length * 19 && ascii * 10 >= length * 7
}

fn is_compressed(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x1f, 0x8b, 8, ..] | [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..]
    )
}

/// What compressed bytes hold.
pub enum Inflated {
    /// They are not compressed.
    No,
    /// This; of a cut stream what there is.
    Whole(Vec<u8>),
    /// More than was allowed.
    TooMuch,
}

/// Unpacks gzip and zlib.
pub fn inflate(bytes: &[u8], limit: usize) -> Inflated {
    if !is_compressed(bytes) {
        return Inflated::No;
    }
    let source: &mut dyn Read = if bytes[0] == 0x1f {
        &mut MultiGzDecoder::new(bytes)
    } else {
        &mut ZlibDecoder::new(bytes)
    };
    let mut out = Vec::new();
    // an error at the end of what was cut leaves what came before
    let _ = source.take(limit as u64 + 1).read_to_end(&mut out);
    match out.len() {
        0 => Inflated::No,
        length if length > limit => Inflated::TooMuch,
        _ => Inflated::Whole(out),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::bounds::MAX_UNPACKED;

    #[test]
    fn runs_are_read_at_any_alignment_and_in_any_alphabet() {
        let plain = b"GITHUB_TOKEN=ghp_0123456789>>>???";
        let standard = ENGINE.encode(plain);
        for lead in ["", "x", "yy", "zzz"] {
            for text in [
                standard.clone(),
                standard
                    .replace('+', "-")
                    .replace('/', "_")
                    .replace('=', ""),
            ] {
                let got = base64(format!("{lead}{text}").as_bytes()).expect("base64");
                assert!(got.ends_with(plain), "{lead} {text} {got:?}");
            }
        }
        assert_eq!(hex(b"0a4869212121").expect("hex"), b"\nHi!!!");
    }

    #[test]
    fn compressed_bytes_are_bounded_and_may_be_cut() {
        let pack = |text: &[u8]| {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            out.write_all(text).unwrap();
            out.finish().unwrap()
        };
        let small = pack(b"abcabc");
        assert!(matches!(inflate(&small, MAX_UNPACKED), Inflated::Whole(t) if t == b"abcabc"));
        assert!(
            matches!(inflate(&small[..small.len() - 6], MAX_UNPACKED), Inflated::Whole(t) if t == b"abcabc")
        );
        assert!(matches!(
            inflate(&pack(&vec![0; MAX_UNPACKED + 1]), MAX_UNPACKED),
            Inflated::TooMuch
        ));
        assert!(matches!(inflate(b"plain", MAX_UNPACKED), Inflated::No));
    }
}
