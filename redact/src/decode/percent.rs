//! Percent-encoded text.

use memchr::memchr;

use super::{Builder, View};

/// Resolves the `%41` of URLs; `None` when there are none.
pub fn percent(text: &[u8]) -> Option<View<'_>> {
    let (first, _) = next(text, 0)?;
    let mut view = Builder::new(text, first);
    while let Some((at, byte)) = next(text, view.at()) {
        view.keep(at);
        view.put(&[byte], 3);
    }
    Some(view.done())
}

/// The next `%XX` from `from` on: where it stands and what it says.
fn next(text: &[u8], from: usize) -> Option<(usize, u8)> {
    let mut at = from;
    loop {
        at += memchr(b'%', text.get(at..)?)?;
        if let Some([_, high, low]) = text.get(at..at + 3)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            return Some((at, high << 4 | low));
        }
        at += 1;
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|d| u8::try_from(d).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_resolve_and_places_are_kept() {
        let text = b"?t=ghp%5Fab%zz%";
        let view = percent(text).expect("one");
        assert_eq!(&view.text[..], b"?t=ghp_ab%zz%");
        assert_eq!(view.origin(3..7), 3..9);
        assert_eq!(view.origin(6..7), 6..9);
        assert_eq!(view.origin(7..9), 9..11);
        assert!(percent(b"100 % of %").is_none());
    }
}
