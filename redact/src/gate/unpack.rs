//! The gate's own decoders. They keep no places: it is enough to know what a text says.

use std::io::{Cursor, Read};
use std::sync::LazyLock;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use regex::bytes::Regex;

/// What a terminal does not print.
static UNPRINTED: LazyLock<Regex> = LazyLock::new(|| {
    let sequences = r"\x1b\[[ -?]*[@-~]?|\x1b[\]P^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[()].?|\x1b[@-~7-8=>]|\x1b";
    let invisible = r"\xe2\x80[\x8b-\x8d]|\xe2\x81\xa0|\xef\xbb\xbf";
    Regex::new(&format!("(?-u){sequences}|{invisible}"))
        .expect("a constant expression, read by every test")
});

/// The text without it; `None` when there is nothing of it.
pub(super) fn printed(text: &[u8]) -> Option<Vec<u8>> {
    let first = memchr::memchr3(0x1b, 0xe2, 0xef, text)?;
    if !UNPRINTED.is_match(&text[first..]) {
        return None;
    }
    Some(UNPRINTED.replace_all(text, &b""[..]).into_owned())
}

/// The text with its `%XX` resolved; `None` when there are none.
pub(super) fn unpercent(text: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(b'%', text)?;
    let pieces: Vec<&[u8]> = text.split(|b| *b == b'%').collect();
    let mut out = pieces[0].to_vec();
    let mut any = false;
    for piece in &pieces[1..] {
        match piece.get(..2).and_then(|digits| hex::decode(digits).ok()) {
            Some(byte) => {
                any = true;
                out.extend_from_slice(&byte);
                out.extend_from_slice(&piece[2..]);
            }
            None => {
                out.push(b'%');
                out.extend_from_slice(piece);
            }
        }
    }
    any.then_some(out)
}

/// The text with its backslashes resolved once; `None` when there are none.
pub(super) fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let first = memchr::memchr(b'\\', text)?;
    let mut out = Vec::with_capacity(text.len());
    out.extend_from_slice(&text[..first]);
    let mut rest = &text[first..];
    let mut high: Option<u32> = None;
    while let [first, tail @ ..] = rest {
        if *first != b'\\' {
            out.push(*first);
            rest = tail;
            high = None;
            continue;
        }
        let code = |digits: Option<&[u8]>| {
            let digits = std::str::from_utf8(digits?).ok()?;
            digits
                .bytes()
                .all(|b| b.is_ascii_hexdigit())
                .then(|| u32::from_str_radix(digits, 16).ok())?
        };
        let (letter, used) = match tail.first() {
            Some(b'u') if code(tail.get(1..5)).is_some() => (code(tail.get(1..5)).unwrap_or(0), 5),
            Some(b'x') if code(tail.get(1..3)).is_some() => (code(tail.get(1..3)).unwrap_or(0), 3),
            Some(b'n') => (10, 1),
            Some(b'r') => (13, 1),
            Some(b't') => (9, 1),
            Some(b'b') => (8, 1),
            Some(b'f') => (12, 1),
            Some(other) if other.is_ascii() => (u32::from(*other), 1),
            _ => (92, 0),
        };
        rest = &tail[used..];
        let letter = match (high.take(), letter) {
            (Some(high), 0xdc00..0xe000) => {
                0x10000u32 + ((high - 0xd800) << 10) + (letter - 0xdc00)
            }
            (_, 0xd800..0xdc00) => {
                high = Some(letter);
                continue;
            }
            _ => letter,
        };
        out.extend_from_slice(
            char::from_u32(letter)
                .unwrap_or('\u{fffd}')
                .encode_utf8(&mut [0; 4])
                .as_bytes(),
        );
    }
    (out.len() < text.len()).then_some(out)
}

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// All ways to read a run as base64: of four alignments those that read like text or begin like compressed bytes, or the first.
pub(super) fn base64(run: &[u8]) -> Vec<Vec<u8>> {
    let safe: Vec<u8> = run
        .iter()
        .filter(|b| !b"=\r\n".contains(b))
        .map(|b| match b {
            b'+' => b'-',
            b'/' => b'_',
            other => *other,
        })
        .collect();
    let mut readings = Vec::new();
    for lead in 0..4 {
        let Some(text) = safe.get(lead..) else { break };
        let text = if text.len() % 4 == 1 {
            &text[..text.len() - 1]
        } else {
            text
        };
        let Ok(bytes) = BASE64.decode(text) else {
            break;
        };
        if lead == 0 || has_text(&bytes) || is_packed(&bytes) {
            readings.push(bytes);
        }
    }
    readings
}

/// What a text says that is base64 from its start.
pub(super) fn base64_once(text: &[u8]) -> Option<Vec<u8>> {
    let safe: Vec<u8> = text
        .iter()
        .map(|b| match b {
            b'+' => b'-',
            b'/' => b'_',
            other => *other,
        })
        .collect();
    BASE64.decode(safe).ok()
}

/// What a run of hexadecimal digits says.
pub(super) fn unhex(run: &[u8]) -> Vec<Vec<u8>> {
    let digits: Vec<u8> = run
        .iter()
        .copied()
        .filter(|b| !b"\r\n".contains(b))
        .collect();
    let even = |digits: &[u8]| hex::decode(&digits[..digits.len() & !1]).ok();
    let odd = digits.get(1..).filter(|_| digits.len() % 2 == 1);
    [even(&digits), odd.and_then(even)]
        .into_iter()
        .flatten()
        .collect()
}

fn is_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
        || (bytes.first() == Some(&0x78)
            && bytes
                .get(1)
                .is_some_and(|b| [1, 0x5e, 0x9c, 0xda].contains(b)))
}

/// What compressed bytes hold: nothing when they are none, an error when it is more than `limit`.
pub(super) fn inflated(bytes: &[u8], limit: usize) -> Result<Option<Vec<u8>>, ()> {
    if !is_packed(bytes) {
        return Ok(None);
    }
    let mut out = Vec::new();
    let limit_and_one = limit as u64 + 1;
    let read = if bytes[0] == 0x1f {
        MultiGzDecoder::new(Cursor::new(bytes))
            .take(limit_and_one)
            .read_to_end(&mut out)
    } else {
        ZlibDecoder::new(Cursor::new(bytes))
            .take(limit_and_one)
            .read_to_end(&mut out)
    };
    // what was cut is read as far as it goes
    drop(read);
    if out.len() > limit {
        Err(())
    } else {
        Ok((!out.is_empty()).then_some(out))
    }
}

/// Whether bytes are likely to be text: nineteen of twenty are printed or of another script, seven of ten are printed.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    let (mut printed, mut others) = (0, 0);
    for byte in bytes {
        match byte {
            9 | 10 | 13 | 32..=126 => printed += 1,
            128.. => others += 1,
            _ => {}
        }
    }
    (printed + others) * 20 >= bytes.len() * 19 && printed * 10 >= bytes.len() * 7
}

/// Whether a stretch of 24 bytes reads like text.
fn has_text(bytes: &[u8]) -> bool {
    bytes
        .chunks(24)
        .any(|chunk| chunk.len() >= 12 && chunk.iter().all(|b| matches!(b, 9 | 10 | 13 | 32..=126)))
}
