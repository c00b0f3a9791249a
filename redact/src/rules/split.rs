//! What a rule's pattern takes, without asking for its groups, which costs many times what a search costs.
//!
//! Most patterns have one group that is taken, `head(?<s>body)after`, or end with a choice of such: `head(?:a(?<q>body)|b(?<s>body))`.
//! The search that prefers what stands first takes the head's first match where the body fits behind it; where it does not, and may in
//! another way, groups are asked after all.

use std::ops::Range;

use regex::bytes::Regex;

/// What is taken and whether it stood in quotes.
type Taken = (Range<usize>, bool);

/// How a pattern is searched without groups.
#[derive(Debug)]
pub(crate) struct Split {
    /// Where a pattern that begins with any text really begins, and how far in that may be.
    seek: Option<(Regex, usize)>,
    /// What every way begins with; none when the pattern is of another form.
    head: Option<Regex>,
    ways: Vec<Way>,
}

/// One way on behind the head.
#[derive(Debug)]
struct Way {
    before: Option<Regex>,
    body: Regex,
    after: Option<Regex>,
    /// All three, where there is more than the body.
    whole: Option<Regex>,
    quoted: bool,
}

/// Whether a way goes on somewhere.
enum Fit {
    Taken(Range<usize>),
    No,
    /// It does, but not where each of its pieces would best.
    Otherwise,
}

/// A pattern's pieces, as they are written.
#[derive(Debug, PartialEq)]
struct Pieces<'p> {
    head: &'p str,
    /// In the order in which they are preferred.
    ways: Vec<Written<'p>>,
}

#[derive(Debug, PartialEq)]
struct Written<'p> {
    before: &'p str,
    body: &'p str,
    after: &'p str,
    quoted: bool,
}

impl Split {
    /// Splits a pattern; each piece is compiled as it is, to stand at the start of a text.
    ///
    /// # Errors
    /// What the compiler says.
    pub fn new(
        pattern: &str,
        flags: &str,
        compile: impl Fn(&str) -> Result<Regex, regex::Error>,
    ) -> Result<Self, regex::Error> {
        let (most, pattern) = lead_in(pattern).map_or((None, pattern), |(n, p)| (Some(n), p));
        // what must follow the group is best asked for at once, but for where the search begins anew
        let asks =
            |pieces: &Pieces<'_>| most.is_some() || pieces.ways.iter().all(|w| w.after.is_empty());
        let Some(pieces) = pieces(pattern).filter(asks) else {
            return Ok(Self {
                seek: None,
                head: None,
                ways: Vec::new(),
            });
        };
        let anywhere = |most| Ok((Regex::new(&format!("{flags}(?:{pattern})"))?, most));
        let some = |piece: &str| match piece {
            "" => Ok(None),
            _ => compile(piece).map(Some),
        };
        let way = |way: Written<'_>| {
            let whole = match (way.before, way.after) {
                ("", "") => String::new(),
                (before, after) => format!("{before}(?:{}){after}", way.body),
            };
            Ok(Way {
                before: some(way.before)?,
                body: compile(way.body)?,
                after: some(way.after)?,
                whole: some(&whole)?,
                quoted: way.quoted,
            })
        };
        let ways = pieces.ways.into_iter().map(way);
        Ok(Self {
            seek: most.map(anywhere).transpose()?,
            head: Some(compile(pieces.head)?),
            ways: ways.collect::<Result<_, regex::Error>>()?,
        })
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.ways.is_empty()
    }

    /// What the pattern takes at the start of a text.
    pub fn taken(&self, pattern: &Regex, text: &[u8]) -> Option<Taken> {
        let Some(head) = &self.head else {
            return by_groups(pattern, text);
        };
        let mut from = 0;
        if let Some((seek, most)) = &self.seek {
            from = seek.find(text)?.start();
            if from > *most {
                return None;
            }
        }
        from += head.find(&text[from..])?.end();
        for way in &self.ways {
            match way.fit(&text[from..]) {
                Fit::Taken(span) => return Some((from + span.start..from + span.end, way.quoted)),
                Fit::No => {}
                Fit::Otherwise => break,
            }
        }
        // the head may end elsewhere
        by_groups(pattern, text)
    }
}

impl Way {
    fn fit(&self, text: &[u8]) -> Fit {
        let start = match self.before.as_ref().map(|before| before.find(text)) {
            Some(None) => return Fit::No,
            Some(Some(before)) => before.end(),
            None => 0,
        };
        let body = self.body.find(&text[start..]);
        if body.is_none() && self.before.is_none() {
            return Fit::No;
        }
        let after = self.after.as_ref();
        let fits = |end: &usize| after.is_none_or(|after| after.is_match(&text[*end..]));
        match body.map(|body| start + body.end()).filter(fits) {
            Some(end) => Fit::Taken(start..end),
            None if self
                .whole
                .as_ref()
                .is_some_and(|whole| whole.is_match(text)) =>
            {
                Fit::Otherwise
            }
            None => Fit::No,
        }
    }
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

/// How much of any text a pattern begins with at most, and what comes then.
fn lead_in(pattern: &str) -> Option<(usize, &str)> {
    let (most, rest) = pattern.strip_prefix("(?s:.{0,")?.split_once("}?)")?;
    Some((most.parse().ok()?, rest))
}

/// The pieces of a pattern, where it is of the form.
fn pieces(pattern: &str) -> Option<Pieces<'_>> {
    choice(pattern).or_else(|| {
        let (head, last, after) = only_group(pattern)?;
        let (body, quoted) = named(last)?;
        let way = |before| Written {
            before,
            body,
            after,
            quoted,
        };
        Some(match option(head) {
            Some((head, option)) => Pieces {
                head,
                ways: vec![way(option), way("")],
            },
            None => Pieces {
                head,
                ways: vec![way("")],
            },
        })
    })
}

/// Those of a pattern that ends with a choice.
fn choice(pattern: &str) -> Option<Pieces<'_>> {
    let (head, group) = last_group(pattern)?;
    let choice = group.strip_prefix("?:")?;
    let ways = alternatives(choice).into_iter().map(|way| {
        let (before, last) = last_group(way)?;
        let (body, quoted) = named(last)?;
        Some(Written {
            before,
            body,
            after: "",
            quoted,
        })
    });
    Some(Pieces {
        head,
        ways: ways.collect::<Option<_>>()?,
    })
}

fn named(group: &str) -> Option<(&str, bool)> {
    let quoted = group.strip_prefix("?<q>").map(|body| (body, true));
    quoted.or_else(|| group.strip_prefix("?<s>").map(|body| (body, false)))
}

/// The group that is taken, where there is one outside of all others: what stands before it, in it and behind it.
fn only_group(pattern: &str) -> Option<(&str, &str, &str)> {
    let (mut open, mut found) = (0, None);
    for (at, mark) in marks(pattern) {
        match mark {
            Mark::Open(0) => open = at,
            Mark::Close(0) if named(&pattern[open + 1..at]).is_some() => {
                // one alone
                found = match found {
                    None => Some((open, at)),
                    Some(_) => return None,
                };
            }
            Mark::Or(0) => return None,
            _ => {}
        }
    }
    let (open, close) = found?;
    let after = &pattern[close + 1..];
    let repeated = after.starts_with(['*', '+', '?', '{']);
    (!repeated).then_some((&pattern[..open], &pattern[open + 1..close], after))
}

/// What a pattern has before a group at its end that may be missing, and that group.
fn option(pattern: &str) -> Option<(&str, &str)> {
    let pattern = pattern.strip_suffix('?')?;
    let (before, group) = last_group(pattern)?;
    group
        .starts_with("?:")
        .then(|| (before, &pattern[before.len()..]))
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
            pieces(pattern).map(|pieces| {
                let ways = pieces.ways.iter().map(|w| {
                    let quoted = if w.quoted { " quoted" } else { "" };
                    format!("{}<{}>{}{quoted}", w.before, w.body, w.after)
                });
                (pieces.head, ways.collect::<Vec<_>>())
            })
        };
        let of = |head, ways: &[&str]| Some((head, ways.iter().map(|w| (*w).to_owned()).collect()));
        for (pattern, wanted) in [
            (r"a[(]\)(?:b|c)(?<s>d+)", of(r"a[(]\)(?:b|c)", &["<d+>"])),
            (
                r"a(?:x(?<q>b|c)|(?<s>d))",
                of("a", &["x<b|c> quoted", "<d>"]),
            ),
            (
                r"a(?:b c)?(?<s>d)@(?:e|f)",
                of("a", &["(?:b c)<d>@(?:e|f)", "<d>@(?:e|f)"]),
            ),
        ] {
            assert_eq!(split(pattern), wanted, "{pattern}");
        }
        for pattern in ["a", "a(?<s>b)|c", "a(?:b|c)", "(?:a(?<s>b))+", "a(?<s>b)+"] {
            assert_eq!(split(pattern), None, "{pattern}");
        }
        assert_eq!(lead_in("(?s:.{0,60}?)a(?<s>b)"), Some((60, "a(?<s>b)")));
        assert_eq!(lead_in("(?s:.)a"), None);
    }

    /// Texts of the pieces that matter: samples, cut ones, and what stands between names and values.
    fn texts() -> impl Strategy<Value = (usize, Vec<u8>)> {
        let rules = Rules::get();
        let grouped: Vec<usize> = (0..rules.list.len())
            .filter(|at| !rules.list[*at].split.is_empty())
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
                rule.split.taken(&rule.pattern, &text),
                by_groups(&rule.pattern, &text),
                "{}: {:?}", rule.id, String::from_utf8_lossy(&text)
            );
        }
    }
}
