//! Every spelling of a credential that is looked for.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::{MIN_ENCODED_BYTES, MIN_SECRET_BYTES};

/// The spellings of one credential; empty when it is too short to be looked for.
///
/// Scanning happens on text whose JSON escapes are already resolved once, so the JSON spellings here are those of JSON
/// within a string (a tool's output that is itself JSON, a piece of a tool's input), and of JSON within that.
pub fn of(secret: &str) -> BTreeSet<Vec<u8>> {
    let mut forms = BTreeSet::new();
    if secret.len() < MIN_SECRET_BYTES {
        return forms;
    }
    forms.insert(secret.as_bytes().to_vec());
    for once in json_spellings(secret) {
        forms.insert(json_escape(&once, PLAIN).into_bytes());
        forms.insert(json_escape(&once, PHP).into_bytes());
        forms.insert(once.into_bytes());
    }
    for upper_hex in [false, true] {
        let style = JsonStyle {
            unicode: Unicode::EscapeAll,
            upper_hex,
            ..PLAIN
        };
        forms.insert(json_escape(secret, style).into_bytes());
    }
    if secret.len() >= MIN_ENCODED_BYTES {
        forms.insert(hex::encode(secret).into_bytes());
        forms.insert(hex::encode_upper(secret).into_bytes());
        forms.extend(base64_cores(secret.as_bytes()));
        forms.extend(percent_spellings(secret.as_bytes()));
    }
    forms
}

/// How an escaper treats what it may leave as it is.
#[derive(Clone, Copy)]
struct JsonStyle {
    escape_slash: bool,
    /// `<`, `>` and `&` as `\u003c` and so on.
    escape_html: bool,
    /// What is written as `\uXXXX` although it need not be.
    unicode: Unicode,
    upper_hex: bool,
}

/// Escapes what it must.
const PLAIN: JsonStyle = JsonStyle {
    escape_slash: false,
    escape_html: false,
    unicode: Unicode::Keep,
    upper_hex: false,
};
/// Escapes slashes too.
const PHP: JsonStyle = JsonStyle {
    escape_slash: true,
    ..PLAIN
};

#[derive(Clone, Copy, PartialEq)]
enum Unicode {
    Keep,
    EscapeNonAscii,
    EscapeAll,
}

/// The secret as the JSON writers in use would put it between quotes.
fn json_spellings(secret: &str) -> BTreeSet<String> {
    let mut spellings = BTreeSet::new();
    for escape_slash in [false, true] {
        for escape_html in [false, true] {
            for upper_hex in [false, true] {
                for unicode in [Unicode::Keep, Unicode::EscapeNonAscii] {
                    spellings.insert(json_escape(
                        secret,
                        JsonStyle {
                            escape_slash,
                            escape_html,
                            unicode,
                            upper_hex,
                        },
                    ));
                }
            }
        }
    }
    spellings
}

fn json_escape(text: &str, style: JsonStyle) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        let short = match c {
            '"' => Some("\\\""),
            '\\' => Some("\\\\"),
            '\n' => Some("\\n"),
            '\r' => Some("\\r"),
            '\t' => Some("\\t"),
            '\u{8}' => Some("\\b"),
            '\u{c}' => Some("\\f"),
            '/' if style.escape_slash => Some("\\/"),
            _ => None,
        };
        let must = c < ' '
            || (style.escape_html && matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}'))
            || (style.unicode == Unicode::EscapeNonAscii && !c.is_ascii());
        match short {
            _ if style.unicode == Unicode::EscapeAll => push_units(&mut out, c, style.upper_hex),
            Some(escape) => out.push_str(escape),
            None if must => push_units(&mut out, c, style.upper_hex),
            None => out.push(c),
        }
    }
    out
}

fn push_units(out: &mut String, c: char, upper: bool) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        let digits = if upper {
            format!("\\u{unit:04X}")
        } else {
            format!("\\u{unit:04x}")
        };
        out.push_str(&digits);
    }
}

/// The characters of a base64 text that depend on the secret alone, for each of the three ways it can lie in the encoded
/// bytes. Padding and the characters shared with neighbouring bytes stand outside: they tell at most six bits of the first
/// and of the last byte.
fn base64_cores(secret: &[u8]) -> Vec<Vec<u8>> {
    let mut cores = Vec::new();
    for lead in 0..3 {
        let mut bytes = vec![0; lead];
        bytes.extend_from_slice(secret);
        let first = (lead * 8).div_ceil(6);
        let end = bytes.len() * 8 / 6;
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            cores.push(engine.encode(&bytes).as_bytes()[first..end].to_vec());
        }
    }
    cores
}

/// Percent-encoding as RFC 3986, `encodeURI`, `encodeURIComponent` and HTML forms do it, and with every byte encoded.
fn percent_spellings(secret: &[u8]) -> Vec<Vec<u8>> {
    let kept: [&[u8]; 5] = [b"-_.~", b"-_.!~*'()", b"-_.!~*'();/?:@&=+$,#", b"*-._", b""];
    let mut spellings = Vec::new();
    for (style, keep) in kept.iter().enumerate() {
        for upper in [true, false] {
            let mut out = Vec::with_capacity(secret.len() * 3);
            for byte in secret {
                let plain = style != 4 && byte.is_ascii_alphanumeric() || keep.contains(byte);
                if plain {
                    out.push(*byte);
                } else if style == 3 && *byte == b' ' {
                    out.push(b'+');
                } else if upper {
                    out.extend_from_slice(format!("%{byte:02X}").as_bytes());
                } else {
                    out.extend_from_slice(format!("%{byte:02x}").as_bytes());
                }
            }
            spellings.push(out);
        }
    }
    spellings
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    fn has(secret: &str, form: &str) -> bool {
        of(secret).contains(form.as_bytes())
    }

    #[test]
    fn short_values_have_no_forms_and_middle_ones_no_encoded_forms() {
        assert!(of("12345").is_empty());
        assert!(has("123456", "123456"));
        assert!(!has("fifteen-bytes-x", &hex::encode("fifteen-bytes-x")));
        assert!(has("sixteen-bytes-xy", &hex::encode("sixteen-bytes-xy")));
    }

    #[test]
    fn json_spellings_of_common_writers() {
        let secret = "a/b\"c\\é<😀";
        for form in [
            r#"a/b\"c\\é<😀"#,
            r#"a\/b\"c\\é<😀"#,
            r#"a/b\"c\\\u00e9<\ud83d\ude00"#,
            r#"a\/b\"c\\\u00E9<\uD83D\uDE00"#,
            r#"a/b\"c\\é\u003c😀"#,
            r#"a/b\\\"c\\\\é<😀"#,
        ] {
            assert!(has(secret, form), "{form}");
        }
        let every: String = "plain!"
            .chars()
            .map(|c| format!("\\u{:04x}", u32::from(c)))
            .collect();
        assert!(has("plain!", &every));
    }

    #[test]
    fn base64_is_found_at_every_alignment_with_any_neighbours() {
        let secret = "sixteen-bytes+/?x";
        let forms = of(secret);
        for before in 0..6 {
            for after in 0..6 {
                for filler in [0u8, 0xff, b'k'] {
                    let mut bytes = vec![filler; before];
                    bytes.extend_from_slice(secret.as_bytes());
                    bytes.extend(std::iter::repeat_n(filler, after));
                    for text in [
                        STANDARD.encode(&bytes),
                        URL_SAFE.encode(&bytes),
                        STANDARD_NO_PAD.encode(&bytes),
                    ] {
                        let found = forms
                            .iter()
                            .any(|f| text.as_bytes().windows(f.len()).any(|w| w == &f[..]));
                        assert!(found, "{before} {after} {text}");
                    }
                }
            }
        }
    }

    #[test]
    fn percent_spellings_of_common_writers() {
        let secret = "key with /+&=~'é";
        for form in [
            "key%20with%20%2F%2B%26%3D~%27%C3%A9",
            "key%20with%20%2F%2B%26%3D~'%C3%A9",
            "key+with+%2F%2B%26%3D%7E%27%C3%A9",
            "key%20with%20%2f%2b%26%3d~%27%c3%a9",
        ] {
            assert!(has(secret, form), "{form}");
        }
    }
}
