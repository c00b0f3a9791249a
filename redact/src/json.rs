//! The strings of a JSON text: where they stand, what they say, and how a changed one is written back.
//!
//! Text is handled as bytes in which a lone surrogate (JSON allows `"\ud800"`) has the three bytes UTF-8 would give it, so
//! that nothing a client would see is lost on the way.

use std::borrow::Cow;
use std::ops::Range;

/// The bodies of all strings of a valid JSON text, without their quotes; keys and values.
pub fn strings(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].iter().position(|b| *b == b'"')? + 1;
        let mut end = start;
        while *text.get(end)? != b'"' {
            end += if text[end] == b'\\' { 2 } else { 1 };
        }
        at = end + 1;
        Some(start..end)
    })
}

/// A string's text, and where each of its bytes came from.
pub struct Decoded<'a> {
    /// The text.
    pub text: Cow<'a, [u8]>,
    /// For every byte of the text the start of its character or escape in the body, and the body's length at the end.
    /// `None` when the two are the same.
    origins: Option<Vec<usize>>,
}

impl Decoded<'_> {
    /// The span of the body that says this span of the text.
    pub fn origin(&self, span: Range<usize>) -> Range<usize> {
        match &self.origins {
            None => span,
            Some(origins) => origins[span.start]..origins[span.end],
        }
    }
}

/// Resolves a body's escapes.
pub fn decode(body: &[u8]) -> Decoded<'_> {
    if !body.contains(&b'\\') {
        return Decoded {
            text: Cow::Borrowed(body),
            origins: None,
        };
    }
    let (mut text, mut origins) = (
        Vec::with_capacity(body.len()),
        Vec::with_capacity(body.len()),
    );
    let mut at = 0;
    while at < body.len() {
        let start = at;
        if body[at] != b'\\' {
            text.push(body[at]);
            at += 1;
        } else if let Some((unit, length)) = unit_at(&body[at..]) {
            let low = unit_at(&body[at + length..]).filter(|_| is_high(unit));
            match low.filter(|(low, _)| is_low(*low)) {
                Some((low, low_length)) => {
                    push_char(&mut text, combine(unit, low));
                    at += length + low_length;
                }
                None => {
                    push_char(&mut text, u32::from(unit));
                    at += length;
                }
            }
        } else {
            let escaped = body.get(at + 1).copied().unwrap_or(b'\\');
            text.push(match escaped {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'b' => 8,
                b'f' => 12,
                other => other,
            });
            at += 2;
        }
        origins.resize(text.len(), start);
    }
    origins.push(body.len());
    Decoded {
        text: Cow::Owned(text),
        origins: Some(origins),
    }
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
            push_char(&mut first, combine(high, low));
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

fn push_char(text: &mut Vec<u8>, code: u32) {
    match char::from_u32(code) {
        Some(c) => text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        // only surrogates are no characters here
        None => text.extend_from_slice(&[
            0xe0 | (code >> 12) as u8,
            0x80 | (code >> 6 & 0x3f) as u8,
            0x80 | (code & 0x3f) as u8,
        ]),
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
