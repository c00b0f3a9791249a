//! What a pattern takes for the value: of the match, or of its group `q` (in quotes) or `s`.
//!
//! Groups cost many times what a search costs. Where the value ends a pattern, it is what its own pattern finds behind the end of what
//! stands in front of it; when nothing is found there, groups are asked.

use std::ops::Range;

use regex::bytes::Regex;

/// A pattern and what tells its value.
#[derive(Debug)]
pub(super) struct Taker {
    whole: Regex,
    /// Only of patterns that end with their value.
    halves: Option<Halves<Regex>>,
    has_groups: bool,
}

/// What stands in front of the value, and the value, within quotes and without.
#[derive(Debug, PartialEq)]
struct Halves<T> {
    ahead: T,
    quoted: Option<T>,
    plain: Option<T>,
}

/// What was taken.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Taken {
    pub value: Range<usize>,
    /// It stood in quotes.
    pub quoted: bool,
}

impl Taker {
    /// # Errors
    /// What the compiler says.
    pub fn new<E>(pattern: &str, compile: impl Fn(&str) -> Result<Regex, E>) -> Result<Self, E> {
        let halves = match halves(pattern) {
            Some(halves) => Some(Halves {
                ahead: compile(&halves.ahead)?,
                quoted: halves.quoted.as_deref().map(&compile).transpose()?,
                plain: halves.plain.as_deref().map(&compile).transpose()?,
            }),
            None => None,
        };
        let whole = compile(pattern)?;
        Ok(Self {
            has_groups: whole.captures_len() > 1,
            whole,
            halves,
        })
    }

    /// Whether the pattern is at the start of a text at all.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.whole.is_match(text)
    }

    /// What is taken at the start of a text.
    pub fn take(&self, text: &[u8]) -> Option<Taken> {
        if !self.has_groups {
            return Some(Taken {
                value: self.whole.find(text)?.range(),
                quoted: false,
            });
        }
        if let Some(halves) = &self.halves {
            let start = halves.ahead.find(text)?.end();
            let quoted = is_quote(text[..start].last());
            let value = match &halves.quoted {
                Some(value) if quoted => Some(value),
                _ => halves.plain.as_ref(),
            };
            if let Some(value) = value.and_then(|value| value.find(&text[start..])) {
                return Some(Taken {
                    value: start..start + value.end(),
                    quoted,
                });
            }
        }
        if !self.whole.is_match(text) {
            return None;
        }
        self.by_groups(text)
    }

    fn by_groups(&self, text: &[u8]) -> Option<Taken> {
        let groups = self.whole.captures(text)?;
        let group = |name| groups.name(name).map(|group| group.range());
        if let Some(value) = group("q") {
            return Some(Taken {
                value,
                quoted: true,
            });
        }
        let value = group("s").or_else(|| groups.get(0).map(|all| all.range()))?;
        let quoted = self.halves.is_some() && is_quote(text[..value.start].last());
        Some(Taken { value, quoted })
    }
}

fn is_quote(byte: Option<&u8>) -> bool {
    matches!(byte, Some(b'"' | b'\'' | b'`' | b'\\'))
}

/// A pattern without the groups of its value, and their bodies; `None` when it does not end with them.
fn halves(pattern: &str) -> Option<Halves<String>> {
    if !pattern.ends_with(')') || pattern.ends_with("\\)") {
        return None;
    }
    let (mut ahead, mut quoted, mut plain, mut rest) = (String::new(), None, None, pattern);
    while let Some(at) = rest
        .find("(?<q>")
        .into_iter()
        .chain(rest.find("(?<s>"))
        .min()
    {
        let body = &rest[at + 5..];
        let length = closing(body)?;
        ahead.push_str(&rest[..at]);
        let group = match rest[at..].starts_with("(?<q>") {
            true => &mut quoted,
            false => &mut plain,
        };
        if group.replace(body[..length].to_owned()).is_some() {
            return None;
        }
        rest = &body[length + 1..];
    }
    ahead.push_str(rest);
    (quoted.is_some() || plain.is_some()).then_some(Halves {
        ahead,
        quoted,
        plain,
    })
}

/// Where the group ends whose inside begins here.
fn closing(inside: &str) -> Option<usize> {
    let (mut open, mut in_class, mut skip) = (0u32, false, false);
    inside.bytes().position(|byte| {
        if std::mem::take(&mut skip) {
            return false;
        }
        match (byte, in_class) {
            (b'\\', _) => skip = true,
            (b']', true) => in_class = false,
            (b'[', false) => in_class = true,
            (b'(', false) => open += 1,
            (b')', false) if open == 0 => return true,
            (b')', false) => open -= 1,
            _ => {}
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::bytes::RegexBuilder;
    use toml::{Table, Value};

    use super::*;

    fn taker(pattern: &str) -> Taker {
        let compile = |pattern: &str| {
            RegexBuilder::new(&format!("^(?:{pattern})"))
                .unicode(false)
                .case_insensitive(true)
                .build()
        };
        Taker::new(pattern, compile).expect("a pattern")
    }

    #[test]
    fn patterns_that_end_with_their_value_are_halved() {
        assert_eq!(
            halves(r"a[(]\)(?:b|c)(?<s>d[)]|e+)"),
            Some(Halves {
                ahead: r"a[(]\)(?:b|c)".to_owned(),
                quoted: None,
                plain: Some("d[)]|e+".to_owned())
            })
        );
        assert_eq!(
            halves("a(?:x(?<q>b)|(?<s>(?:d|e)))"),
            Some(Halves {
                ahead: "a(?:x|)".to_owned(),
                quoted: Some("b".to_owned()),
                plain: Some("(?:d|e)".to_owned())
            })
        );
        for pattern in ["a", "a(?<s>b)c", "a(?:b|c)", r"a(?<s>b)\)"] {
            assert_eq!(halves(pattern), None, "{pattern}");
        }
    }

    /// Patterns of the rules with groups, each with the samples of its rule.
    fn patterns() -> Vec<(Taker, Vec<String>)> {
        let rules: Table = super::super::RULES.parse().expect("rules");
        let Some(Value::Array(rules)) = rules.get("rule") else {
            panic!("there are rules");
        };
        let samples = |rule: &Value| {
            ["positive", "negative", "keywords"]
                .iter()
                .filter_map(|name| rule.get(*name)?.as_array())
                .flatten()
                .filter_map(|text| Some(text.as_str()?.to_owned()))
                .collect()
        };
        rules
            .iter()
            .filter_map(|rule| Some((taker(rule.get("pattern")?.as_str()?), samples(rule))))
            .filter(|(taker, _)| taker.has_groups)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn it_is_what_the_groups_say(
            at in any::<prop::sample::Index>(),
            sample in any::<prop::sample::Index>(),
            start in any::<prop::sample::Index>(),
            more in proptest::collection::vec(prop_oneof![
                "[ \t\"'`\\\\]{0,3}", "[:=>@/]{1,3}", "[a-zA-Z0-9_.-]{1,12}", Just(" is ".to_owned()), Just("--".to_owned()),
            ], 0..8),
            cut in any::<prop::sample::Index>(),
        ) {
            thread_local!(static PATTERNS: Vec<(Taker, Vec<String>)> = patterns());
            PATTERNS.with(|patterns| {
                prop_assert!(patterns.len() >= 10);
                let (taker, samples) = &patterns[at.index(patterns.len())];
                let sample = samples[sample.index(samples.len())].as_bytes();
                let mut text = sample[start.index(sample.len().min(12))..].to_vec();
                text.truncate(cut.index(text.len() + 1).max(text.len() / 2));
                text.extend_from_slice(more.concat().as_bytes());
                prop_assert_eq!(taker.take(&text), taker.by_groups(&text), "{:?}", String::from_utf8_lossy(&text));
                Ok(())
            })?;
        }
    }
}
