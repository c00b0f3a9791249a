//! Text of HTML and XML, in which `"`, `<`, `&` and whatever else may be written by name or number.

use memchr::memchr;

use super::{Builder, View};

/// The longest that is read, from `&` to `;`.
const LONGEST: usize = 10;

/// Resolves `&quot;`, `&#61;`, `&#x3D;` and their like; `None` when there are none.
pub fn entities(text: &[u8]) -> Option<View<'_>> {
    let (first, ..) = next(text, 0)?;
    let mut view = Builder::new(text, first);
    while let Some((at, length, says)) = next(text, view.at()) {
        view.keep(at);
        view.put(says.encode_utf8(&mut [0; 4]).as_bytes(), length);
    }
    Some(view.done())
}

/// The next from `from` on: where it stands, how long it is, what it says.
fn next(text: &[u8], from: usize) -> Option<(usize, usize, char)> {
    let mut at = from;
    loop {
        at += memchr(b'&', text.get(at..)?)?;
        let near = &text[at + 1..text.len().min(at + LONGEST)];
        if let Some(end) = memchr(b';', near)
            && let Some(says) = says(&near[..end])
        {
            return Some((at, end + 2, says));
        }
        at += 1;
    }
}

fn says(name: &[u8]) -> Option<char> {
    let number = |digits: &[u8], radix| {
        let digits = std::str::from_utf8(digits).ok()?;
        char::from_u32(u32::from_str_radix(digits, radix).ok()?)
    };
    match name {
        b"quot" => Some('"'),
        b"apos" => Some('\''),
        b"amp" => Some('&'),
        b"lt" => Some('<'),
        b"gt" => Some('>'),
        b"nbsp" => Some(' '),
        b"colon" => Some(':'),
        b"equals" => Some('='),
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16),
        [b'#', digits @ ..] => number(digits, 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_resolve_and_places_are_kept() {
        let text = b"a&quot;b&#61;c&#x3D;d &amp;& &nothing; &#; &#x110000;";
        let view = entities(text).expect("some");
        assert_eq!(&view.text[..], b"a\"b=c=d && &nothing; &#; &#x110000;");
        assert_eq!(view.origin(1..2), 1..7);
        assert!(entities(b"?a=1&b=2;&&;").is_none());
    }
}
