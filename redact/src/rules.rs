//! The rules of `rules.toml`, as the redactor reads them.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::memmem::Finder;
use regex::bytes::Regex;
use serde::Deserialize;

use crate::Class;
use crate::checks::Check;

mod split;

pub(crate) use split::Split;

/// The file itself: the gate reads it on its own.
pub const SOURCE: &str = include_str!("rules.toml");

#[derive(Deserialize)]
struct File {
    version: u32,
    rule: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    version: u32,
    #[serde(default)]
    class: Class,
    keywords: Vec<String>,
    pattern: String,
    lead: Option<String>,
    tail: Option<String>,
    #[serde(default)]
    nocase: bool,
    #[serde(default)]
    before: Before,
    #[serde(default)]
    back: usize,
    max: Option<usize>,
    needs: Option<String>,
    #[serde(default)]
    check: Check,
    #[serde(default)]
    whole: bool,
    #[serde(default)]
    run: bool,
    positive: Vec<String>,
    negative: Vec<String>,
}

/// What may not stand in front of a match.
#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Before {
    /// Anything may.
    #[default]
    Any,
    /// No letter, digit or underscore.
    Word,
}

/// A rule.
pub struct Rule {
    /// What stands in the token.
    pub id: String,
    /// Raised when the pattern changes.
    pub version: u32,
    /// What kind of thing it finds.
    pub class: Class,
    pub(crate) pattern: Regex,
    /// Whether the pattern has a group that says what to take out.
    pub(crate) groups: bool,
    /// How to find that group.
    pub(crate) split: Split,
    pub(crate) lead: Option<Regex>,
    /// The beginning of a match at the end of a text, where the keyword does not come first.
    pub(crate) tail: Option<Regex>,
    pub(crate) before: Before,
    pub(crate) back: usize,
    pub(crate) max: usize,
    /// Without this in reach the pattern is not asked.
    pub(crate) needs: Option<Finder<'static>>,
    pub(crate) check: Check,
    keywords: Vec<String>,
    /// Its keyword is telling enough to be looked for in binary data.
    pub(crate) whole: bool,
    /// Where it failed, it cannot succeed before the run of its characters ends.
    pub(crate) run: bool,
    /// Texts in which it finds something.
    pub positive: Vec<String>,
    /// Texts in which it finds nothing.
    pub negative: Vec<String>,
}

impl Rule {
    /// What begins a match, without case; of a rule for whole runs nothing.
    pub fn keywords(&self) -> &[String] {
        &self.keywords
    }
}

/// All rules and the automaton over their keywords.
pub struct Rules {
    /// The file's version.
    pub version: u32,
    pub(crate) list: Vec<Rule>,
    /// Finds the keywords, and first of all tokens that stand in the text already.
    pub(crate) keywords: AhoCorasick,
    /// Which rule a pattern of the automaton belongs to; the first pattern is the token's.
    pub(crate) owner: Vec<usize>,
    /// The rules without keywords: asked for every long run.
    pub(crate) of_runs: Vec<usize>,
    /// The keywords that begin a secret, for streams: sorted.
    pub(crate) prefixes: Vec<Vec<u8>>,
}

/// Why there is nothing to fail.
const READ: &str = "the rules are part of the program, and every test reads them";

/// How a token begins.
pub const TOKEN_START: &str = "[redacted:";

impl Rules {
    /// The rules, read once.
    pub fn get() -> &'static Self {
        static RULES: OnceLock<Rules> = OnceLock::new();
        RULES.get_or_init(Self::load)
    }

    /// Every rule in its order.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.list.iter()
    }

    fn load() -> Self {
        let file: File = toml::from_str(SOURCE).expect(READ);
        let (mut patterns, mut owner) = (vec![TOKEN_START.to_owned()], vec![usize::MAX]);
        let (mut list, mut of_runs, mut prefixes) = (Vec::new(), Vec::new(), Vec::new());
        for (at, entry) in file.rule.into_iter().enumerate() {
            if entry.keywords.is_empty() {
                of_runs.push(at);
            }
            if entry.lead.is_none() && entry.class == Class::Secret && entry.back == 0 {
                prefixes.extend(entry.keywords.iter().map(|k| k.as_bytes().to_vec()));
            }
            owner.extend(entry.keywords.iter().map(|_| at));
            patterns.extend(entry.keywords.iter().cloned());
            list.push(rule(entry));
        }
        prefixes.sort();
        let keywords = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(&patterns)
            .expect("a few hundred keywords are far below the automaton's limits");
        Self {
            version: file.version,
            list,
            keywords,
            owner,
            of_runs,
            prefixes,
        }
    }
}

fn rule(entry: Entry) -> Rule {
    let flags = if entry.nocase { "(?i-u)" } else { "(?-u)" };
    let compile = |pattern: &str| Regex::new(&format!("{flags}^(?:{pattern})"));
    let pattern = compile(&entry.pattern).expect(READ);
    Rule {
        groups: pattern.captures_len() > 1,
        split: Split::new(&entry.pattern, flags, compile).expect(READ),
        pattern,
        lead: entry.lead.as_deref().map(|lead| compile(lead).expect(READ)),
        tail: entry
            .tail
            .as_deref()
            .map(|tail| Regex::new(&format!("(?-u)(?:{tail})$")).expect(READ)),
        id: entry.id,
        version: entry.version,
        class: entry.class,
        before: entry.before,
        back: entry.back,
        max: entry.max.unwrap_or(256),
        needs: entry.needs.map(|text| Finder::new(&text).into_owned()),
        check: entry.check,
        keywords: entry.keywords,
        whole: entry.whole,
        run: entry.run,
        positive: entry.positive,
        negative: entry.negative,
    }
}
