//! What clients cannot take although it is JSON.

use super::scrub::token_length;

/// Nesting that every client copies and checks without running out of stack; some fail below 5000.
const DEEPEST: usize = 512;

/// Whether a JSON text nests deeper than clients bear.
pub(super) fn nests_too_deep(json: &str) -> bool {
    // as deep as that, a text is at least as long as its brackets
    if json.len() <= 2 * DEEPEST {
        return false;
    }
    // brackets in texts are counted too: this only says no
    let opening = memchr::memchr2_iter(b'{', b'[', json.as_bytes());
    if opening.take(DEEPEST + 1).count() <= DEEPEST {
        return false;
    }
    let mut depth = 0usize;
    tokens(json).any(|token| {
        match token.as_bytes()[0] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > DEEPEST
    })
}

/// Whether a browser reads every number of a JSON text as a finite one.
pub(super) fn numbers_are_finite(json: &str) -> bool {
    tokens(json)
        .filter(|token| matches!(token.as_bytes()[0], b'-' | b'0'..=b'9'))
        .all(|number| number.parse().is_ok_and(f64::is_finite))
}

/// Strings, numbers, words and brackets of a valid JSON text.
fn tokens(json: &str) -> impl Iterator<Item = &str> {
    let mut rest = json;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r', ',', ':']);
        let length = match rest.as_bytes().first()? {
            b'{' | b'[' | b'}' | b']' => 1,
            _ => token_length(rest.as_bytes()),
        };
        let (token, behind) = rest.split_at(length);
        rest = behind;
        Some(token)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_counted_outside_of_texts() {
        let nested = |depth| format!("{}0{}", "[".repeat(depth), "]".repeat(depth));
        assert!(!nests_too_deep(&nested(DEEPEST)));
        assert!(nests_too_deep(&nested(DEEPEST + 1)));
        assert!(nests_too_deep(&nested(500_000)));
        assert!(!nests_too_deep(&format!(r#"["{}\"["]"#, "[".repeat(5000))));
        assert!(!nests_too_deep(&format!("[{}0]", "[],{},".repeat(5000))));
    }

    #[test]
    fn numbers() {
        assert!(numbers_are_finite(
            r#"{"a":[1,-2.5e3,"1e999", null,{"b":12345678901234567890123}]}"#
        ));
        assert!(!numbers_are_finite(r#"{"a":[1, 1e999]}"#));
        assert!(!numbers_are_finite("-1E400"));
    }
}
