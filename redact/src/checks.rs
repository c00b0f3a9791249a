//! What a found text must be like besides its pattern, so that prose and code are left alone.

use std::sync::LazyLock;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;

use crate::keys::Sensitivity;
use crate::lists::{NO_PASSWORDS, NO_VALUES, TYPES};
use crate::rules::TOKEN_START;

/// Named in the rules.
#[derive(Debug, Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Nothing more.
    #[default]
    None,
    /// Letters and a digit.
    Mixed,
    /// A digit.
    Digit,
    /// Like a token and unlike a word.
    Tokenish,
    /// base64 of `user:password`.
    Basic,
    /// No port, no placeholder.
    UrlPassword,
    /// By the name in front: see [`looks_assigned`].
    Assignment,
    /// With the local part in front.
    Email,
    /// With the lines of a private key behind.
    Pem,
    /// With the lines of a private key in front.
    PemRest,
}

/// Decodes with or without padding, trailing bits and all: decoders in use are as lenient.
pub const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);

pub fn has_digit(text: &[u8]) -> bool {
    text.iter().any(u8::is_ascii_digit)
}

pub fn is_mixed(text: &[u8]) -> bool {
    has_digit(text) && text.iter().any(u8::is_ascii_alphabetic)
}

/// A capital letter after a small one: "aB", which words do not have.
fn has_inner_capital(text: &[u8]) -> bool {
    text.windows(2)
        .any(|w| w[0].is_ascii_lowercase() && w[1].is_ascii_uppercase())
}

pub fn is_tokenish(text: &[u8]) -> bool {
    !is_placeholder(text)
        && (has_digit(text)
            || has_inner_capital(text)
            || text.iter().any(|b| b"!#%^*+~@".contains(b)))
}

pub fn is_basic(text: &[u8]) -> bool {
    let Ok(plain) = BASE64.decode(text) else {
        return false;
    };
    plain.len() >= 4
        && plain.contains(&b':')
        && plain.iter().all(|b| (0x20..0x7f).contains(b) || *b >= 0xa0)
}

/// Whether a value stands for one that is not there: `<token>`, `${TOKEN}`, `****`, a token of ours.
pub fn is_placeholder(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    let Some(first) = value.first() else {
        return true;
    };
    if value.iter().all(|b| b == first) && (value.len() < 4 || !first.is_ascii_alphanumeric()) {
        return true;
    }
    if NO_VALUES
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
        || is_tokens(value)
    {
        return true;
    }
    match first {
        b'<' | b'{' | b'%' => is_wrapped(value),
        b'$' => is_wrapped(value) || is_variable(&value[1..]),
        b'.' => value.starts_with(b"..."),
        b'*' => value.starts_with(b"***"),
        _ => value.starts_with("…".as_bytes()),
    }
}

/// Whether a value is a place for one: `<token>`, `${TOKEN}`, `{{ token }}`.
fn is_wrapped(value: &[u8]) -> bool {
    let wrapped = |open: &[u8], close: &[u8]| {
        value.len() > open.len()
            && value.starts_with(open)
            && value.ends_with(close)
            && value.iter().filter(|b| **b == close[0]).count() <= 2
    };
    let name = |b: &u8| b.is_ascii_alphanumeric() || b"_.:".contains(b);
    wrapped(b"<", b">")
        || wrapped(b"${", b"}")
        || wrapped(b"{{", b"}}")
        || wrapped(b"$(", b")")
        || wrapped(b"%(", b")s")
        || (wrapped(b"{", b"}") && value[1..value.len() - 1].iter().all(name))
}

/// Whether what stands behind `$` is a variable's name, and not the rest of a password.
fn is_variable(name: &[u8]) -> bool {
    name.first().is_some_and(u8::is_ascii_alphabetic)
        && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
        && (!has_digit(name) || !name.iter().any(u8::is_ascii_lowercase))
}

/// Whether a value is tokens of ours and nothing else; a pattern that stops at brackets takes the last one without its own.
pub fn is_tokens(mut value: &[u8]) -> bool {
    let mut any = false;
    while let Some(end) = crate::token::length_at(value) {
        value = &value[end..];
        any = true;
    }
    // the end of a sentence is no part of what was taken out
    if value.is_empty() || value == b"." {
        return any;
    }
    if !value.starts_with(TOKEN_START.as_bytes()) {
        return false;
    }
    let closed = [value, b"]"].concat();
    value.len() < 80 && crate::token::length_at(&closed) == Some(closed.len())
}

/// How a value stands behind its name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Style {
    /// `"name": "value"`.
    Json,
    /// `name = "value"`.
    Quoted,
    /// `NAME=value`, nothing between.
    Tight,
    /// `name: value`, as code and prose do it too.
    Loose,
}

/// Whether a value of a sensitive name is a secret. Of a [`Sensitivity::Secret`] in JSON everything is but placeholders.
pub fn looks_assigned(how: Sensitivity, value: &[u8], style: Style) -> bool {
    let plain = || !value.iter().any(u8::is_ascii_whitespace);
    let special = || value.iter().any(|b| b"!#%^*+~@$?".contains(b));
    let telling = || {
        is_mixed(value)
            || has_inner_capital(value)
            || (special() && value.iter().any(u8::is_ascii_alphabetic))
    };
    let fits = match (how, style) {
        (Sensitivity::Secret, Style::Json) => true,
        (Sensitivity::Secret, Style::Tight) => {
            value.len() >= 5 && (value.len() >= 8 || telling()) && !is_code(value)
        }
        (Sensitivity::Secret, Style::Quoted) => {
            value.len() >= 5 && plain() && (value.len() >= 8 || telling()) && !is_reference(value)
        }
        (Sensitivity::Secret, Style::Loose) => value.len() >= 6 && telling() && !is_code(value),
        (Sensitivity::Token, Style::Json | Style::Quoted) => {
            value.len() >= 8 && plain() && telling() && !is_reference(value)
        }
        (Sensitivity::Token, Style::Tight | Style::Loose) => {
            value.len() >= 8 && is_mixed(value) && !is_code(value)
        }
        (Sensitivity::Key, _) => {
            value.len() >= 16
                && plain()
                && is_mixed(value)
                && !is_code(value)
                && !is_known_id(value)
                && entropy(value) >= 3.5
        }
    };
    fits && value.iter().any(u8::is_ascii_alphanumeric) && !is_placeholder(value)
}

/// A path, an address without a password, a file name.
fn is_reference(value: &[u8]) -> bool {
    let word = |b: &u8| b.is_ascii_alphanumeric() || b"_-".contains(b);
    let stem = value.split(|b| *b == b'.').next().unwrap_or_default();
    (value.starts_with(b"/") && !is_base64_key(value))
        || value.starts_with(b"./")
        || value.starts_with(b"http://")
        || value.starts_with(b"https://")
        || (value.contains(&b' '))
        || (value.iter().all(|b| word(b) || *b == b'.')
            && value.split(|b| *b == b'.').count() == 2
            && !(is_mixed(stem) && has_inner_capital(stem))
            && value
                .rsplit(|b| *b == b'.')
                .next()
                .is_some_and(|e| e.len() <= 4 && e.iter().all(u8::is_ascii_lowercase)))
}

/// A key that begins like a path: no path is of these letters alone and of all their kinds.
fn is_base64_key(value: &[u8]) -> bool {
    value.len() >= 32
        && value
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(b))
        && has_digit(value)
        && value.iter().any(u8::is_ascii_uppercase)
        && value.iter().any(u8::is_ascii_lowercase)
}

/// What code has on the right side of an assignment: a path, a call, a type, a name of several words.
fn is_code(value: &[u8]) -> bool {
    let value = value.strip_prefix(b"&").unwrap_or(value);
    let value = value.strip_suffix(b"?").unwrap_or(value);
    let name = |text: &[u8]| {
        !text.is_empty()
            && !text[0].is_ascii_digit()
            && text.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
    };
    if TYPES
        .iter()
        .any(|t| value.eq_ignore_ascii_case(t.as_bytes()))
        || is_reference(value)
    {
        return true;
    }
    // a.b, a::b, a?.b: a path whose every step is a name
    let steps: Vec<&[u8]> = value
        .split(|b| b".:".contains(b))
        .map(|s| s.strip_suffix(b"?").unwrap_or(s))
        .filter(|s| !s.is_empty())
        .collect();
    if steps.len() > 1
        && steps
            .iter()
            .all(|s| name(s) && s.iter().filter(|b| b.is_ascii_digit()).count() <= 2)
    {
        return true;
    }
    // a name of several words, or CamelCase without digits
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    name(value)
        && ((value.contains(&b'_') && digits <= 3 && !has_inner_capital(value)) || digits == 0)
}

/// Whether what stands between `:` and `@` of a URL is a password: no port with a path, no placeholder.
pub fn is_url_password(value: &[u8]) -> bool {
    let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    let port = (1..=5).contains(&digits) && matches!(value.get(digits), Some(b'/' | b'?' | b'#'));
    !port
        && !is_placeholder(value)
        && !NO_PASSWORDS.iter().any(|word| word.as_bytes() == value)
        && !value.starts_with(b"{")
        && !value.starts_with(b"%s")
}

/// Where the local part of an address with its `@` at `at` begins.
pub fn email_start(text: &[u8], at: usize) -> Option<usize> {
    let local = |b: u8| b.is_ascii_alphanumeric() || b"._%+-".contains(&b);
    let length = text[..at]
        .iter()
        .rev()
        .take(65)
        .take_while(|b| local(**b))
        .count();
    let name = &text[at - length..at];
    let named = name.iter().any(u8::is_ascii_alphanumeric);
    let url = text[..at - length].ends_with(b"://");
    // `git@host:` is a place, not a person; nor is what stands in front of a URL's host
    (named && length <= 64 && name != b"git" && !url).then_some(at - length)
}

/// Shannon's entropy of a text, in bits a character.
pub fn entropy(text: &[u8]) -> f64 {
    // what a character adds that was there so often; of small counts, which are all there are in a token, it is known
    static ADDED: LazyLock<[f64; 64]> = LazyLock::new(|| std::array::from_fn(|n| added(n as f64)));
    fn added(count: f64) -> f64 {
        let product = |count: f64| count * count.max(1.0).log2();
        product(count + 1.0) - product(count)
    }
    let table = &*ADDED;
    let (mut counts, mut spent) = ([0u32; 256], 0.0);
    for byte in text {
        let count = &mut counts[usize::from(*byte)];
        let known = table.get(*count as usize);
        spent += known.copied().unwrap_or_else(|| added(f64::from(*count)));
        *count += 1;
    }
    let total = text.len() as f64;
    total.log2() - spent / total
}

/// A UUID, a git or SHA digest in hexadecimal, a trace id: public by nature.
pub fn is_known_id(text: &[u8]) -> bool {
    let hex = |t: &[u8]| !t.is_empty() && t.iter().all(u8::is_ascii_hexdigit);
    if hex(text) {
        return matches!(text.len(), 16 | 32 | 40 | 48 | 56 | 64 | 96 | 128);
    }
    let groups: Vec<&[u8]> = text.split(|b| *b == b'-').collect();
    groups.len() >= 4 && groups.iter().all(|g| hex(g))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders() {
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
            "[redacted:jwt:12ab",
            "{password}",
        ] {
            assert!(is_placeholder(value.as_bytes()), "{value}");
        }
        for value in [
            "hunter2",
            "$ecret!",
            "[redacted:jwt:12ab]x",
            "changeme",
            "<a>b<c>d",
            "aaaaaaaa",
        ] {
            assert!(!is_placeholder(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn entropy_of_texts() {
        assert!(entropy(b"aaaaaaaa") < 0.01);
        assert!((entropy(b"abcdefgh") - 3.0).abs() < 0.01);
    }
}
