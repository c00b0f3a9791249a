//! JSON as programs print it, without what the store's text cannot hold: a NUL and half a surrogate pair become U+FFFD, wherever they stand.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// An object.
pub type Object = Map<String, Value>;

/// The object of a line, or nothing.
pub fn object(line: &str) -> Option<Object> {
    let line = line.trim();
    if !line.starts_with('{') {
        return None;
    }
    match value(line) {
        Some(Value::Object(object)) => Some(object),
        _ => None,
    }
}

/// Any JSON, or nothing.
pub fn value(text: &str) -> Option<Value> {
    serde_json::from_str(&mended(text)).ok()
}

/// A string field.
pub fn text<'a>(object: &'a Object, field: &str) -> Option<&'a str> {
    object.get(field)?.as_str()
}

/// An object field.
pub fn inner<'a>(object: &'a Object, field: &str) -> Option<&'a Object> {
    object.get(field)?.as_object()
}

/// Any field; null where there is none.
pub fn any(object: &Object, field: &str) -> Value {
    object.get(field).cloned().unwrap_or(Value::Null)
}

/// JSON in a string, as calls have their arguments; what is none stays a string.
pub fn in_text(text: &str) -> Value {
    value(text).unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The text with every `\u0000`, and every `\uD800`-`\uDFFF` that has no other half, replaced.
fn mended(text: &str) -> Cow<'_, str> {
    if !text.contains("\\u") {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        match unit(bytes, at) {
            Some(0xd800..=0xdbff) if matches!(unit(bytes, at + 6), Some(0xdc00..=0xdfff)) => {
                out.extend_from_slice(&bytes[at..at + 12]);
                at += 12;
            }
            Some(0 | 0xd800..=0xdfff) => {
                out.extend_from_slice(b"\\ufffd");
                at += 6;
            }
            _ => {
                // with what it escapes, so that `\\ud800` stays what it is
                let end = (at + 2).min(bytes.len());
                out.extend_from_slice(&bytes[at..end]);
                at = end;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

/// The code unit of an escape `\uXXXX` at this place.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
