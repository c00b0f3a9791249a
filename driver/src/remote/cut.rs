//! Where a command's output is cut into events. Bytes in, a length out: the same for the same bytes.

use std::borrow::Cow;

/// The most that one event holds of the output.
pub const PIECE_BYTES: usize = 64 * 1024;

/// What is known of the bytes that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Some may come any moment.
    Growing,
    /// None came for a while.
    Silent,
    /// None will come.
    Ended,
}

/// How much of `bytes`, at most [`PIECE_BYTES`] that begin where the last piece ended, is the next piece. 0: nothing yet.
///
/// Whole lines where there are any; a part of a line when it fills a piece or nothing comes behind it. A character is never cut.
pub fn piece(bytes: &[u8], rest: Rest) -> usize {
    if let Some(newline) = memchr::memrchr(b'\n', bytes) {
        return newline + 1;
    }
    match rest {
        Rest::Ended if bytes.len() < PIECE_BYTES => bytes.len(),
        Rest::Growing if bytes.len() < PIECE_BYTES => 0,
        _ => whole_characters(bytes),
    }
}

/// The length without a character at the end that may not be all there.
fn whole_characters(bytes: &[u8]) -> usize {
    // a character has four bytes at most
    for back in 1..=bytes.len().min(3) {
        let start = bytes.len() - back;
        // the first byte of a character
        if bytes[start] & 0xC0 != 0x80 {
            let cut = std::str::from_utf8(&bytes[start..])
                .is_err_and(|error| error.error_len().is_none());
            return if cut { start } else { bytes.len() };
        }
    }
    bytes.len()
}

/// A piece as an event's text: what is no UTF-8 and what the store's text cannot hold is U+FFFD.
pub fn text(bytes: &[u8]) -> String {
    match String::from_utf8_lossy(bytes) {
        text if !text.contains('\0') => Cow::into_owned(text),
        text => text.replace('\0', "\u{fffd}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Cuts all of `bytes`, seeing them grow by `step`.
    fn pieces(bytes: &[u8], step: usize, silent: bool) -> Vec<&[u8]> {
        let (mut cut, mut seen, mut pieces) = (0, 0, Vec::new());
        loop {
            let window = &bytes[cut..seen.min(cut + PIECE_BYTES)];
            let rest = match (seen == bytes.len(), silent) {
                (true, _) => Rest::Ended,
                (false, true) => Rest::Silent,
                (false, false) => Rest::Growing,
            };
            match piece(window, rest) {
                0 if seen == bytes.len() => return pieces,
                0 => seen = bytes.len().min(seen + step),
                length => {
                    pieces.push(&window[..length]);
                    cut += length;
                }
            }
        }
    }

    #[test]
    fn whole_lines_go_together_and_a_part_waits() {
        assert_eq!(piece(b"", Rest::Ended), 0);
        assert_eq!(piece(b"one\ntwo\nthr", Rest::Growing), 8);
        assert_eq!(piece(b"thr", Rest::Growing), 0);
        assert_eq!(piece(b"thr", Rest::Silent), 3);
        assert_eq!(piece(b"thr", Rest::Ended), 3);
    }

    #[test]
    fn a_character_is_not_cut_but_by_the_end() {
        let euro = "€".as_bytes();
        for part in 1..3 {
            let bytes = [b"ab", &euro[..part]].concat();
            assert_eq!(piece(&bytes, Rest::Silent), 2, "{part}");
            assert_eq!(piece(&euro[..part], Rest::Silent), 0, "{part}");
            assert_eq!(piece(&bytes, Rest::Ended), 2 + part, "{part}");
        }
        assert_eq!(piece(euro, Rest::Silent), 3);
        // never one
        assert_eq!(piece(b"\xff", Rest::Silent), 1);
        assert_eq!(piece(b"\x80\x80\x80\x80", Rest::Silent), 4);
    }

    #[test]
    fn a_line_that_fills_a_piece_is_cut_at_a_character() {
        let line = "€".repeat(PIECE_BYTES);
        let length = piece(&line.as_bytes()[..PIECE_BYTES], Rest::Growing);
        assert_eq!(length, PIECE_BYTES - 1);
    }

    #[test]
    fn what_no_store_holds_is_replaced() {
        assert_eq!(text(b"a\0b\xffc\xe2\x82"), "a\u{fffd}b\u{fffd}c\u{fffd}");
    }

    proptest! {
        #[test]
        fn pieces_are_the_output_in_order(
            parts in proptest::collection::vec(("[a-z€🙂\n]{0,9}", any::<u8>(), 1usize..9000), 1..30),
            step in 1usize..90_000,
            silent: bool,
        ) {
            let mut bytes = Vec::new();
            for (text, byte, times) in parts {
                bytes.extend_from_slice(text.repeat(times).as_bytes());
                bytes.push(byte);
            }
            let pieces = pieces(&bytes, step, silent);
            prop_assert!(pieces.iter().all(|p| !p.is_empty() && p.len() <= PIECE_BYTES));
            prop_assert_eq!(pieces.concat(), &bytes[..]);
            let joined: String = pieces.iter().map(|piece| text(piece)).collect();
            prop_assert_eq!(joined, text(&bytes));
        }
    }
}
