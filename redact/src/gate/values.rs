//! What the gate takes a value for: a secret, or something that only stands where one could.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::names::Kind;
use super::unpack;
use crate::lists::{NO_PASSWORDS, NO_VALUES, TYPES};

/// How a value stands behind its name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Place {
    /// `"name": "value"`.
    Json,
    /// `name = "value"`.
    Quotes,
    /// `NAME=value`.
    Behind,
    /// `name: value`.
    Apart,
}

/// What stands for a value that is not there: in brackets of templates and shells, a variable, an ellipsis, stars.
static TEMPLATE: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"(?-u)^(?:<[^>]*(?:>[^>]*)?>|\$\{[^}]*(?:\}[^}]*)?\}|\{\{[^}]*\}\}|\$\([^)]*(?:\)[^)]*)?\)|%\([^)]*(?:\)[^)]*)?\)s|\{[A-Za-z0-9_.:]*\}|\$(?:[A-Za-z][A-Za-z_]*|[A-Z][A-Z0-9_]*))$|^\.\.\.|^\xe2\x80\xa6|^\*\*\*",
    )
});
/// Tokens that a redactor put there, and nothing else; the last one's bracket may stand behind what a pattern took.
static REDACTED: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"(?-u)^(?:\[redacted:[a-z0-9-]{1,63}(?::[0-9A-Fa-f]{4})?\])*\[redacted:[a-z0-9-]{1,63}(?::[0-9A-Fa-f]{4})?(?:\]\.?)?$",
    )
});
/// One at the start.
static TOKEN: LazyLock<Regex> =
    LazyLock::new(|| constant(r"(?-u)^\[redacted:[a-z0-9-]{1,63}(?::[0-9A-Fa-f]{4})?\]"));
/// Paths, addresses without a password, several words, files by their ending.
static PLACES: LazyLock<Regex> =
    LazyLock::new(|| constant(r"(?-u)^\.?/|^https?://| |^[A-Za-z0-9_-]*\.[a-z]{0,4}$"));
/// Steps of a path in code.
static PATH: LazyLock<Regex> = LazyLock::new(|| {
    constant(r"(?-u)^[.:]*[A-Za-z_][A-Za-z0-9_]*\??(?:[.:]+[A-Za-z_][A-Za-z0-9_]*\??)+[.:]*$")
});
/// A port and a path behind it, a format's place.
static NO_PASSWORD: LazyLock<Regex> =
    LazyLock::new(|| constant(r"(?-u)^(?:[0-9]{1,5}[/?#]|\{|%s)"));

fn constant(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant expression, read by every test")
}

/// What characters a value is made of.
#[derive(Default)]
pub(super) struct Made {
    pub digits: usize,
    letters: usize,
    /// Capital letters right behind small ones.
    humps: usize,
    spaces: usize,
    /// Signs that passwords have ...
    signs: usize,
    /// ... and those that code has too.
    more_signs: usize,
}

pub(super) fn made(value: &[u8]) -> Made {
    let mut made = Made::default();
    let mut small = false;
    for byte in value {
        match byte {
            b'0'..=b'9' => made.digits += 1,
            b'a'..=b'z' | b'A'..=b'Z' => made.letters += 1,
            b' ' | b'\t' | b'\n' | b'\r' | 0x0c => made.spaces += 1,
            b'!' | b'#' | b'%' | b'^' | b'*' | b'+' | b'~' | b'@' => made.signs += 1,
            b'$' | b'?' => made.more_signs += 1,
            _ => {}
        }
        made.humps += usize::from(small && byte.is_ascii_uppercase());
        small = byte.is_ascii_lowercase();
    }
    made
}

impl Made {
    pub fn mixed(&self) -> bool {
        self.digits > 0 && self.letters > 0
    }
}

/// The length of the token that a redactor put at the start of a text.
pub(super) fn token_length(text: &[u8]) -> usize {
    TOKEN
        .find(&text[..text.len().min(80)])
        .map_or(0, |token| token.end())
}

/// Whether a value is nothing but such tokens.
pub(super) fn is_redacted(value: &[u8]) -> bool {
    value.first() == Some(&b'[') && REDACTED.is_match(value)
}

/// Whether a value stands for one that is not there.
pub(super) fn is_no_value(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    let Some(first) = value.first() else {
        return true;
    };
    let is_line = !value.iter().any(|b| b != first);
    (is_line && (value.len() <= 3 || !first.is_ascii_alphanumeric()))
        || NO_VALUES
            .iter()
            .any(|word| word.as_bytes().eq_ignore_ascii_case(value))
        || is_redacted(value)
        || TEMPLATE.is_match(value)
}

/// A token rather than a word.
pub(super) fn is_like_token(value: &[u8]) -> bool {
    let made = made(value);
    (made.digits + made.humps + made.signs > 0) && !is_no_value(value)
}

/// base64 of a name and a password.
pub(super) fn is_credentials(value: &[u8]) -> bool {
    if value.iter().any(|b| b"-_".contains(b)) {
        return false;
    }
    unpack::base64_once(value).is_some_and(|plain| {
        let readable = |b: &u8| !matches!(b, 0..=0x1f | 0x7f..=0x9f);
        plain.len() > 3 && plain.iter().all(readable) && plain.contains(&b':')
    })
}

/// The password of a URL.
pub(super) fn is_of_url(value: &[u8]) -> bool {
    !(NO_PASSWORD.is_match(value)
        || NO_PASSWORDS.iter().any(|word| word.as_bytes() == value)
        || is_no_value(value))
}

/// Whether the value of a name is a secret.
pub(super) fn is_secret(kind: Kind, value: &[u8], place: Place) -> bool {
    if !value.iter().any(u8::is_ascii_alphanumeric) || is_no_value(value) {
        return false;
    }
    if (kind, place) == (Kind::Sure, Place::Json) {
        return true;
    }
    let made = made(value);
    let odd =
        made.mixed() || made.humps > 0 || (made.letters > 0 && made.signs + made.more_signs > 0);
    let one_word = made.spaces == 0;
    match (kind, place) {
        (Kind::Sure, Place::Behind) => {
            value.len() >= if odd { 5 } else { 8 } && !is_of_code(value, &made)
        }
        (Kind::Sure, Place::Quotes) => {
            one_word && value.len() >= if odd { 5 } else { 8 } && !is_place(value)
        }
        (Kind::Sure, _) => odd && value.len() >= 6 && !is_of_code(value, &made),
        (Kind::Likely, Place::Json | Place::Quotes) => {
            one_word && odd && value.len() >= 8 && !is_place(value)
        }
        (Kind::Likely, _) => made.mixed() && value.len() >= 8 && !is_of_code(value, &made),
        (Kind::Perhaps, _) => {
            one_word
                && made.mixed()
                && value.len() >= 16
                && !is_of_code(value, &made)
                && !is_public_id(value)
                && bits(value) >= 3.5
        }
    }
}

/// A path, an address, several words, or a file. Long random letters with a slash in front are none, nor are they with a point in them.
fn is_place(value: &[u8]) -> bool {
    let small = value.iter().any(u8::is_ascii_lowercase);
    let large = value.iter().any(u8::is_ascii_uppercase);
    let digits = value.iter().any(u8::is_ascii_digit);
    let of_key = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'+' | b'=');
    let key = value.len() > 31 && small && large && digits && value.iter().all(of_key);
    let name = made(value.split(|b| *b == b'.').next().unwrap_or(value));
    let odd_name =
        name.mixed() && name.humps > 0 && value.contains(&b'.') && !value.contains(&b'/');
    let spaced = value.contains(&b' ');
    PLACES.is_match(value) && !(key || odd_name && !spaced)
}

/// What code has on the right side: a path, a call, a type, a name of several words.
fn is_of_code(value: &[u8], made: &Made) -> bool {
    let value = match value {
        [b'&', rest @ ..] => rest,
        other => other,
    };
    let value = value.strip_suffix(b"?").unwrap_or(value);
    if TYPES
        .iter()
        .any(|t| t.as_bytes().eq_ignore_ascii_case(value))
        || is_place(value)
    {
        return true;
    }
    if PATH.is_match(value) {
        let few = |step: &[u8]| step.iter().filter(|b| b.is_ascii_digit()).count() <= 2;
        return value.split(|b| b".:".contains(b)).all(few);
    }
    let named = value
        .iter()
        .all(|b| b.is_ascii_alphanumeric() || *b == b'_')
        && value.first().is_some_and(|b| !b.is_ascii_digit());
    let words = value.contains(&b'_') && made.digits <= 3 && made.humps == 0;
    named && (words || made.digits == 0)
}

/// Bits of entropy a character.
pub(super) fn bits(text: &[u8]) -> f64 {
    let mut sorted = text.to_vec();
    sorted.sort_unstable();
    let total = text.len() as f64;
    let spent: f64 = sorted
        .chunk_by(|a, b| a == b)
        .map(|same| same.len() as f64)
        .map(|count| count * count.log2())
        .sum();
    total.log2() - spent / total
}

/// A digest or an id that nobody keeps secret: hexadecimal digits of a known length, or in groups.
pub(super) fn is_public_id(text: &[u8]) -> bool {
    if !text.iter().all(|b| b.is_ascii_hexdigit() || *b == b'-') {
        return false;
    }
    match text.iter().filter(|b| **b == b'-').count() {
        0 => [16, 32, 40, 48, 56, 64, 96, 128].contains(&text.len()),
        3.. => {
            !text.starts_with(b"-") && !text.ends_with(b"-") && !text.windows(2).any(|w| w == b"--")
        }
        _ => false,
    }
}

/// Whether the local part of an address stands in front of its `@` at `at`.
pub(super) fn is_address(text: &[u8], at: usize) -> bool {
    let mut start = at;
    while start > 0
        && (text[start - 1].is_ascii_alphanumeric() || b"._%+-".contains(&text[start - 1]))
    {
        start -= 1;
        if at - start > 64 {
            return false;
        }
    }
    let local = &text[start..at];
    local != b"git"
        && local.iter().any(u8::is_ascii_alphanumeric)
        && !text[..start].ends_with(b"://")
}

/// Whether the line in front of a private key's last line, which begins at `at`, is one of the key's.
pub(super) fn is_rest_of_key(text: &[u8], at: usize) -> bool {
    static BODY: LazyLock<Regex> = LazyLock::new(|| {
        constant(
            r#"(?-u)^(?:(?:Proc-Type:|DEK-Info:|Version:|Comment:|Hash:|Charset:)[^\n]*|[0-9]*(?:[\t|:]|\xe2..)?[ \t\r]*(?:[+>|"'-][ \t\r]*)?[A-Za-z0-9+/=]+\\?)[ \t\r]*$"#,
        )
    });
    let ahead = &text[at.saturating_sub(4096)..at];
    let ahead = ahead.trim_ascii_end_matches(b'-');
    // the last line may stand behind something on its own line
    let near = &ahead[ahead.len().saturating_sub(256)..];
    let Some(line_end) = near.iter().rposition(|b| *b == b'\n') else {
        return false;
    };
    let lines = &ahead[..ahead.len() - near.len() + line_end];
    let line = lines.rsplit(|b| *b == b'\n').next().unwrap_or_default();
    BODY.is_match(line.trim_ascii())
}

/// What std has for white space only.
trait TrimEnd {
    fn trim_ascii_end_matches(&self, byte: u8) -> &[u8];
}

impl TrimEnd for [u8] {
    fn trim_ascii_end_matches(&self, byte: u8) -> &[u8] {
        let kept = self.iter().rposition(|b| *b != byte).map_or(0, |at| at + 1);
        &self[..kept]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_none() {
        for value in [
            "",
            "<token>",
            "${DB_PASSWORD}",
            "{{ secret }}",
            "***",
            "xxx",
            "$TOKEN",
            "None",
            "...",
            "[redacted:jwt:12ab]",
            "[redacted:unresolved][redacted:jwt:12ab]",
            "{password}",
            "$(pass x)",
        ] {
            assert!(is_no_value(value.as_bytes()), "{value}");
        }
        for value in [
            "hunter2",
            "$ecret!",
            "[redacted:jwt:12ab]x",
            "changeme",
            "<a>b<c>d>",
            "aaaaaaaa",
        ] {
            assert!(!is_no_value(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn entropy_and_ids() {
        assert!(bits(b"aaaaaaaa") < 0.01 && (bits(b"abcdefgh") - 3.0).abs() < 0.01);
        assert!(is_public_id(b"3f2504e0-4f89-11d3-9a0c-0305e82c3301"));
        assert!(!is_public_id(b"3f25-4f89-11d3") && !is_public_id(b"3f2504e"));
    }

    #[test]
    fn the_rest_of_a_key() {
        let at =
            |text: &str| is_rest_of_key(text.as_bytes(), text.find("-END").expect("a last line"));
        assert!(at("MIIEow\nabcd==\n-----END PRIVATE KEY-----"));
        assert!(at("12\t+ MIIEow\n13\t-----END PRIVATE KEY-----"));
        assert!(!at("as follows:\n-----END PRIVATE KEY-----"));
        assert!(!at("-----END PRIVATE KEY-----"));
    }
}
