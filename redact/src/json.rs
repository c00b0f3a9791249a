//! The strings of a JSON text: where they stand, what they say, and how a changed one is written back.
//!
//! Text is handled as bytes in which a lone surrogate (JSON allows `"\ud800"`) has the three bytes UTF-8 would give it, so
//! that nothing a client would see is lost on the way.

use std::ops::Range;

use memchr::{memchr, memchr2};

use crate::decode::{Builder, View};

/// The bodies of all strings of a valid JSON text, without their quotes; keys and values.
pub fn strings(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + memchr(b'"', &text[at..])? + 1;
        let end = string_end(text, start)?;
        at = end + 1;
        Some(start..end)
    })
}

/// Where the string whose body begins at `start` has its closing quote.
pub fn string_end(text: &[u8], start: usize) -> Option<usize> {
    let mut end = start;
    loop {
        end += memchr2(b'"', b'\\', text.get(end..)?)?;
        if text[end] == b'"' {
            return Some(end);
        }
        end += 2;
    }
}

/// Resolves a body's escapes. What is no escape of JSON loses its backslash, but for `\xHH`, which other languages write.
pub fn decode(body: &[u8]) -> View<'_> {
    let Some(first) = memchr(b'\\', body) else {
        return View::same(body);
    };
    let mut view = Builder::new(body, first);
    while view.at() < body.len() {
        let at = view.at();
        if body[at] != b'\\' {
            let next = memchr(b'\\', &body[at..]).map_or(body.len(), |n| at + n);
            view.keep(next);
            continue;
        }
        let mut text = [0; 4];
        let (text, length): (&[u8], usize) = match unit_at(&body[at..]) {
            Some((unit, length)) => {
                let low =
                    unit_at(&body[at + length..]).filter(|(low, _)| is_high(unit) && is_low(*low));
                let code = low.map_or(u32::from(unit), |(low, _)| combine(unit, low));
                (
                    char_bytes(code, &mut text),
                    length + low.map_or(0, |(_, l)| l),
                )
            }
            None => match body.get(at + 1) {
                Some(b'x') if byte_at(&body[at + 2..]).is_some() => {
                    let byte = byte_at(&body[at + 2..]).unwrap_or_default();
                    (char_bytes(u32::from(byte), &mut text), 4)
                }
                next => {
                    text[0] = match next.copied().unwrap_or(b'\\') {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 8,
                        b'f' => 12,
                        other => other,
                    };
                    (&text[..1], 2.min(body.len() - at))
                }
            },
        };
        view.put(text, length);
    }
    view.done()
}

/// Writes a text as a string's body.
pub fn encode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 8);
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control @ 0..0x20 => out.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
            0xed => {
                if let Some(unit) = surrogate(&text[at..]) {
                    out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                    at += 3;
                    continue;
                }
                out.push(0xed);
            }
            other => out.push(other),
        }
        at += 1;
    }
    out
}

/// Whether a text ends in the first half of a surrogate pair.
pub fn ends_in_half_a_pair(text: &[u8]) -> bool {
    text.len() >= 3 && surrogate(&text[text.len() - 3..]).is_some_and(is_high)
}

/// Joins two texts; halves of a surrogate pair that meet become their character.
pub fn join(mut first: Vec<u8>, second: &[u8]) -> Vec<u8> {
    let high = first
        .len()
        .checked_sub(3)
        .and_then(|at| surrogate(&first[at..]))
        .filter(|unit| is_high(*unit));
    match (high, surrogate(second).filter(|unit| is_low(*unit))) {
        (Some(high), Some(low)) => {
            first.truncate(first.len() - 3);
            first.extend_from_slice(char_bytes(combine(high, low), &mut [0; 4]));
            first.extend_from_slice(&second[3..]);
        }
        _ => first.extend_from_slice(second),
    }
    first
}

fn is_high(unit: u16) -> bool {
    (0xd800..0xdc00).contains(&unit)
}

fn is_low(unit: u16) -> bool {
    (0xdc00..0xe000).contains(&unit)
}

fn combine(high: u16, low: u16) -> u32 {
    0x10000 + ((u32::from(high) - 0xd800) << 10) + (u32::from(low) - 0xdc00)
}

/// A `\uXXXX` at the start of `body`, with its length.
fn unit_at(body: &[u8]) -> Option<(u16, usize)> {
    let digits = body.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
    let unit = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    Some((unit, 6))
}

/// A lone surrogate at the start of `text`.
fn surrogate(text: &[u8]) -> Option<u16> {
    match text {
        [0xed, second @ 0xa0..=0xbf, third, ..] => {
            Some(0xd000 | (u16::from(second & 0x3f) << 6) | u16::from(third & 0x3f))
        }
        _ => None,
    }
}

/// Two digits at the start of `text`.
fn byte_at(text: &[u8]) -> Option<u8> {
    let digits = text.get(..2)?;
    digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn char_bytes(code: u32, bytes: &mut [u8; 4]) -> &[u8] {
    match char::from_u32(code) {
        Some(c) => c.encode_utf8(bytes).as_bytes(),
        // only surrogates are no characters here
        None => {
            *bytes = [
                0xe0 | (code >> 12) as u8,
                0x80 | (code >> 6 & 0x3f) as u8,
                0x80 | (code & 0x3f) as u8,
                0,
            ];
            &bytes[..3]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_resolve_and_know_where_they_came_from() {
        let body = br#"a\/\u00e9\ud83d\ude00\ud800\n"#;
        let decoded = decode(body);
        let mut expected = "a/é😀".as_bytes().to_vec();
        expected.extend_from_slice(&[0xed, 0xa0, 0x80, b'\n']);
        assert_eq!(&decoded.text[..], expected);
        assert_eq!(decoded.origin(1..2), 1..3);
        assert_eq!(decoded.origin(4..8), 9..21);
        assert_eq!(decoded.origin(8..11), 21..27);
        assert_eq!(decoded.origin(0..expected.len()), 0..body.len());
    }

    #[test]
    fn halves_of_a_pair_meet() {
        let (high, low) = (decode(br"\ud83d").text, decode(br"\ude00!").text);
        assert!(ends_in_half_a_pair(&high));
        assert_eq!(join(high.into_owned(), &low), "😀!".as_bytes());
    }

    #[test]
    fn strings_are_found_whatever_they_hold() {
        let text = br#"{"a":"x\"y","b\\":[1,"{\"c\":2}",""]}"#;
        let found: Vec<_> = strings(text)
            .map(|s| String::from_utf8_lossy(&text[s]).into_owned())
            .collect();
        assert_eq!(found, ["a", r#"x\"y"#, r"b\\", r#"{\"c\":2}"#, ""]);
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_back(text in any::<String>()) {
            let body = encode(text.as_bytes());
            prop_assert_eq!(&decode(&body).text[..], text.as_bytes());
            let parsed: String = serde_json::from_slice(&[b"\"", &body[..], b"\""].concat()).expect("valid JSON");
            prop_assert_eq!(parsed, text);
        }
    }
}
