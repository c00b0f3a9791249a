//! The keys, strings and numbers of a valid JSON text, each with the key it stands under.

use std::ops::Range;

use crate::json;

/// What stands there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Leaf {
    /// A key; its body without quotes.
    Key,
    /// A string; its body without quotes.
    Text,
    /// A number.
    Number,
}

/// An open object or array.
#[derive(Default)]
struct Open {
    /// In an object the last key; in an array the key that the array stands under.
    key: Option<Range<usize>>,
    /// The value of this object's `name` or `key`: the key of its `value`.
    named: Option<Range<usize>>,
    array: bool,
}

/// Calls `found` for every leaf of a valid JSON text, in order, with its place and the place of its key. Elements of an array
/// stand under the array's key; the `value` beside a `name` stands under that name.
pub(crate) fn walk(text: &[u8], mut found: impl FnMut(Leaf, Range<usize>, Option<Range<usize>>)) {
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'"' => {
                let Some(end) = json::string_end(text, at + 1) else {
                    return;
                };
                let body = at + 1..end;
                at = end + 1;
                let colon = text[at..]
                    .iter()
                    .position(|b| !b.is_ascii_whitespace())
                    .map(|n| at + n);
                if let Some(colon) = colon.filter(|c| text[*c] == b':')
                    && let Some(object) = open.last_mut()
                {
                    object.key = Some(body.clone());
                    found(Leaf::Key, body, None);
                    at = colon + 1;
                } else {
                    found(Leaf::Text, body.clone(), key(text, &open));
                    name(text, &mut open, body);
                }
                continue;
            }
            b'{' => open.push(Open::default()),
            b'[' => {
                let key = open.last().and_then(|o| o.key.clone());
                open.push(Open {
                    key,
                    named: None,
                    array: true,
                });
            }
            b'}' | b']' => {
                open.pop();
            }
            b'-' | b'0'..=b'9' => {
                let length = text[at..]
                    .iter()
                    .take_while(|b| b.is_ascii_digit() || b"+-.eE".contains(b))
                    .count();
                found(Leaf::Number, at..at + length, key(text, &open));
                at += length;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

/// What a value stands under.
fn key(text: &[u8], open: &[Open]) -> Option<Range<usize>> {
    let last = open.last()?;
    let key = last.key.clone()?;
    if !last.array && text[key.clone()].eq_ignore_ascii_case(b"value") {
        return last.named.clone().or(Some(key));
    }
    Some(key)
}

/// Remembers the value of a `name` for the `value` that may follow.
fn name(text: &[u8], open: &mut [Open], body: Range<usize>) {
    if let Some(object) = open.last_mut().filter(|o| !o.array)
        && let Some(key) = object.key.clone()
        && [&b"name"[..], b"key"]
            .iter()
            .any(|n| text[key.clone()].eq_ignore_ascii_case(n))
    {
        object.named = Some(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_and_their_keys() {
        let text = br#"{"a":"x\"y","b" : [1,"t",{"c":-2.5e3}],"env":[{"name":"PW","value":"v"}],"d":true} "#;
        let mut seen = Vec::new();
        walk(text, |leaf, body, key| {
            let show = |r: Range<usize>| String::from_utf8_lossy(&text[r]).into_owned();
            seen.push((leaf, show(body), key.map(show).unwrap_or_default()));
        });
        let expected = [
            (Leaf::Key, "a", ""),
            (Leaf::Text, r#"x\"y"#, "a"),
            (Leaf::Key, "b", ""),
            (Leaf::Number, "1", "b"),
            (Leaf::Text, "t", "b"),
            (Leaf::Key, "c", ""),
            (Leaf::Number, "-2.5e3", "c"),
            (Leaf::Key, "env", ""),
            (Leaf::Key, "name", ""),
            (Leaf::Text, "PW", "name"),
            (Leaf::Key, "value", ""),
            (Leaf::Text, "v", "PW"),
            (Leaf::Key, "d", ""),
        ];
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(l, b, k)| (l, b.to_owned(), k.to_owned()))
            .collect();
        assert_eq!(seen, expected);
    }
}
