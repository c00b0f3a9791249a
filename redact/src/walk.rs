//! The keys, strings and numbers of a valid JSON text, each with the key it stands under.

use std::ops::Range;

use crate::json;
use crate::lists::PAIRS;

/// What stands there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Leaf {
    /// A key; its body without quotes.
    Key,
    /// A string; its body without quotes.
    Text,
    /// A string of an array, behind the one that is its key: the second of two, behind an option, or a header's.
    Beside,
    /// A number.
    Number,
}

/// An open object or array.
#[derive(Default)]
struct Open {
    /// In an object the last key; in an array the key that the array stands under.
    key: Option<Range<usize>>,
    /// The value of this object's `name` or `key`, or else what the object stands under: the key of its `value`.
    named: Option<Range<usize>>,
    array: bool,
    /// Of an array the element before, if it was a string, and how many there were.
    before: Option<Range<usize>>,
    count: usize,
}

/// Calls `found` for every leaf of a valid JSON text, in order, with its place and the place of its key. Elements of an array
/// stand under the array's key; the `value` beside a `name` stands under that name, else under the key of its object.
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
                    let next = colon.map(|next| text[next]);
                    match beside(text, &open, next) {
                        Some(key) => found(Leaf::Beside, body.clone(), Some(key)),
                        None => found(Leaf::Text, body.clone(), key(text, &open)),
                    }
                    name(text, &mut open, body);
                }
                continue;
            }
            b'{' => open.push(Open {
                named: open.last().and_then(|o| o.key.clone()),
                ..Open::default()
            }),
            b'[' => {
                let key = open.last().and_then(|o| o.key.clone());
                open.push(Open {
                    key,
                    array: true,
                    ..Open::default()
                });
            }
            b'}' | b']' => {
                open.pop();
            }
            b',' => {
                if let Some(array) = open.last_mut() {
                    array.count += 1;
                }
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
    let is_value =
        |(_, value): &(&str, &str)| text[key.clone()].eq_ignore_ascii_case(value.as_bytes());
    if !last.array && PAIRS.iter().any(is_value) {
        return last.named.clone().or(Some(key));
    }
    Some(key)
}

/// The string in front of an element, where that is its name; `next` is what stands behind the element.
fn beside(text: &[u8], open: &[Open], next: Option<u8>) -> Option<Range<usize>> {
    let array = open.last().filter(|o| o.array)?;
    let before = array.before.clone()?;
    // names and values of headers, in turns
    let of_headers = array.key.clone().is_some_and(|key| {
        text[key].to_ascii_lowercase().ends_with(b"headers") && array.count % 2 == 1
    });
    let of_pair = array.count == 1 && next == Some(b']');
    let option = matches!(
        text[before.clone()],
        [b'-', b'-', b'a'..=b'z' | b'A'..=b'Z', ..]
    );
    (of_headers || of_pair || option).then_some(before)
}

/// Remembers the value of a `name` for the `value` that may follow.
fn name(text: &[u8], open: &mut [Open], body: Range<usize>) {
    let Some(last) = open.last_mut() else { return };
    if last.array {
        last.before = Some(body);
    } else if let Some(key) = last.key.clone()
        && PAIRS
            .iter()
            .any(|(name, _)| text[key.clone()].eq_ignore_ascii_case(name.as_bytes()))
    {
        last.named = Some(body);
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
