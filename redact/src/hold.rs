//! What of a stream's text may not leave yet.

use memchr::{memmem, memrchr};

use crate::checks::has_digit;
use crate::engine::Redactor;
use crate::pem;
use crate::rules::Rules;
use crate::{Class, bounds, runs};

/// Keywords of leads are looked for in this many bytes before the end.
const LEAD: usize = 320;
/// And tails.
const TAIL: usize = 128;

/// What is held when it becomes too much to hold, and so how its end is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holding {
    /// A token: it ends at white space or a quote.
    Token,
    /// A private key: it ends with its last line, or with what is no part of one.
    PrivateKey,
}

impl Redactor {
    /// From where on a run's text may still become a secret, and why; its length when nothing may.
    pub(crate) fn held_from(&self, text: &[u8]) -> (usize, Holding) {
        if let Some(at) = private_key(text) {
            return (at, Holding::PrivateKey);
        }
        let floor = text
            .len()
            .saturating_sub(bounds::MAX_HELD + bounds::CONTEXT);
        let token = floor
            + text[floor..]
                .iter()
                .rposition(|b| ends_token(*b))
                .map_or(0, |n| n + 1);
        let held = [
            self.lead(text),
            self.tail(text),
            rest_of_key(text),
            keyword(self.rules, text, token),
            beginning(self.rules, text, token),
            random(text),
            escapes(&text[token..]).map(|at| token + at),
        ];
        let at = held.into_iter().flatten().min().unwrap_or(text.len());
        (at, Holding::Token)
    }

    /// Where the name of a secret stands whose value is not over.
    fn lead(&self, text: &[u8]) -> Option<usize> {
        let floor = text.len().saturating_sub(LEAD);
        let tail = &text[floor..];
        let leads = self
            .rules
            .keywords
            .find_overlapping_iter(tail)
            .filter_map(|keyword| {
                let rule = self
                    .rules
                    .list
                    .get(self.rules.owner[keyword.pattern().as_usize()])?;
                let lead = rule.lead.as_ref()?;
                lead.is_match(&tail[keyword.start()..])
                    .then_some(floor + keyword.start())
            });
        leads.min()
    }

    /// Where a secret may have begun whose keyword is still to come.
    fn tail(&self, text: &[u8]) -> Option<usize> {
        let floor = text.len().saturating_sub(TAIL);
        let tails = self.rules.list.iter().filter_map(|rule| rule.tail.as_ref());
        let found = tails.filter_map(|tail| tail.find(&text[floor..]));
        found.map(|found| floor + found.start()).min()
    }
}

/// Where the last lines of a private key begin whose very last line is not over.
fn rest_of_key(text: &[u8]) -> Option<usize> {
    let line = memrchr(b'\n', text)? + 1;
    let last = &text[line..];
    let dashes = last.iter().take_while(|b| **b == b'-').count();
    let name = &last[dashes..];
    let named = name.starts_with(b"END ") || b"END ".starts_with(name);
    let plain = name
        .iter()
        .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b" -".contains(b));
    if dashes == 0 || last.len() > 80 || !named || !plain {
        return None;
    }
    pem::before_last_line(text, line + dashes - 1, text.len()).map(|span| span.start)
}

/// What a token is not held beyond.
fn ends_token(byte: u8) -> bool {
    byte.is_ascii_whitespace() || b"\"'`<>(){}[],;".contains(&byte)
}

/// Where a private key begins that is not over.
fn private_key(text: &[u8]) -> Option<usize> {
    let begin = memmem::rfind(text, b"-BEGIN ")?;
    let line = &text[begin..];
    let named = line
        .iter()
        .take_while(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b" -".contains(b))
        .count();
    if named == line.len() && named < 80 {
        // its first line is not over
        return Some(begin);
    }
    let header = &line[..named];
    memmem::find(header, b"PRIVATE KEY")?;
    let span = pem::from_first_line(text, begin, begin + named);
    let rest = text[span.end..].trim_ascii_start();
    let closing = rest.len() < 64
        && rest
            .iter()
            .all(|b| b.is_ascii_uppercase() || b" -".contains(b));
    let closed = memmem::find(&text[begin..span.end], b"-END ").is_some()
        && text[..span.end].ends_with(b"--");
    (!closed && closing).then_some(span.start)
}

/// A whole keyword in the last token.
fn keyword(rules: &Rules, text: &[u8], token: usize) -> Option<usize> {
    let found = rules
        .keywords
        .find_overlapping_iter(&text[token..])
        .find(|keyword| {
            rules
                .list
                .get(rules.owner[keyword.pattern().as_usize()])
                .is_some_and(|rule| rule.class == Class::Secret && rule.lead.is_none())
        });
    found.map(|_| token)
}

/// The beginning of a keyword at the end, where a word begins: three characters of it at least. Fewer tell nothing: they are the same
/// for every secret of the kind.
fn beginning(rules: &Rules, text: &[u8], token: usize) -> Option<usize> {
    let last = &text[token..];
    let starts = rules.prefixes.iter().flat_map(|prefix| {
        (3..prefix.len()).filter_map(|n| {
            let at = last.len().checked_sub(n)?;
            let fresh = at == 0 || !last[at - 1].is_ascii_alphanumeric();
            (fresh && last[at..] == prefix[..n]).then_some(token + at)
        })
    });
    starts.min()
}

/// A run at the end that does not look like a word.
fn random(text: &[u8]) -> Option<usize> {
    let floor = text
        .len()
        .saturating_sub(bounds::MAX_HELD + bounds::CONTEXT);
    let mut last = None;
    runs::each(&text[floor..], 8, |span| {
        last = Some(span.start + floor..span.end + floor)
    });
    let run = last.filter(|run| {
        text[run.end..]
            .iter()
            .all(|b| matches!(b, b'\r' | b'\n' | b'='))
    })?;
    if run.end < text.len() && run.len() < 60 && text[run.end..].iter().any(|b| *b != b'=') {
        return None;
    }
    let run_text = &text[run.clone()];
    let (digit, upper, lower) = (
        has_digit(run_text),
        run_text.iter().any(u8::is_ascii_uppercase),
        run_text.iter().any(u8::is_ascii_lowercase),
    );
    let hex = digit && (upper || lower) && run_text.iter().all(u8::is_ascii_hexdigit);
    let mixed = digit && upper && lower;
    let long = run.len() >= 20 && upper && lower;
    (mixed || hex || long).then_some(run.start)
}

/// From where on a token holds escapes, or may be within one.
fn escapes(token: &[u8]) -> Option<usize> {
    let percent = token
        .windows(3)
        .any(|w| w[0] == b'%' && w[1..].iter().all(u8::is_ascii_hexdigit));
    if percent || memmem::find(token, b"\\u").is_some() || token.contains(&0x1b) {
        return Some(0);
    }
    // an escape is not torn apart: what is put in its place would be escaped
    let backslashes = token.iter().rev().take_while(|b| **b == b'\\').count();
    (backslashes % 2 == 1).then(|| token.len() - 1)
}
