//! What a rule's pattern takes, without asking for its groups, which costs many times what a search costs.
//!
//! Most patterns end with the group that is taken: `head(?<s>body)`, or with a choice of such: `head(?:a(?<q>body)|b(?<s>body))`. The
//! search that prefers what stands first takes the head's first match where the body fits behind it; where it does not, groups are
//! asked after all.

use std::ops::Range;

use regex::bytes::Regex;

/// What is taken and whether it stood in quotes.
type Taken = (Range<usize>, bool);

/// One way through a pattern.
#[derive(Debug)]
pub(crate) struct Way {
    head: Regex,
    body: Regex,
    quoted: bool,
}

/// The ways through a pattern, compiled as it is; none when it is not of that form.
///
/// # Errors
/// What the compiler says.
pub(crate) fn ways<E>(
    pattern: &str,
    compile: impl Fn(&str) -> Result<Regex, E>,
) -> Result<Vec<Way>, E> {
    let halves = halves(pattern).unwrap_or_default();
    let way = |(head, body, quoted): (String, String, bool)| {
        Ok(Way {
            head: compile(&head)?,
            body: compile(&body)?,
            quoted,
        })
    };
    halves.into_iter().map(way).collect()
}

/// What a pattern takes at the start of a text.
pub(crate) fn taken(pattern: &Regex, ways: &[Way], text: &[u8]) -> Option<Taken> {
    let mut is_sure = !ways.is_empty();
    for way in ways {
        let Some(head) = way.head.find(text) else {
            continue;
        };
        if let Some(body) = way.body.find(&text[head.end()..]) {
            return Some((head.end()..head.end() + body.end(), way.quoted));
        }
        is_sure = false;
        break;
    }
    if is_sure {
        return None;
    }
    by_groups(pattern, text)
}

fn by_groups(pattern: &Regex, text: &[u8]) -> Option<Taken> {
    if !pattern.is_match(text) {
        return None;
    }
    let found = pattern.captures(text)?;
    let quoted = found.name("q");
    let taken = quoted
        .or_else(|| found.name("s"))
        .or_else(|| found.get(0))?;
    Some((taken.range(), quoted.is_some()))
}

/// Head, body and whether it is the quoted one, for each way.
fn halves(pattern: &str) -> Option<Vec<(String, String, bool)>> {
    let (head, last) = last_group(pattern)?;
    if let Some(choice) = last.strip_prefix("?:") {
        let ways = alternatives(choice).into_iter().map(|way| {
            let (before, last) = last_group(way)?;
            let (body, quoted) = named(last)?;
            Some((format!("{head}{before}"), body.to_owned(), quoted))
        });
        return ways.collect();
    }
    let (body, quoted) = named(last)?;
    Some(vec![(head.to_owned(), body.to_owned(), quoted)])
}

fn named(group: &str) -> Option<(&str, bool)> {
    let quoted = group.strip_prefix("?<q>").map(|body| (body, true));
    quoted.or_else(|| group.strip_prefix("?<s>").map(|body| (body, false)))
}

/// What stands before the group that ends a pattern, and what is in it; `None` where there is none, or a choice around it.
fn last_group(pattern: &str) -> Option<(&str, &str)> {
    let mut last = None;
    let mut open = 0;
    for (at, mark) in marks(pattern) {
        match mark {
            Mark::Open(0) => open = at,
            Mark::Close(0) => last = Some((open, at)),
            Mark::Or(0) => return None,
            _ => {}
        }
    }
    let (open, close) = last.filter(|(_, close)| close + 1 == pattern.len())?;
    Some((&pattern[..open], &pattern[open + 1..close]))
}

fn alternatives(pattern: &str) -> Vec<&str> {
    let (mut out, mut from) = (Vec::new(), 0);
    for (at, mark) in marks(pattern) {
        if let Mark::Or(0) = mark {
            out.push(&pattern[from..at]);
            from = at + 1;
        }
    }
    out.push(&pattern[from..]);
    out
}

/// A character that means something, and in how many groups it stands.
enum Mark {
    Open(usize),
    Close(usize),
    Or(usize),
}

/// Where groups begin and end, outside of classes and escapes.
fn marks(pattern: &str) -> Vec<(usize, Mark)> {
    let (mut out, mut depth, mut class, mut escaped) = (Vec::new(), 0usize, false, false);
    for (at, byte) in pattern.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b']' => class = false,
            b'[' => class = true,
            _ if class => {}
            b'(' => {
                out.push((at, Mark::Open(depth)));
                depth += 1;
            }
            b')' => {
                depth = depth.saturating_sub(1);
                out.push((at, Mark::Close(depth)));
            }
            b'|' => out.push((at, Mark::Or(depth))),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rules::Rules;

    #[test]
    fn patterns_are_split_where_they_can_be() {
        let split = |pattern| {
            halves(pattern).map(|ways| {
                ways.into_iter()
                    .map(|(head, body, quoted)| format!("{head} {body} {quoted}"))
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(
            split(r"a[(]\)(?:b|c)(?<s>d+)"),
            Some(vec![r"a[(]\)(?:b|c) d+ false".into()])
        );
        assert_eq!(
            split(r"a(?:x(?<q>b|c)|(?<s>d))"),
            Some(vec!["ax b|c true".into(), "a d false".into()])
        );
        for pattern in ["a", "a(?<s>b)c", "a(?<s>b)|c", "a(?:b|c)", "(?:a(?<s>b))+"] {
            assert_eq!(split(pattern), None, "{pattern}");
        }
    }

    /// Texts of the pieces that matter: samples, halves of them, and what stands between names and values.
    fn texts() -> impl Strategy<Value = (usize, Vec<u8>)> {
        let rules = Rules::get();
        let grouped: Vec<usize> = (0..rules.list.len())
            .filter(|at| !rules.list[*at].ways.is_empty())
            .collect();
        assert!(grouped.len() >= 10, "{}", grouped.len());
        let piece = prop_oneof![
            "[ \t]{0,3}",
            "[\"'`\\\\]{1,3}",
            "[:=>]{1,2}",
            "[a-zA-Z0-9_.-]{1,12}",
            Just(" is ".to_owned()),
            Just("Bearer ".to_owned()),
            Just("--".to_owned()),
            "[^a-z]{1,3}",
        ];
        (
            proptest::sample::select(grouped),
            any::<prop::sample::Index>(),
            any::<prop::sample::Index>(),
            proptest::collection::vec(piece, 0..8),
        )
            .prop_map(|(at, sample, cut, pieces)| {
                let rule = &Rules::get().list[at];
                let all: Vec<&String> = rule.positive.iter().chain(&rule.negative).collect();
                let sample = all[sample.index(all.len())].as_bytes();
                let lower = sample.to_ascii_lowercase();
                let starts = rule.keywords().iter().filter_map(|keyword| {
                    let keyword = keyword.to_ascii_lowercase();
                    memchr::memmem::find(&lower, keyword.as_bytes())
                });
                let start = starts.min().unwrap_or(0);
                let sample = &sample[start..];
                let mut text = sample[..cut.index(sample.len() + 1)].to_vec();
                for piece in pieces {
                    text.extend_from_slice(piece.as_bytes());
                }
                (at, text)
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn it_is_what_the_groups_say((at, text) in texts()) {
            let rule = &Rules::get().list[at];
            prop_assert_eq!(
                taken(&rule.pattern, &rule.ways, &text),
                by_groups(&rule.pattern, &text),
                "{}: {:?}", rule.id, String::from_utf8_lossy(&text)
            );
        }
    }
}
