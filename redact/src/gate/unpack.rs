//! The gate's own decoders. They keep no places: it is enough to know what a text says.

use std::io::{Cursor, Read};

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

/// Where a byte of a terminal's text is.
#[derive(Clone, Copy, PartialEq)]
enum Printing {
    /// Printed.
    Yes,
    /// Behind ESC.
    Escape,
    /// In a sequence of parameters, which ends with a letter.
    Parameters,
    /// In a text for the terminal itself, which ends with BEL or ESC and a backslash.
    Private,
    /// Behind ESC in such a text.
    PrivateEscape,
    /// In the name of a character set.
    Set,
}

/// The text without what a terminal does not print, invisible characters among it; `None` when there is nothing of it.
pub(super) fn printed(text: &[u8]) -> Option<Vec<u8>> {
    let shown = memchr::memchr3(0x1b, 0xe2, 0xef, text);
    let first = match (shown, memchr::memchr2(0, 0xc2, text)) {
        (Some(one), Some(other)) => one.min(other),
        (one, other) => one.or(other)?,
    };
    let mut out = Vec::with_capacity(text.len());
    out.extend_from_slice(&text[..first]);
    let (mut state, mut at) = (Printing::Yes, first);
    while at < text.len() {
        let byte = text[at];
        state = match (state, byte) {
            (Printing::Yes, 0x1b) => Printing::Escape,
            (Printing::Yes, 0xe2 | 0xef) if is_invisible(&text[at..]) => {
                at += 3;
                continue;
            }
            (Printing::Yes, 0xc2) if text[at..].starts_with("\u{ad}".as_bytes()) => {
                at += 2;
                continue;
            }
            // of a text of two bytes a letter
            (Printing::Yes, 0) if text.get(at + 2) == Some(&0) || at >= 2 && text[at - 2] == 0 => {
                at += 1;
                continue;
            }
            (Printing::Yes, _) => {
                let of_note = |b: &u8| [0, 0x1b, 0xc2, 0xe2, 0xef].contains(b);
                let end = text[at + 1..].iter().position(of_note);
                let end = end.map_or(text.len(), |n| at + 1 + n);
                out.extend_from_slice(&text[at..end]);
                at = end;
                continue;
            }
            (Printing::Escape, b'[') => Printing::Parameters,
            (Printing::Escape, b']' | b'P' | b'^' | b'_') => Printing::Private,
            (Printing::Escape, b'(' | b')') => Printing::Set,
            (Printing::Escape, b'@'..=b'~' | b'7' | b'8' | b'=' | b'>') => Printing::Yes,
            (Printing::Parameters, b' '..=b'?') => Printing::Parameters,
            (Printing::Parameters, b'@'..=b'~') | (Printing::Set, _) => Printing::Yes,
            // what does not belong to the sequence is printed
            (Printing::Escape | Printing::Parameters, _) => {
                state = Printing::Yes;
                continue;
            }
            (Printing::Private, 7) | (Printing::PrivateEscape, b'\\') => Printing::Yes,
            (Printing::Private, 0x1b) => Printing::PrivateEscape,
            (Printing::Private, _) => Printing::Private,
            // the escape began another sequence
            (Printing::PrivateEscape, _) => {
                state = Printing::Escape;
                continue;
            }
        };
        at += 1;
    }
    (out.len() < text.len()).then_some(out)
}

/// What shows nothing and joins nothing: spaces without width, marks and isolates of directions, the byte order mark.
fn is_invisible(text: &[u8]) -> bool {
    let Some(first) = text.get(..3).and_then(|b| std::str::from_utf8(b).ok()) else {
        return false;
    };
    matches!(
        first.chars().next(),
        Some(
            '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}',
        )
    )
}

/// The text with its `%XX` resolved; `None` when there are none.
pub(super) fn unpercent(text: &[u8]) -> Option<Vec<u8>> {
    let first = memchr::memchr(b'%', text)?;
    let mut out = Vec::with_capacity(text.len());
    out.extend_from_slice(&text[..first]);
    let mut rest = &text[first..];
    while let Some((percent, tail)) = rest.split_first() {
        let mut byte = [0];
        match tail
            .get(..2)
            .map(|digits| hex::decode_to_slice(digits, &mut byte))
        {
            Some(Ok(())) => {
                out.push(byte[0]);
                rest = &tail[2..];
            }
            _ => {
                out.push(*percent);
                rest = tail;
            }
        }
        let plain = memchr::memchr(b'%', rest).unwrap_or(rest.len());
        out.extend_from_slice(&rest[..plain]);
        rest = &rest[plain..];
    }
    (out.len() < text.len()).then_some(out)
}

/// The text with its entities of HTML resolved; `None` when there are none.
pub(super) fn unentitied(text: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(b'&', text)?;
    let mut out = Vec::with_capacity(text.len());
    let mut pieces = text.split(|b| *b == b'&');
    out.extend_from_slice(pieces.next().unwrap_or_default());
    for piece in pieces {
        let name_end = piece.iter().take(9).position(|b| *b == b';');
        let meant = name_end.and_then(|end| entity(std::str::from_utf8(&piece[..end]).ok()?));
        match (meant, name_end) {
            (Some(meant), Some(end)) => {
                out.extend_from_slice(meant.encode_utf8(&mut [0; 4]).as_bytes());
                out.extend_from_slice(&piece[end + 1..]);
            }
            _ => {
                out.push(b'&');
                out.extend_from_slice(piece);
            }
        }
    }
    (out.len() < text.len()).then_some(out)
}

fn entity(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        return char::from_u32(code.ok()?);
    }
    let named = [
        ("amp", '&'),
        ("lt", '<'),
        ("gt", '>'),
        ("quot", '"'),
        ("apos", '\''),
        ("nbsp", ' '),
        ("colon", ':'),
        ("equals", '='),
    ];
    named.iter().find(|(of, _)| *of == name).map(|(_, c)| *c)
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
            // of another letter the backslash alone goes
            Some(_) => {
                high = None;
                rest = tail;
                continue;
            }
            None => (92, 0),
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
    let (mut printed, mut others, mut zeroes) = (0, 0, 0);
    for byte in bytes {
        match byte {
            9 | 10 | 13 | 32..=126 => printed += 1,
            128.. => others += 1,
            0 => zeroes += 1,
            _ => {}
        }
    }
    let mut length = bytes.len();
    // of two bytes a letter
    if zeroes * 5 >= length * 2 {
        length -= zeroes;
    }
    (printed + others) * 20 >= length * 19 && printed * 10 >= length * 7
}

/// Whether a stretch of 24 bytes reads like text.
fn has_text(bytes: &[u8]) -> bool {
    bytes
        .chunks(24)
        .any(|chunk| chunk.len() >= 12 && chunk.iter().all(|b| matches!(b, 9 | 10 | 13 | 32..=126)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_printed() {
        let printed =
            |text: &[u8]| printed(text).map(|text| String::from_utf8_lossy(&text).into_owned());
        let text = b"tok \x1b[31mabc\x1b[0mdef\x1b]8;;http://x\x07!\xe2\x80\x8b?";
        assert_eq!(printed(text).as_deref(), Some("tok abcdef!?"));
        assert_eq!(
            printed(b"a\x1b(Bb\x1b]0;t\x1b\\c\x1b[1").as_deref(),
            Some("abc")
        );
        assert_eq!(printed(b"a\x1b\x1b[1mb").as_deref(), Some("ab"));
        assert_eq!(printed("plain \u{2013} text".as_bytes()), None);
    }

    #[test]
    fn what_percents_say() {
        let says =
            |text: &[u8]| unpercent(text).map(|text| String::from_utf8_lossy(&text).into_owned());
        assert_eq!(
            says(b"?t=ghp%5Fab%zz%%41%").as_deref(),
            Some("?t=ghp_ab%zz%A%")
        );
        assert_eq!(says(b"100 % of %"), None);
    }
}
