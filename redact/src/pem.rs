//! The lines of a private key, whole or cut.

use std::ops::Range;

use memchr::{memchr2, memmem, memrchr};

use crate::bounds::MAX_PEM;

/// More than this in front of a key's lines is no prefix of them.
const MAX_AHEAD: usize = 128;

/// From its first line's `-BEGIN ` (at `start`, that line ending at `header`) to the end of the key: its last line, or where
/// lines stop to look like a key's.
pub(crate) fn from_first_line(text: &[u8], start: usize, header: usize) -> Range<usize> {
    let start = start
        - text[..start]
            .iter()
            .rev()
            .take_while(|b| **b == b'-')
            .count();
    let within = &text[header..(header + MAX_PEM).min(text.len())];
    let near = start.saturating_sub(MAX_AHEAD);
    let ahead = text[near..start]
        .iter()
        .rev()
        .take_while(|b| !matches!(b, b'\n' | b'\r'))
        .count();
    // of the lines that look like a key's, and of whatever stands before the last line of the same kind
    let mut end = body(within, ahead);
    if let Some(last) = memmem::find(&within[..(end + 16 + ahead).min(within.len())], b"-END ")
        && last <= end + 8 + ahead
        && let Some(close) = memmem::find(&within[last..], b"KEY").map(|n| last + n)
        && close < last + 64
    {
        let close = close
            + memmem::find(&within[close..(close + 16).min(within.len())], b"--").unwrap_or(3);
        end = close + within[close..].iter().take_while(|b| **b == b'-').count();
    }
    start..header + end
}

/// The lines in front of a last line whose `-END ` is at `start`; `None` when there are none that look like a key's.
pub(crate) fn before_last_line(text: &[u8], start: usize, end: usize) -> Option<Range<usize>> {
    let dashes = start
        - text[..start]
            .iter()
            .rev()
            .take_while(|b| **b == b'-')
            .count();
    let floor = dashes.saturating_sub(MAX_PEM);
    let mut first = dashes;
    // the last line may stand behind something on its own line
    let near = dashes.saturating_sub(256).max(floor);
    let mut line_end = near + memrchr(b'\n', &text[near..dashes])?;
    loop {
        let line_start = memrchr(b'\n', &text[floor..line_end]).map_or(floor, |n| floor + n + 1);
        if line(&text[line_start..line_end]) != Line::Body {
            break;
        }
        first = line_start;
        if line_start == floor {
            break;
        }
        line_end = line_start - 1;
    }
    (first < dashes).then_some(first..end)
}

/// How long the body of a key is of which every line has about so much in front: a time, a file's name.
fn body(text: &[u8], ahead: usize) -> usize {
    let (mut at, mut end) = (0, 0);
    while at < text.len() {
        let next = memchr2(b'\n', b'\r', &text[at..]).map_or(text.len(), |n| at + n + 1);
        match line(&text[at..next]) {
            Line::Other if is_behind(&text[at..next], ahead) => end = next,
            Line::Body => end = next,
            Line::Blank => {}
            Line::Other => {
                // a body that was put on one line
                end = end.max(at + flat_body(&text[at..next]));
                break;
            }
        }
        at = next;
    }
    end
}

/// How long the body is that stands at the start of one line: long words, and whatever leads up to a last line.
fn flat_body(line: &[u8]) -> usize {
    let mut end = 0;
    loop {
        let start = end + line[end..].iter().take_while(|b| **b == b' ').count();
        let word = line[start..].iter().take_while(|b| is_body(**b)).count();
        let behind = line[start + word..].trim_ascii_start();
        if word == 0 || (word < 16 && !behind.starts_with(b"-----END")) {
            return end;
        }
        end = start + word;
    }
}

/// Whether a line is one of a key's behind what every line has in front, give or take a few characters.
fn is_behind(line: &[u8], ahead: usize) -> bool {
    let line = line.trim_ascii_end();
    let word = line.iter().rev().take_while(|b| is_body(**b)).count();
    let front = line.len() - word;
    (1..MAX_AHEAD).contains(&ahead) && word > 0 && front > 0 && front.abs_diff(ahead) <= 4
}

#[derive(PartialEq)]
enum Line {
    Body,
    Blank,
    Other,
}

fn is_body(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)
}

/// What a line looks like without what viewers put in front: numbers, quotes, signs of a diff.
fn line(text: &[u8]) -> Line {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Line::Blank;
    }
    let header = |name: &[u8]| text.starts_with(name);
    if header(b"Proc-Type:")
        || header(b"DEK-Info:")
        || header(b"Version:")
        || header(b"Comment:")
        || header(b"Hash:")
        || header(b"Charset:")
    {
        return Line::Body;
    }
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let body = match text[digits..].first() {
        Some(b'\t' | b'|' | b':') => &text[digits + 1..],
        Some(0xe2) => &text[(digits + 3).min(text.len())..],
        _ => text,
    };
    let body = body.trim_ascii_start();
    let body = match body.first() {
        Some(b'+' | b'>' | b'|' | b'-' | b'"' | b'\'') if body.get(1).is_some() => {
            body[1..].trim_ascii()
        }
        _ => body,
    };
    let body = body.strip_suffix(b"\\").unwrap_or(body);
    if !body.is_empty() && body.iter().all(|b| is_body(*b)) {
        Line::Body
    } else {
        Line::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\ntn5vcm1hbA==\n-----END RSA PRIVATE KEY-----";

    fn found(text: &str) -> String {
        let start = text.find("-BEGIN").expect("a first line");
        let header = text.find("KEY-----").expect("a first line") + 8;
        text[from_first_line(text.as_bytes(), start, header)].to_owned()
    }

    #[test]
    fn whole_keys_cut_keys_and_keys_in_viewers() {
        assert_eq!(found(&format!("a {KEY}\nb")), KEY);
        assert_eq!(found(&KEY.replace('\n', "\r\n")), KEY.replace('\n', "\r\n"));
        let cut = &KEY[..50];
        assert_eq!(found(cut), cut);
        assert_eq!(
            found(&format!("{cut}\nand then it went on.")),
            format!("{cut}\n")
        );
        let numbered =
            "1\t-----BEGIN PRIVATE KEY-----\n2\tMIIEow\n3\t-----END PRIVATE KEY-----\n4\tx y";
        assert_eq!(found(numbered), &numbered[2..numbered.len() - 6]);
        let flat = KEY.replace('\n', " ");
        assert_eq!(found(&flat), flat);
    }

    #[test]
    fn lines_may_have_something_in_front() {
        for front in ["id_rsa:7:", "2026-11-30T12:00:00Z stdout F ", "web-1  | "] {
            let text = format!(
                "{front}{}\n{front}and so on.",
                KEY.replace('\n', &format!("\n{front}"))
            );
            let span = found(&text);
            assert!(span.ends_with("KEY-----"), "{span}");
        }
        assert_eq!(found(&KEY.replace('\n', "\r")), KEY.replace('\n', "\r"));
    }

    #[test]
    fn the_rest_of_a_key_is_found_from_its_last_line() {
        let text = format!("tail of it: x\n{}", &KEY[40..]);
        let start = text.find("-END").expect("a last line");
        let span = before_last_line(text.as_bytes(), start, text.len()).expect("lines in front");
        assert_eq!(&text[span], &KEY[40..]);
        assert!(before_last_line(b"-----END PRIVATE KEY-----", 4, 25).is_none());
    }
}
