//! Text without what a terminal does not print.

use memchr::{memchr2, memchr3};

use super::{Builder, View};

const ESC: u8 = 0x1b;

/// Takes escape sequences (colours, links, titles) and invisible characters out: U+200B to U+200F, U+202A to U+202E, U+2060 to U+206F,
/// U+FEFF, U+00AD, and every second byte of a text of two bytes a letter where they are zero; `None` when there are none.
pub fn strip(text: &[u8]) -> Option<View<'_>> {
    if memchr3(ESC, 0xe2, 0xef, text).is_none() && memchr2(0, 0xc2, text).is_none() {
        return None;
    }
    let first = next(text, 0)?.0;
    let mut view = Builder::new(text, first);
    while let Some((at, length)) = next(text, view.at()) {
        view.keep(at);
        view.put(b"", length);
    }
    Some(view.done())
}

/// The next invisible piece from `from` on: where and how long.
fn next(text: &[u8], from: usize) -> Option<(usize, usize)> {
    let mut at = from;
    loop {
        at += text
            .get(at..)?
            .iter()
            .position(|b| matches!(*b, 0 | ESC | 0xc2 | 0xe2 | 0xef))?;
        let length = match text[at] {
            ESC => sequence(&text[at..]),
            // zeroes that end words stand alone
            0 => usize::from(
                text.get(at + 2) == Some(&0) || at.checked_sub(2).is_some_and(|n| text[n] == 0),
            ),
            0xc2 if text.get(at + 1) == Some(&0xad) => 2,
            _ => match text.get(at..at + 3) {
                Some(
                    [0xe2, 0x80, 0x8b..=0x8f | 0xaa..=0xae]
                    | [0xe2, 0x81, 0xa0..=0xaf]
                    | [0xef, 0xbb, 0xbf],
                ) => 3,
                _ => 0,
            },
        };
        if length > 0 {
            return Some((at, length));
        }
        at += 1;
    }
}

/// The length of the escape sequence at the start.
fn sequence(text: &[u8]) -> usize {
    match text.get(1) {
        Some(b'[') => {
            let body = text[2..]
                .iter()
                .take_while(|b| (0x20..0x40).contains(*b))
                .count();
            // a sequence that was cut has no final byte
            2 + body + usize::from(text.get(2 + body).is_some_and(|b| (0x40..0x7f).contains(b)))
        }
        Some(b']' | b'P' | b'^' | b'_') => {
            let end = memchr2(7, ESC, &text[2..]).map_or(text.len(), |n| 2 + n);
            match text.get(end..) {
                Some([7, ..]) => end + 1,
                Some([ESC, b'\\', ..]) => end + 2,
                _ => end,
            }
        }
        Some(b'(' | b')') => 3.min(text.len()),
        Some(0x40..0x7f | b'7' | b'8' | b'=' | b'>') => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_printed_goes_and_places_are_kept() {
        let text = b"tok \x1b[31mabc\x1b[0mdef\x1b]8;;http://x\x07!\xe2\x80\x8b?";
        let view = strip(text).expect("there are some");
        assert_eq!(&view.text[..], b"tok abcdef!?");
        let span = view.origin(4..10);
        assert_eq!(&text[span], b"abc\x1b[0mdef");
        assert!(strip("plain – text « ö ".as_bytes()).is_none());
        let wide = strip(b"t\0o\0k\0 of a\0list\0\xc2\xad").expect("there are some");
        assert_eq!(&wide.text[..], b"tok of a\0list\0");
    }
}
