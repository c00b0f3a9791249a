//! Personal data made of digits: cards, bank accounts, telephone numbers, and national ids where they are asked for.

use std::ops::Range;

use crate::lists::IBAN_LENGTHS;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A payment card's number, by its first digits and Luhn's checksum.
    Card,
    /// An international bank account number, by its checksum.
    Iban,
    /// A telephone number, international or North American.
    Phone,
    /// A United States social security number or a British national insurance number.
    National,
}

impl Kind {
    /// What stands in the token.
    pub fn id(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Iban => "iban",
            Self::Phone => "phone",
            Self::National => "national-id",
        }
    }
}

/// Calls `found` for everything of these kinds, in order and without overlaps.
pub(crate) fn scan(text: &[u8], mut found: impl FnMut(Kind, Range<usize>)) {
    let mut at = 0;
    while let Some(digit) = text[at..]
        .iter()
        .position(u8::is_ascii_digit)
        .map(|n| at + n)
    {
        let group = digit + digits(&text[digit..]);
        match at_digits(text, digit) {
            Some((kind, span)) => {
                at = span.end.max(group);
                found(kind, span);
            }
            None => at = group,
        }
    }
}

/// What begins at or right before the digits at `digit`.
fn at_digits(text: &[u8], digit: usize) -> Option<(Kind, Range<usize>)> {
    let before = |n: usize| digit.checked_sub(n).map(|at| text[at]);
    if before(1).is_some_and(|b| b.is_ascii_uppercase()) {
        let start = digit - 2.min(digit);
        // within a word none begins, even if what stands before was passed already
        let in_word = start.checked_sub(1).is_some_and(|at| is_word(text[at]));
        if !before(2).is_some_and(|b| b.is_ascii_uppercase()) || in_word {
            return None;
        }
        return iban(&text[start..])
            .map(|length| (Kind::Iban, start..start + length))
            .or_else(|| {
                nino(&text[start..]).map(|length| (Kind::National, start..start + length))
            });
    }
    if before(1) == Some(b'+') {
        if before(2).is_some_and(is_word) {
            return None;
        }
        // a line of a diff begins with a plus as well
        let in_diff = before(2) == Some(b'\n');
        return international(&text[digit..], in_diff)
            .map(|length| (Kind::Phone, digit - 1..digit + length));
    }
    if before(1).is_some_and(|b| is_word(b) || b".-/:=+".contains(&b) && b != b':' && b != b'=') {
        return None;
    }
    if let Some(length) = card(&text[digit..]) {
        return Some((Kind::Card, digit..digit + length));
    }
    if let Some(length) = north_american(&text[digit..]) {
        let open = before(1) == Some(b'(');
        return Some((Kind::Phone, digit - usize::from(open)..digit + length));
    }
    ssn(&text[digit..]).map(|length| (Kind::National, digit..digit + length))
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|b| b.is_ascii_digit()).count()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Whether nothing that belongs to it follows.
fn ends(text: &[u8], at: usize) -> bool {
    match text.get(at..) {
        Some([b'.' | b'-', next, ..]) => !next.is_ascii_alphanumeric(),
        Some([next, ..]) => !is_word(*next) && *next != b'%',
        _ => true,
    }
}

/// The length of a card's number at the start: digits, or groups of them with one kind of separator.
fn card(text: &[u8]) -> Option<usize> {
    let mut number = [0; 19];
    let (mut count, mut at, mut groups, mut separator, mut best) = (0, 0, 0, None, None);
    loop {
        let group = digits(&text[at..]);
        if group == 0 || count + group > 19 || (groups > 0 && !(2..=7).contains(&group)) {
            break;
        }
        number[count..count + group].copy_from_slice(&text[at..at + group]);
        count += group;
        at += group;
        groups += 1;
        if is_card(&number[..count], groups > 1) && ends(text, at) {
            best = Some(at);
        }
        match text.get(at) {
            Some(next @ (b' ' | b'-')) if separator.is_none_or(|s| s == *next) => {
                separator = Some(*next)
            }
            _ => break,
        }
        at += 1;
    }
    best
}

/// Whether digits are a card's number: of a scheme, in its length, with Luhn's checksum.
pub(crate) fn is_card(number: &[u8], grouped: bool) -> bool {
    let first = |n: usize| {
        number[..n]
            .iter()
            .fold(0u32, |sum, d| sum * 10 + u32::from(d - b'0'))
    };
    if number.len() < 13 {
        return false;
    }
    let (two, three, four) = (first(2), first(3), first(4));
    let scheme = match number.len() {
        13 => two / 10 == 4,
        14 => matches!(three, 300..=305) || matches!(two, 36 | 38 | 39),
        15 => matches!(two, 34 | 37),
        16 => {
            two / 10 == 4
                || matches!(two, 51..=55 | 62 | 65)
                || matches!(four, 2221..=2720 | 3528..=3589 | 6011)
                || matches!(three, 644..=649)
        }
        // ids of this many digits are common, so they must be written like a card's
        17..=19 => grouped && (two / 10 == 4 || matches!(two, 62 | 65)),
        _ => false,
    };
    let varied = number.iter().any(|d| *d != number[0]);
    scheme && varied && luhn(number)
}

fn luhn(number: &[u8]) -> bool {
    let sum: u32 = number
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| {
            let digit = u32::from(digit - b'0') * if at % 2 == 1 { 2 } else { 1 };
            digit / 10 + digit % 10
        })
        .sum();
    sum.is_multiple_of(10)
}

/// The length of an account number at the start.
fn iban(text: &[u8]) -> Option<usize> {
    let country = text.get(..2)?;
    let (_, length) = IBAN_LENGTHS
        .into_iter()
        .find(|(name, _)| name.as_bytes() == country)?;
    let (mut number, mut at) = ([0; 34], 0);
    for (place, letter) in number.iter_mut().enumerate().take(length) {
        if text.get(at) == Some(&b' ') && place % 4 == 0 {
            at += 1;
        }
        *letter = *text
            .get(at)
            .filter(|b| b.is_ascii_uppercase() || b.is_ascii_digit())?;
        at += 1;
    }
    let ordered = number[4..length].iter().chain(&number[..4]);
    let rest = ordered.fold(0u32, |rest, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        letter => (rest * 100 + u32::from(letter - b'A') + 10) % 97,
    });
    (rest == 1 && !text.get(at).is_some_and(|b| is_word(*b))).then_some(at)
}

/// The length of an international number whose digits begin here, behind its plus.
fn international(text: &[u8], in_diff: bool) -> Option<usize> {
    let (mut count, mut at, mut end, mut groups) = (0, 0, 0, 0);
    while at < text.len() && count <= 15 {
        let group = digits(&text[at..]);
        if group == 0 {
            break;
        }
        count += group;
        at += group;
        end = at;
        groups += 1;
        let gap = text[at..]
            .iter()
            .take(3)
            .take_while(|b| b" .()-/".contains(b))
            .count();
        if gap == 0 || gap > 2 {
            break;
        }
        at += gap;
    }
    let compact = groups == 1;
    let likely = match text.first()? {
        b'0' => false,
        b'1' | b'7' => count == 11,
        _ => (if compact {
            if in_diff { 11 } else { 9 }
        } else {
            8
        }..=15)
            .contains(&count),
    };
    (likely && ends(text, end)).then_some(end)
}

/// The length of `212-555-0123`, `(212) 555-0123` (without its first bracket) or `212.555.0123` at the start.
fn north_american(text: &[u8]) -> Option<usize> {
    let (area, rest) = text.split_at_checked(3)?;
    let separator: &[u8] = match rest {
        [b')', b' ', ..] => b") ",
        [b')', ..] => b")",
        [b'-', ..] => b"-",
        [b'.', ..] => b".",
        _ => return None,
    };
    let rest = &rest[separator.len()..];
    let (exchange, line) = (rest.get(..3)?, rest.get(4..8)?);
    let all = |t: &[u8]| t.iter().all(u8::is_ascii_digit);
    let joined = match separator {
        b"." => rest[3] == b'.',
        _ => matches!(rest[3], b'-' | b' '),
    };
    let end = 3 + separator.len() + 8;
    let likely =
        all(area) && all(exchange) && all(line) && joined && area[0] >= b'2' && exchange[0] >= b'2';
    (likely && ends(text, end)).then_some(end)
}

fn ssn(text: &[u8]) -> Option<usize> {
    let number = text.get(..11)?;
    let all = |t: &[u8]| t.iter().all(u8::is_ascii_digit);
    let shaped = number[3] == b'-'
        && number[6] == b'-'
        && all(&number[..3])
        && all(&number[4..6])
        && all(&number[7..]);
    let given = &number[..3] != b"000"
        && &number[..3] != b"666"
        && number[0] != b'9'
        && &number[4..6] != b"00"
        && &number[7..] != b"0000";
    (shaped && given && ends(text, 11)).then_some(11)
}

fn nino(text: &[u8]) -> Option<usize> {
    let number = text.get(..9)?;
    let letters = !b"DFIQUV".contains(&number[0]) && !b"DFIOQUV".contains(&number[1]);
    let shaped = number[2..8].iter().all(u8::is_ascii_digit) && matches!(number[8], b'A'..=b'D');
    (letters && shaped && ends(text, 9)).then_some(9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(Kind, &str)> {
        let mut all = Vec::new();
        scan(text.as_bytes(), |kind, span| all.push((kind, &text[span])));
        all
    }

    #[test]
    fn cards_accounts_and_numbers() {
        use Kind::{Card, Iban, National, Phone};
        for (text, kind, what) in [
            ("pay 4111 1111 1111 1111 12/27", Card, "4111 1111 1111 1111"),
            ("card:4242424242424242", Card, "4242424242424242"),
            ("amex 3782-822463-10005.", Card, "3782-822463-10005"),
            (
                "to DE89 3704 0044 0532 0130 00 now",
                Iban,
                "DE89 3704 0044 0532 0130 00",
            ),
            ("GB82WEST12345698765432", Iban, "GB82WEST12345698765432"),
            ("call +49 (30) 901820-0", Phone, "+49 (30) 901820-0"),
            ("+14155550123", Phone, "+14155550123"),
            ("tel 212-555-0123, or", Phone, "212-555-0123"),
            ("(212) 555-0123", Phone, "(212) 555-0123"),
            ("ssn 536-22-8726.", National, "536-22-8726"),
            ("AB123456C", National, "AB123456C"),
        ] {
            assert_eq!(found(text), [(kind, what)], "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_it() {
        for text in [
            "4111 1111 1111 1112",
            "at 1716239022000 ms",
            "1716239022000000000",
            "0.4111111111111111",
            "2026-08-18T10:00:00.000Z",
            "+00:00",
            "2026-08-18T10:00:00+0200",
            "3f2504e0-4f89-11d3-9a0c-446655440000",
            "@@ -1,70 +1,71 @@",
            "DE88 3704 0044 0532 0130 00",
            "\n+1716239022000",
            "build 1.212.555.0123",
            "0000000000000000",
            "192.168.100.2000",
            "x4111111111111111",
            "4111111111111111%",
            "v2.18.0-555-0123",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }
}
