//! Personal data made of digits, as the gate tells it.

use std::sync::LazyLock;

use regex::bytes::Regex;

use crate::lists::IBAN_LENGTHS;

/// `212-555-0123`, `(212) 555-0123` without its first bracket, `212.555.0123`.
static AMERICAN: LazyLock<Regex> = LazyLock::new(|| {
    constant(r"(?-u)^[2-9][0-9]{2}(?:(?:\) |\)|-)[2-9][0-9]{2}[- ]|\.[2-9][0-9]{2}\.)[0-9]{4}")
});
/// Groups of digits behind a plus.
static INTERNATIONAL: LazyLock<Regex> =
    LazyLock::new(|| constant(r"(?-u)^[0-9]+(?:[ .()/-]{1,2}[0-9]+)*"));
/// `536-22-8726`; what was never given is told apart below.
static SOCIAL_SECURITY: LazyLock<Regex> =
    LazyLock::new(|| constant(r"(?-u)^([0-8][0-9]{2})-([0-9]{2})-([0-9]{4})"));
/// A British national insurance number.
static INSURANCE: LazyLock<Regex> =
    LazyLock::new(|| constant(r"(?-u)^[A-Z--DFIQUV][A-Z--DFIOQUV][0-9]{6}[A-D]"));

fn constant(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant expression, read by every test")
}

/// Schemes by the range of their first digits, and the lengths of their numbers: (first, last, lengths, lengths in groups).
const SCHEMES: [(&str, &str, &[usize], &[usize]); 13] = [
    ("4", "4", &[13, 16], &[17, 18, 19]),
    ("300", "305", &[14], &[]),
    ("36", "36", &[14], &[]),
    ("38", "39", &[14], &[]),
    ("34", "34", &[15], &[]),
    ("37", "37", &[15], &[]),
    ("51", "55", &[16], &[]),
    ("2221", "2720", &[16], &[]),
    ("3528", "3589", &[16], &[]),
    ("6011", "6011", &[16], &[]),
    ("62", "62", &[16], &[17, 18, 19]),
    ("644", "649", &[16], &[]),
    ("65", "65", &[16], &[17, 18, 19]),
];

/// Calls `found` with the id of everything of these kinds.
pub(super) fn each(text: &[u8], mut found: impl FnMut(&'static str)) {
    let mut at = 0;
    while let Some(next) = text[at..].iter().position(u8::is_ascii_digit) {
        at += next;
        let group = text[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        if let Some(id) = at_group(text, at, group) {
            found(id);
        }
        at += group;
    }
}

/// What a group of so many digits at `at` begins or belongs to.
fn at_group(text: &[u8], at: usize, group: usize) -> Option<&'static str> {
    let (ahead, here) = text.split_at(at);
    match ahead {
        [.., other, b'+'] if is_word(*other) => None,
        [.., b'+'] => {
            let in_diff = ahead.ends_with(b"\n+");
            is_international(here, in_diff).then_some("phone")
        }
        [rest @ .., b'A'..=b'Z', b'A'..=b'Z'] if rest.last().is_none_or(|b| !is_word(*b)) => {
            let whole = &text[at - 2..];
            if is_account(whole) {
                Some("iban")
            } else {
                is_matched(&INSURANCE, whole).then_some("national-id")
            }
        }
        [.., b'.' | b'-' | b'/'] => None,
        [.., other] if is_word(*other) => None,
        _ if begins_card(here, group) => Some("card"),
        _ if group != 3 => None,
        _ if is_matched(&AMERICAN, here) => Some("phone"),
        _ => is_social_security(here).then_some("national-id"),
    }
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte >= 0x80 || byte.is_ascii_alphanumeric()
}

/// Whether what ends in front of this is over.
fn is_over(behind: &[u8]) -> bool {
    match behind {
        [] => true,
        [b'.' | b'-'] => true,
        [b'.' | b'-', next, ..] => !next.is_ascii_alphanumeric(),
        [next, ..] => *next != b'%' && !is_word(*next),
    }
}

fn is_matched(pattern: &Regex, text: &[u8]) -> bool {
    pattern
        .find(text)
        .is_some_and(|found| is_over(&text[found.end()..]))
}

/// Whether a card's number begins here: in one piece, or in pieces with one kind of separator.
fn begins_card(text: &[u8], group: usize) -> bool {
    let (mut number, mut length) = ([0; 19], 0);
    let (mut at, mut between, mut piece) = (0, None, group);
    for pieces in 1.. {
        if (pieces > 1 && !(2..=7).contains(&piece)) || length + piece > 19 {
            return false;
        }
        number[length..length + piece].copy_from_slice(&text[at..at + piece]);
        length += piece;
        at += piece;
        if is_card(&number[..length], pieces > 1) && is_over(&text[at..]) {
            return true;
        }
        match text.get(at) {
            Some(b' ' | b'-') if between.is_none() || between == text.get(at) => {
                between = text.get(at);
                at += 1;
                piece = text[at..].iter().take_while(|b| b.is_ascii_digit()).count();
            }
            _ => return false,
        }
    }
    false
}

/// Whether digits are a card's number.
pub(super) fn is_card(number: &[u8], in_groups: bool) -> bool {
    if !(13..=19).contains(&number.len()) || !matches!(number[0], b'2'..=b'6') {
        return false;
    }
    let of_scheme = SCHEMES.iter().any(|(first, last, lengths, grouped)| {
        let start = number.get(..first.len()).unwrap_or_default();
        first.as_bytes() <= start
            && start <= last.as_bytes()
            && (lengths.contains(&number.len()) || (in_groups && grouped.contains(&number.len())))
    });
    of_scheme && number.windows(2).any(|w| w[0] != w[1]) && is_luhn(number)
}

fn is_luhn(number: &[u8]) -> bool {
    const TWICE: [u32; 10] = [0, 2, 4, 6, 8, 1, 3, 5, 7, 9];
    let mut sum = 0;
    for (place, digit) in number.iter().rev().enumerate() {
        let digit = digit - b'0';
        sum += match place % 2 {
            0 => u32::from(digit),
            _ => TWICE[usize::from(digit)],
        };
    }
    sum % 10 == 0
}

/// Whether a bank account's number begins here.
fn is_account(text: &[u8]) -> bool {
    let Some((_, length)) = IBAN_LENGTHS
        .iter()
        .find(|(country, _)| text.starts_with(country.as_bytes()))
    else {
        return false;
    };
    let (mut number, mut rest) = (String::new(), text);
    while number.len() < *length {
        // a space is allowed in front of each four
        if let [b' ', tail @ ..] = rest
            && number.len() % 4 == 0
        {
            rest = tail;
        }
        match rest {
            [byte @ (b'A'..=b'Z' | b'0'..=b'9'), tail @ ..] => {
                number.push(char::from(*byte));
                rest = tail;
            }
            _ => return false,
        }
    }
    let decimal: String = number[4..]
        .chars()
        .chain(number[..4].chars())
        .filter_map(|c| c.to_digit(36))
        .map(|digit| digit.to_string())
        .collect();
    let remainder = decimal
        .bytes()
        .fold(0, |rest, digit| (rest * 10 + u32::from(digit - b'0')) % 97);
    remainder == 1 && !rest.first().is_some_and(|b| is_word(*b))
}

/// Whether an international number stands behind a plus.
fn is_international(text: &[u8], in_diff: bool) -> bool {
    let Some(found) = INTERNATIONAL.find(text) else {
        return false;
    };
    let number = found.as_bytes();
    let digits = number.iter().filter(|b| b.is_ascii_digit()).count();
    let least = match digits == number.len() {
        true if in_diff => 11,
        true => 9,
        false => 8,
    };
    let likely = match number[0] {
        b'0' => false,
        b'1' | b'7' => digits == 11,
        _ => (least..=15).contains(&digits),
    };
    likely && is_over(&text[number.len()..])
}

fn is_social_security(text: &[u8]) -> bool {
    SOCIAL_SECURITY.captures(text).is_some_and(|found| {
        !matches!(&found[1], b"000" | b"666")
            && &found[2] != b"00"
            && &found[3] != b"0000"
            && is_over(&text[found[0].len()..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&'static str> {
        let mut ids = Vec::new();
        each(text.as_bytes(), |id| ids.push(id));
        ids
    }

    #[test]
    fn numbers_that_are_somebodys() {
        for (text, id) in [
            ("pay 4111 1111 1111 1111 12/27", "card"),
            ("amex 3782-822463-10005.", "card"),
            ("to DE89 3704 0044 0532 0130 00 now", "iban"),
            ("GB82WEST12345698765432", "iban"),
            ("call +49 (30) 901820-0", "phone"),
            ("+14155550123", "phone"),
            ("tel 212-555-0123, or", "phone"),
            ("(212) 555-0123", "phone"),
            ("ssn 536-22-8726.", "national-id"),
            ("AB123456C", "national-id"),
        ] {
            assert_eq!(found(text), [id], "{text}");
        }
    }

    #[test]
    fn numbers_that_are_nobodys() {
        for text in [
            "4111 1111 1111 1112",
            "at 1716239022000 ms",
            "0.4111111111111111",
            "2026-08-18T10:00:00.000Z",
            "2026-08-18T10:00:00+0200",
            "3f2504e0-4f89-11d3-9a0c-446655440000",
            "@@ -1,70 +1,71 @@",
            "DE88 3704 0044 0532 0130 00",
            "\n+1716239022000",
            "build 1.212.555.0123",
            "0000000000000000",
            "x4111111111111111",
            "4111111111111111%",
            "666-22-8726",
        ] {
            assert_eq!(found(text), Vec::<&str>::new(), "{text}");
        }
    }
}
