//! JSON as programs print it: half a surrogate pair, which no text can hold, becomes U+FFFD.

use serde_json::Value;

use super::Object;

/// A JSON object, or nothing.
pub fn parse(line: &str) -> Option<Object> {
    let value = serde_json::from_str(line).or_else(|_| serde_json::from_str(&repaired(line)));
    match value {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

/// The text with every `\uD800`-`\uDFFF` that has no other half replaced.
fn repaired(line: &str) -> String {
    let bytes = line.as_bytes();
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
            Some(0xd800..=0xdfff) => {
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
    String::from_utf8_lossy(&out).into_owned()
}

/// The code unit of an escape `\uXXXX` at this place.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
    u16::from_str_radix(digits, 16).ok()
}
