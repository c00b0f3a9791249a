//! The rules over a text: keywords first, a rule's pattern only where one of its keywords stands.

use std::ops::Range;

use memchr::memchr;

use crate::checks::{self, Check, Style};
use crate::engine::{Redactor, Scan};
use crate::hit::Hit;
use crate::rules::{Before, Rule};
use crate::switch::Stage;
use crate::{Class, keys, pem, token};

/// So much of a rejected find is looked at again.
pub(crate) const REJECTED: usize = 64;

/// Of a URL more is not looked at for the host behind a password.
const AUTHORITY: usize = 256;

/// Less than that behind a token is no find.
const MIN_FIND: usize = 3;
/// Finds before the last that are asked whether they are the same.
const RECENT: usize = 4;

/// What kind of bytes a text is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Bytes {
    /// Text.
    Text,
    /// Something else: only rules with telling keywords are asked.
    Binary,
}

impl Redactor {
    /// Adds what the rules find.
    pub(crate) fn find(&self, text: &[u8], bytes: Bytes, scan: &mut Scan, hits: &mut Vec<Hit>) {
        if !self.stages.runs(Stage::Load) {
            return;
        }
        let rules = self.rules;
        let first = hits.len();
        let mut passed = scan.passed(rules.list.len());
        // tokens that stand there already are left alone, whatever their names contain
        let mut masked = 0;
        let mut names = Names::default();
        for keyword in rules.keywords.find_overlapping_iter(text) {
            let at = rules.owner[keyword.pattern().as_usize()];
            let start = keyword.start();
            if at == usize::MAX {
                masked = masked.max(start + token::length_at(&text[start..]).unwrap_or(0));
                continue;
            }
            let rule = &rules.list[at];
            // a keyword that begins within a find and ends behind it begins the next
            let unfit = start < masked
                || keyword.end() <= passed[at]
                || (bytes == Bytes::Binary && !rule.whole)
                || !self.wants(rule.class);
            if unfit || !self.stages.runs_rule(&rule.id) || !fits_before(rule, text, start) {
                continue;
            }
            if rule.check == Check::Assignment && !names.may_be_assigned(text, keyword.range()) {
                continue;
            }
            let Some(start) = start.checked_sub(rule.back.min(start)) else {
                continue;
            };
            match matched(rule, text, start) {
                None if rule.run => {
                    passed[at] = start + text[start..].iter().take_while(|b| is_token(**b)).count();
                }
                None => {}
                Some(found) => match accepted(rule, text, start, &found) {
                    Some(span) => {
                        passed[at] = span.end;
                        // what reaches back into a token is what stands behind it, if that is anything
                        let span = match rule.back {
                            0 => span,
                            _ => span.start.max(masked)..span.end,
                        };
                        if rule.back > 0 && span.len() < MIN_FIND {
                            continue;
                        }
                        // what a better rule has found is not keyed twice
                        let recent = hits.len().saturating_sub(RECENT).max(first);
                        if hits[recent..].iter().any(|hit| hit.covers(&span, at)) {
                            continue;
                        }
                        // the same again has the same token
                        let same = hits[first..].last().filter(|before| {
                            before.rank == at && text[before.span.clone()] == text[span.clone()]
                        });
                        let hit = match same {
                            Some(before) => Hit {
                                with: before.with.clone(),
                                span,
                                ..*before
                            },
                            None => self.hit(span.clone(), at, &rule.id, rule.class, &text[span]),
                        };
                        hits.push(hit);
                    }
                    None => passed[at] = passed[at].max(rejected_until(rule, text, &found)),
                },
            }
        }
        scan.give_back(passed);
    }

    pub(crate) fn hit(
        &self,
        span: Range<usize>,
        rank: usize,
        id: &'static str,
        class: Class,
        secret: &[u8],
    ) -> Hit {
        Hit {
            span,
            rank,
            id,
            personal: class != Class::Secret,
            with: self.key.token(id, secret),
        }
    }
}

fn fits_before(rule: &Rule, text: &[u8], start: usize) -> bool {
    match rule.before {
        Before::Any => true,
        Before::Word => {
            start == 0 || !(text[start - 1].is_ascii_alphanumeric() || text[start - 1] == b'_')
        }
    }
}

/// What belongs to a token, once it has begun.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// What a rule's pattern takes.
struct Found {
    span: Range<usize>,
    style: Style,
    /// The pattern saw no farther.
    cut: bool,
}

/// What the rule's pattern takes at `start`.
fn matched(rule: &Rule, text: &[u8], start: usize) -> Option<Found> {
    let window = &text[start..(start + rule.max).min(text.len())];
    if rule
        .needs
        .as_ref()
        .is_some_and(|needs| needs.find(window).is_none())
    {
        return None;
    }
    let (span, quoted) = match rule.groups {
        true => rule.split.taken(&rule.pattern, window)?,
        false => (rule.pattern.find(window)?.range(), false),
    };
    let cut = span.end == window.len()
        || (matches!(rule.check, Check::Assignment | Check::Tokenish) && span.len() >= 60)
        || (rule.check == Check::Digit && span.len() >= 256);
    let span = start + span.start..start + span.end;
    let style = match quoted {
        true if text[..span.start].ends_with(b"\"") => Style::Json,
        true => Style::Quoted,
        false if text[..span.start].ends_with(b"=") => Style::Tight,
        false => Style::Loose,
    };
    Some(Found { span, style, cut })
}

/// The find after the rule's check, grown to the end of its token where the pattern could not see farther.
fn accepted(rule: &Rule, text: &[u8], start: usize, found: &Found) -> Option<Range<usize>> {
    let span = &found.span;
    let value = &text[span.clone()];
    if checks::is_tokens(value) {
        return None;
    }
    let fits = match rule.check {
        Check::None => true,
        Check::Mixed => checks::is_mixed(value),
        Check::Digit => checks::has_digit(value) && !checks::is_placeholder(value),
        Check::Tokenish => checks::is_tokenish(value),
        Check::Basic => checks::is_basic(value),
        Check::UrlPassword => checks::is_url_password(value),
        Check::Assignment => is_assigned(text, start, span, found.style),
        Check::Email => return checks::email_start(text, start).map(|first| first..span.end),
        Check::Pem => return Some(pem::from_first_line(text, start, span.end)),
        Check::PemRest => return pem::before_last_line(text, start, span.end),
    };
    let end = || match rule.check {
        Check::UrlPassword => password_end(text, span.end),
        Check::Assignment
            if found.style == Style::Tight && is_variable(text, start, span.start) =>
        {
            // in a file of variables a value goes on to the end of its word
            let rest = text[span.end..].iter();
            span.end
                + rest
                    .take_while(|b| !b.is_ascii_whitespace() && !b"\"'`\\".contains(b))
                    .count()
        }
        _ => grown(rule, text, found),
    };
    fits.then(|| span.start..end())
}

/// Whether `start` is in the name of a variable that begins its line, with nothing but `=` and quotes up to its value.
fn is_variable(text: &[u8], start: usize, value: usize) -> bool {
    let of_name = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_';
    let before = text[..start].iter().rev().take(48);
    let before = before.take_while(|b| of_name(b)).count();
    let after = text[start..value].iter().take_while(|b| of_name(b)).count();
    let line = &text[..start - before];
    let line = line.strip_suffix(b"export ").unwrap_or(line);
    let begins = line.last().is_none_or(|b| matches!(b, b'\n' | b'\r'));
    let gap = &text[start + after..value];
    begins && gap.first() == Some(&b'=') && gap[1..].iter().all(|b| b"\"'".contains(b))
}

/// Where the password of a URL ends: at the last `@` before its path.
fn password_end(text: &[u8], end: usize) -> usize {
    let authority = text[end..].iter().take(AUTHORITY);
    let authority =
        authority.take_while(|b| !b.is_ascii_whitespace() && !b"/?#\"'<>\\`".contains(b));
    authority
        .enumerate()
        .filter(|(_, b)| **b == b'@')
        .last()
        .map_or(end, |(at, _)| end + at)
}

/// Where a find ends.
fn grown(rule: &Rule, text: &[u8], found: &Found) -> usize {
    let mut end = found.span.end;
    let quoted = matches!(found.style, Style::Json | Style::Quoted);
    if found.cut {
        let rest = text[end..].iter();
        end += if quoted {
            rest.take_while(|b| !b"\"'`\\\r\n".contains(b)).count()
        } else if rule.check == Check::Digit {
            // a header goes on to the end of its line
            rest.take_while(|b| !b"\"'\\\r\n<>".contains(b)).count()
        } else if rule.check == Check::Assignment {
            rest.take_while(|b| !b.is_ascii_whitespace() && !b"\"'`\\,;&|<>(){}[]".contains(b))
                .count()
        } else {
            rest.take_while(|b| is_token(**b) || b"+/=.~%".contains(b))
                .count()
        };
    }
    // the end of a sentence
    let over = text
        .get(end)
        .is_none_or(|b| b.is_ascii_whitespace() || b"\"'`)]}".contains(b));
    if !quoted && over && found.span.len() > 8 && text[end - 1] == b'.' {
        end -= 1;
    }
    end
}

/// How far a rule need not be asked again: what was rejected for being all letters is so in each of its ends, but for the last,
/// behind which there may be more.
fn rejected_until(rule: &Rule, text: &[u8], found: &Found) -> usize {
    let letters = matches!(
        rule.check,
        Check::Mixed | Check::Digit | Check::Tokenish | Check::Assignment
    ) && !checks::has_digit(&text[found.span.clone()]);
    if letters {
        found.span.end.saturating_sub(REJECTED)
    } else {
        0
    }
}

/// Whether a value stands behind the name of a secret. `start` is within the name.
fn is_assigned(text: &[u8], start: usize, value: &Range<usize>, style: Style) -> bool {
    let part = |b: &u8| b.is_ascii_alphanumeric() || b"_.-".contains(b);
    let before = text[..start]
        .iter()
        .rev()
        .take(48)
        .take_while(|b| part(b))
        .count();
    let after = text[start..].iter().take_while(|b| part(b)).count();
    let name = &text[start - before..start + after];
    let Some(how) = keys::sensitivity(name) else {
        return false;
    };
    // the last step of a path is the name; "-" begins an option, not a name
    let quoted = start > before
        && text[start - before - 1] == b'"'
        && text.get(start + after) == Some(&b'"');
    let gap = &text[start + after..value.start];
    // a password of several words
    let words = &text[value.clone()];
    if how == keys::Sensitivity::Secret
        && words.contains(&b' ')
        && is_variable(text, start, value.start)
    {
        return words.len() >= 8 && checks::is_mixed(words) && !checks::is_placeholder(words);
    }
    let style = match style {
        Style::Json if quoted && gap.contains(&b':') => Style::Json,
        Style::Json => Style::Quoted,
        other => other,
    };
    if gap == b" is " || gap == b" is: " {
        return checks::looks_assigned(
            how.min(keys::Sensitivity::Token),
            &text[value.clone()],
            Style::Loose,
        ) && checks::is_mixed(&text[value.clone()]);
    }
    checks::looks_assigned(how, &text[value.clone()], style)
}

/// Where the names around keywords end: looked up once each.
#[derive(Default)]
struct Names {
    end: usize,
}

impl Names {
    /// Whether a value may be assigned to the name of this keyword.
    fn may_be_assigned(&mut self, text: &[u8], keyword: Range<usize>) -> bool {
        if self.end < keyword.end {
            let part = |b: &u8| b.is_ascii_alphanumeric() || b"_.-".contains(b);
            self.end = keyword.end + text[keyword.end..].iter().take_while(|b| part(b)).count();
        }
        self.end - keyword.end <= 24
            && text
                .get(self.end)
                .is_some_and(|b| b"\"'`\\])=: \t".contains(b))
    }
}

/// What the data of a server-sent event begins with.
pub(crate) const EVENT: &[u8] = b"data:";

/// Whether a text may hold a line of JSON: one that begins with a bracket, or a server-sent event.
pub(crate) fn may_hold_json_lines(text: &[u8]) -> bool {
    let opens = |t: &[u8]| {
        t.starts_with(EVENT) || matches!(t.trim_ascii_start().first(), Some(b'{' | b'['))
    };
    if opens(&text[..text.len().min(64)]) {
        return true;
    }
    let mut at = 0;
    while let Some(next) = memchr(b'\n', &text[at..]) {
        at += next + 1;
        if matches!(text.get(at), Some(b'{' | b'[' | b' ' | b'\t' | b'd'))
            && opens(&text[at..(at + 64).min(text.len())])
        {
            return true;
        }
    }
    false
}
