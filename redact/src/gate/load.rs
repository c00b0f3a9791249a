//! The gate's own reading of the rules.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex::bytes::RegexBuilder;
use toml::{Table, Value};

use super::taker::Taker;

/// What is found must be like this besides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Demand {
    Nothing,
    Mixed,
    Digit,
    LikeToken,
    Credentials,
    OfUrl,
    Assigned,
    Address,
    RestOfKey,
}

/// A rule as the gate needs it.
#[derive(Debug)]
pub(super) struct GateRule {
    pub id: String,
    pub pattern: Taker,
    pub personal: bool,
    pub word_before: bool,
    pub telling: bool,
    pub fails_once: bool,
    pub back: usize,
    pub window: usize,
    /// What its pattern cannot be without.
    pub needs: Option<String>,
    pub demand: Demand,
    /// A text that it must find something in.
    pub canary: String,
}

/// The rules and what begins them.
#[derive(Debug)]
pub(super) struct GateRules {
    pub rules: Vec<GateRule>,
    pub starts: AhoCorasick,
    /// The rule of each pattern of `starts`; the last pattern is that of our own tokens.
    pub rule_of: Vec<Option<usize>>,
    /// Rules for runs, which nothing begins.
    pub unbegun: Vec<usize>,
}

/// Reads the rules; `all` is off only where a test shows what happens without them.
pub(super) fn load(source: &str, all: bool) -> Result<GateRules, String> {
    let file: Table = source
        .parse()
        .map_err(|e: toml::de::Error| e.message().to_owned())?;
    let entries = match file.get("rule") {
        Some(Value::Array(entries)) => entries.as_slice(),
        _ => return Err("there are none".to_owned()),
    };
    let (mut rules, mut unbegun) = (Vec::new(), Vec::new());
    // the same beginning may belong to several rules
    let mut starts: HashMap<String, Vec<usize>> = HashMap::new();
    for entry in entries.iter().filter(|_| all) {
        let entry = entry.as_table().ok_or("a rule is no table")?;
        let (rule, keywords) = one(entry)?;
        if keywords.is_empty() {
            unbegun.push(rules.len());
        }
        for keyword in keywords {
            starts.entry(keyword).or_default().push(rules.len());
        }
        rules.push(rule);
    }
    let mut patterns: Vec<String> = Vec::new();
    let mut rule_of = Vec::new();
    for (keyword, owners) in starts {
        for owner in owners {
            patterns.push(keyword.clone());
            rule_of.push(Some(owner));
        }
    }
    patterns.push("[redacted:".to_owned());
    rule_of.push(None);
    let starts = AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::DFA))
        .build(&patterns)
        .map_err(|e| e.to_string())?;
    Ok(GateRules {
        rules,
        starts,
        rule_of,
        unbegun,
    })
}

/// One rule and its keywords.
fn one(entry: &Table) -> Result<(GateRule, Vec<String>), String> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str);
    let number = |name: &str| {
        entry
            .get(name)
            .and_then(Value::as_integer)
            .and_then(|n| usize::try_from(n).ok())
    };
    let is = |name: &str| entry.get(name).and_then(Value::as_bool).unwrap_or(false);
    let id = text("id").ok_or("a rule has no id")?.to_owned();
    let list = |name: &str| match entry.get(name) {
        Some(Value::Array(values)) => Ok(values
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect::<Vec<_>>()),
        _ => Err(format!("{id} has no {name}")),
    };
    let pattern = text("pattern").ok_or_else(|| format!("{id} has no pattern"))?;
    let compile = |pattern: &str| {
        RegexBuilder::new(&format!("^(?:{pattern})"))
            .unicode(false)
            .case_insensitive(is("nocase"))
            .build()
            .map_err(|_| format!("{id} has a pattern that is none"))
    };
    let keywords = list("keywords")?;
    let canary = list("positive")?
        .first()
        .cloned()
        .ok_or_else(|| format!("{id} has no example"))?;
    let rule = GateRule {
        pattern: Taker::new(pattern, compile)?,
        personal: text("class") == Some("pii"),
        word_before: text("before") == Some("word"),
        telling: is("whole"),
        fails_once: is("run"),
        back: number("back").unwrap_or(0),
        window: number("max").unwrap_or(256),
        needs: text("needs").map(str::to_owned),
        demand: demand(text("check")).ok_or_else(|| format!("{id} has a check that is none"))?,
        canary,
        id,
    };
    Ok((rule, keywords))
}

fn demand(check: Option<&str>) -> Option<Demand> {
    Some(match check {
        // of a private key the first line is enough
        None | Some("none" | "pem") => Demand::Nothing,
        Some("mixed") => Demand::Mixed,
        Some("digit") => Demand::Digit,
        Some("tokenish") => Demand::LikeToken,
        Some("basic") => Demand::Credentials,
        Some("url-password") => Demand::OfUrl,
        Some("assignment") => Demand::Assigned,
        Some("email") => Demand::Address,
        Some("pem-rest") => Demand::RestOfKey,
        Some(_) => return None,
    })
}
