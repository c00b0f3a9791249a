//! A program's output as text: line by line, long lines in pieces, no character cut.

use bytes::BytesMut;

use crate::bounds::LINE_PIECE_BYTES;

/// Splits bytes into texts. What is not UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
pub struct Pieces {
    buffer: BytesMut,
}

impl Pieces {
    /// Adds output.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next line with its newline, or a piece of one that is too long to wait for.
    pub fn next_piece(&mut self) -> Option<String> {
        let window = &self.buffer[..self.buffer.len().min(LINE_PIECE_BYTES)];
        let length = match memchr::memchr(b'\n', window) {
            Some(newline) => newline + 1,
            None if window.len() == LINE_PIECE_BYTES => character_border(window),
            None => return None,
        };
        Some(text(&self.buffer.split_to(length)))
    }

    /// What is left without a newline, at the output's end.
    pub fn rest(&mut self) -> Option<String> {
        (!self.buffer.is_empty()).then(|| text(&self.buffer.split()))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The length without a character that is cut at the end.
fn character_border(bytes: &[u8]) -> usize {
    let is_start = |byte: &u8| *byte & 0xc0 != 0x80;
    match bytes.iter().rev().take(4).position(is_start) {
        Some(back) => {
            let start = bytes.len() - 1 - back;
            let whole = match std::str::from_utf8(&bytes[start..]) {
                Ok(_) => true,
                // an error with a length is not mended by more bytes
                Err(fault) => fault.error_len().is_some(),
            };
            if whole { bytes.len() } else { start }
        }
        None => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(bytes: &[u8], chunk: usize) -> Vec<String> {
        let (mut pieces, mut out) = (Pieces::default(), Vec::new());
        for part in bytes.chunks(chunk) {
            pieces.push(part);
            out.extend(std::iter::from_fn(|| pieces.next_piece()));
        }
        out.extend(pieces.rest());
        out
    }

    #[test]
    fn lines_are_whole_and_long_ones_come_in_pieces() {
        assert_eq!(split(b"a\n\nb\r\nc", 2), ["a\n", "\n", "b\r\n", "c"]);
        let long = "é".repeat(LINE_PIECE_BYTES) + "x";
        let pieces = split(long.as_bytes(), 1000);
        assert!(pieces.len() >= 2 && pieces.iter().all(|p| p.len() <= LINE_PIECE_BYTES));
        assert_eq!(pieces.concat(), long);
        assert_eq!(split(b"a\xff\n", 1), ["a\u{fffd}\n"]);
    }

    proptest! {
        #[test]
        fn no_character_is_lost(prefix in 0usize..9, chunk in 1usize..5000) {
            let odd = "x".repeat(prefix) + &"aé😀".repeat(LINE_PIECE_BYTES / 4) + "\nend";
            prop_assert_eq!(split(odd.as_bytes(), chunk).concat(), odd);
        }
    }
}
