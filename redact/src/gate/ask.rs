//! What the rules say to a text.

use std::ops::Range;

use memchr::memmem;

use super::load::{Demand, GateRule};
use super::look::Look;
use super::names::{self, Kind};
use super::taker::Taken;
use super::values::{self, Place};
use crate::Profile;

/// What kind of bytes a text is.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Bytes {
    Text,
    /// Something else: only rules with telling beginnings are asked.
    Other,
}

/// So much of what was not enough may begin something that is.
const AGAIN: usize = 64;

/// What a rule says at one place.
enum Answer {
    Found,
    No,
    /// No, and it would say so again up to there.
    NotBefore(usize),
}

/// Asks every rule that begins somewhere in a text.
pub(super) fn rules(look: &mut Look<'_>, text: &[u8], bytes: Bytes) {
    let gate = look.gate;
    let rules = &gate.rules.rules;
    let mut redacted_until = 0;
    let mut hopeless = vec![0; rules.len()];
    for start in gate.rules.starts.find_overlapping_iter(text) {
        let at = start.start();
        let Some(number) = gate.rules.rule_of[start.pattern().as_usize()] else {
            redacted_until = redacted_until.max(at + values::token_length(&text[at..]));
            continue;
        };
        let rule = &rules[number];
        let in_word = at > 0 && (text[at - 1].is_ascii_alphanumeric() || text[at - 1] == b'_');
        if at < redacted_until
            || at < hopeless[number]
            || (bytes == Bytes::Other && !rule.telling)
            || (rule.word_before && in_word)
            || (rule.personal && gate.profile == Profile::Secrets)
            || look.found.contains(&rule.id)
            || !gate.stages.runs_rule(&rule.id)
        {
            continue;
        }
        match ask(rule, text, redacted_until, start.range()) {
            Answer::Found => look.find(&rule.id),
            Answer::NotBefore(next) => hopeless[number] = next,
            Answer::No if rule.fails_once => {
                let of_run = |b: &&u8| b.is_ascii_alphanumeric() || b"_-".contains(b);
                hopeless[number] = at + text[at..].iter().take_while(of_run).count();
            }
            Answer::No => {}
        }
    }
}

/// Asks one rule whose beginning stands there. In front of `redacted` all is tokens, or was asked for.
fn ask(rule: &GateRule, text: &[u8], redacted: usize, beginning: Range<usize>) -> Answer {
    let (at, end) = (beginning.start, beginning.end);
    if rule.demand == Demand::Assigned && !is_name_of_value(&text[end..]) {
        return Answer::No;
    }
    let from = at.saturating_sub(rule.back);
    let window = &text[from..text.len().min(from + rule.window)];
    if let Some(needs) = &rule.needs
        && memmem::find(window, needs.as_bytes()).is_none()
    {
        return Answer::No;
    }
    let Some(Taken {
        value: taken,
        quoted,
    }) = rule.pattern.take(window)
    else {
        return Answer::No;
    };
    let mut taken = from + taken.start..from + taken.end;
    if rule.back > 0 {
        taken.start = taken.start.max(redacted);
        if taken.len() < 3 {
            return Answer::No;
        }
    }
    let value = &text[taken.clone()];
    if values::is_redacted(value) {
        return Answer::No;
    }
    let made = values::made(value);
    let fits = match rule.demand {
        Demand::Nothing => true,
        Demand::Mixed => made.mixed(),
        Demand::Digit => made.digits > 0 && !values::is_no_value(value),
        Demand::LikeToken => values::is_like_token(value),
        Demand::Credentials => values::is_credentials(value),
        Demand::OfUrl => values::is_of_url(value),
        Demand::Address => values::is_address(text, at),
        Demand::RestOfKey => values::is_rest_of_key(text, at),
        Demand::Assigned => is_assigned(text, at, &taken, quoted),
    };
    let by_digits = matches!(
        rule.demand,
        Demand::Mixed | Demand::Digit | Demand::LikeToken | Demand::Assigned
    );
    match fits {
        true => Answer::Found,
        // what has no digit has none in its ends either
        false if by_digits && made.digits == 0 => {
            Answer::NotBefore(taken.end.saturating_sub(AGAIN))
        }
        false => Answer::No,
    }
}

/// Whether a name goes on and ends as names of values do.
fn is_name_of_value(behind: &[u8]) -> bool {
    let name = behind.iter().take(25).take_while(|b| is_of_name(b)).count();
    name < 25
        && behind
            .get(name)
            .is_some_and(|b| b"\"'`\\])=: \t".contains(b))
}

fn is_of_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.-".contains(byte)
}

/// Whether a name is a variable's at the beginning of its line, and its value stands right behind it.
fn is_variable(text: &[u8], first: usize, last: usize, between: &[u8]) -> bool {
    let capitals = text[first..last]
        .iter()
        .all(|b| matches!(b, b'A'..=b'Z' | b'0'..=b'9' | b'_'));
    let ahead = text[..first]
        .strip_suffix(b"export ")
        .unwrap_or(&text[..first]);
    let begins = ahead.is_empty() || ahead.ends_with(b"\n") || ahead.ends_with(b"\r");
    capitals && begins && matches!(between, b"=" | b"=\"" | b"='")
}

/// Whether a value stands behind the name of a secret that `at` is within.
fn is_assigned(text: &[u8], at: usize, value: &Range<usize>, quoted: bool) -> bool {
    let ahead = &text[at.saturating_sub(48)..at];
    let first = at - ahead.iter().rev().take_while(|b| is_of_name(b)).count();
    let last = at + text[at..].iter().take_while(|b| is_of_name(b)).count();
    let Some(kind) = names::kind(&text[first..last]) else {
        return false;
    };
    let (between, value) = (&text[last..value.start], &text[value.clone()]);
    // of several words, behind a variable that begins its line
    if kind == Kind::Sure && value.contains(&b' ') && is_variable(text, first, last, between) {
        return value.len() >= 8 && values::made(value).mixed() && !values::is_no_value(value);
    }
    if matches!(between, b" is " | b" is: ") {
        // in a sentence
        return values::made(value).mixed()
            && values::is_secret(kind.min(Kind::Likely), value, Place::Apart);
    }
    let of_json = text[..first].ends_with(b"\"")
        && between.starts_with(b"\"")
        && between.ends_with(b"\"")
        && between.contains(&b':');
    let place = match (quoted, of_json) {
        (true, true) => Place::Json,
        (true, false) => Place::Quotes,
        (false, _) if between.ends_with(b"=") => Place::Behind,
        (false, _) => Place::Apart,
    };
    values::is_secret(kind, value, place)
}
