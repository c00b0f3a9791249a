//! What the gate does with a text.

use std::collections::BTreeSet;

use super::load::GateRule;
use super::{Gate, unpack, value};
use crate::bounds::{
    DECODED_FACTOR, DECODED_FLOOR, MAX_DEPTH, MAX_UNPACKED, MIN_BASE64, MIN_HEX, MIN_WRAPPED,
};
use crate::checks::{self, Style};
use crate::find::REJECTED;
use crate::keys::{self, Sensitivity};
use crate::switch::Stage;
use crate::{Profile, pii, rules, runs, token};

/// One look at the texts of a conversation.
pub(super) struct Look<'g> {
    pub gate: &'g Gate,
    /// Ids of what was found.
    pub found: BTreeSet<String>,
    depth: u8,
    /// Decoded bytes that may still be looked at.
    left: usize,
    /// The text stands under a key whose value may be random.
    pub opaque: bool,
    /// The text is what a run says.
    packed: bool,
}

impl<'g> Look<'g> {
    pub fn new(gate: &'g Gate) -> Self {
        Self {
            gate,
            found: BTreeSet::new(),
            depth: 0,
            left: 0,
            opaque: false,
            packed: false,
        }
    }

    pub fn runs(&self, stage: Stage) -> bool {
        self.gate.stages.runs(stage)
    }

    fn find(&mut self, id: &str) {
        if !self.found.contains(id) {
            self.found.insert(id.to_owned());
        }
    }

    /// Looks at a text that nothing stands around.
    pub fn whole(&mut self, text: &[u8]) {
        // more than the redactor's: a reading of base64 at four alignments costs more
        self.left = text
            .len()
            .saturating_mul(2 * DECODED_FACTOR)
            .saturating_add(2 * DECODED_FLOOR);
        self.text(text);
    }

    /// Looks at a text within another.
    pub fn text(&mut self, text: &[u8]) {
        // the redactor stops at the same depth and takes out what lies below
        if self.depth > MAX_DEPTH + 2 {
            return self.find("gate-depth");
        }
        self.depth += 1;
        if !(self.runs(Stage::Json) && value::json(text, self)) {
            self.between_lines(text);
        }
        self.depth -= 1;
    }

    /// Lines of JSON by themselves, everything else as one text each.
    fn between_lines(&mut self, text: &[u8]) {
        let begins = |line: &[u8]| matches!(line.trim_ascii_start().first(), Some(b'{' | b'['));
        if !self.runs(Stage::Json) || !text.split(|b| *b == b'\n').any(begins) {
            return self.plain(text);
        }
        let (mut from, mut at) = (0, 0);
        for line in text.split_inclusive(|b| *b == b'\n') {
            if begins(line) && value::json(line, self) {
                self.plain(&text[from..at]);
                from = at + line.len();
            }
            at += line.len();
        }
        self.plain(&text[from..]);
    }

    fn plain(&mut self, text: &[u8]) {
        if text.len() < 6 {
            return;
        }
        self.rules(text, false);
        self.long_runs(text);
        if self.gate.profile != Profile::Secrets && !self.opaque {
            let national = self.gate.profile == Profile::WithNationalIds;
            pii::scan(text, |kind, _| {
                if self.gate.stages.runs_rule(kind.id())
                    && (kind != pii::Kind::National || national)
                {
                    self.find(kind.id());
                }
            });
        }
        let printed = unpack::printed(text).filter(|_| self.runs(Stage::Ansi));
        let printed =
            printed.or_else(|| unpack::unpercent(text).filter(|_| self.runs(Stage::Percent)));
        if let Some(next) =
            printed.or_else(|| unpack::unescaped(text).filter(|_| self.runs(Stage::Unescape)))
        {
            self.decoded(&next);
        }
    }

    /// Looks at what was decoded, as far as the bound allows.
    fn decoded(&mut self, text: &[u8]) {
        match self.left.checked_sub(text.len()) {
            Some(left) => {
                self.left = left;
                self.text(text);
            }
            None => self.find("gate-bytes"),
        }
    }

    fn rules(&mut self, text: &[u8], binary: bool) {
        let gate = self.gate;
        let mut ours = 0;
        let mut hopeless = vec![0; gate.rules.rules.len()];
        for start in gate.rules.starts.find_overlapping_iter(text) {
            let at = start.start();
            let Some(number) = gate.rules.rule_of[start.pattern().as_usize()] else {
                ours = ours.max(at + token::length_at(&text[at..]).unwrap_or(0));
                continue;
            };
            let rule = &gate.rules.rules[number];
            let word = at > 0 && (text[at - 1].is_ascii_alphanumeric() || text[at - 1] == b'_');
            if at < ours
                || at < hopeless[number]
                || (binary && !rule.telling)
                || (rule.word_before && word)
                || self.found.contains(&rule.id)
                || !gate.stages.runs_rule(&rule.id)
            {
                continue;
            }
            if rule.personal && self.gate.profile == Profile::Secrets {
                continue;
            }
            match self.matches(rule, text, at, start.end()) {
                Answer::Found => self.find(&rule.id),
                Answer::NotBefore(next) => hopeless[number] = next,
                Answer::No if rule.fails_once => hopeless[number] = at + token_at(&text[at..]),
                Answer::No => {}
            }
        }
    }

    fn matches(&self, rule: &GateRule, text: &[u8], at: usize, end: usize) -> Answer {
        if rule.check == "assignment" && !may_be_assigned(&text[end..]) {
            return Answer::No;
        }
        let from = at.saturating_sub(rule.back);
        let window = &text[from..text.len().min(from + rule.window)];
        let Some((taken, quoted)) = rules::taken(&rule.pattern, &rule.ways, window) else {
            return Answer::No;
        };
        let taken = from + taken.start..from + taken.end;
        let value = &text[taken.clone()];
        let fits = match rule.check.as_str() {
            "mixed" => checks::is_mixed(value) && !checks::is_tokens(value),
            "digit" => checks::has_digit(value) && !checks::is_placeholder(value),
            "tokenish" => checks::is_tokenish(value),
            "basic" => checks::is_basic(value),
            "url-password" => checks::is_url_password(value),
            "email" => checks::email_start(text, at).is_some(),
            // the last line alone is no secret, the lines in front of it are
            "pem-rest" => crate::pem::before_last_line(text, at, taken.end).is_some(),
            "assignment" => assigned(text, at, &taken, quoted),
            _ => true,
        };
        let by_digits = ["mixed", "digit", "tokenish", "assignment"].contains(&rule.check.as_str());
        match fits {
            true => Answer::Found,
            // what has no digit has none in its ends either
            false if by_digits && !checks::has_digit(value) => {
                Answer::NotBefore(taken.end.saturating_sub(REJECTED))
            }
            false => Answer::No,
        }
    }

    fn long_runs(&mut self, text: &[u8]) {
        let in_run = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'-' | b'_');
        let mut at = 0;
        while at < text.len() {
            if !in_run(text[at]) {
                at += 1;
                continue;
            }
            let length = |from: usize| text[from..].iter().take_while(|b| in_run(**b)).count();
            let (start, mut line) = (at, length(at));
            at += line;
            // base64 and xxd wrap their lines
            while line >= MIN_WRAPPED {
                let gap = text[at..]
                    .iter()
                    .take(2)
                    .take_while(|b| b"\r\n".contains(b))
                    .count();
                line = length(at + gap);
                let closed = text
                    .get(at + gap + line)
                    .is_none_or(|b| b"\r\n=\"'".contains(b));
                if gap == 0 || line == 0 || !closed {
                    break;
                }
                at += gap + line;
            }
            if at - start >= MIN_BASE64 {
                let padding = text[at..]
                    .iter()
                    .take(2)
                    .take_while(|b| **b == b'=')
                    .count();
                self.run(text, start, at + padding);
                at += padding;
            }
        }
    }

    fn run(&mut self, text: &[u8], start: usize, end: usize) {
        let run = &text[start..end];
        let has = |what: fn(&u8) -> bool| run.iter().any(what);
        let (digit, upper, lower) = (
            has(u8::is_ascii_digit),
            has(u8::is_ascii_uppercase),
            has(u8::is_ascii_lowercase),
        );
        if !(digit || upper && lower) {
            return;
        }
        if self.runs(Stage::Hex)
            && run.len() >= MIN_HEX
            && run
                .iter()
                .all(|b| b.is_ascii_hexdigit() || b"\r\n".contains(b))
        {
            for bytes in unpack::unhex(run) {
                self.unpacked(&bytes);
            }
        }
        if self.runs(Stage::Base64) && lower {
            for bytes in unpack::base64(run) {
                self.unpacked(&bytes);
            }
        }
        let gate = self.gate;
        for number in &gate.rules.unbegun {
            let rule = &gate.rules.rules[*number];
            if gate.stages.runs_rule(&rule.id)
                && run.len() <= rule.window
                && rule.pattern.is_match(run)
            {
                self.find(&rule.id);
            }
        }
        let guesses = self.gate.profile != Profile::Secrets
            && !self.opaque
            && !self.packed
            && !self.found.contains("high-entropy")
            && self.gate.stages.runs_rule("high-entropy");
        if guesses && runs::is_random(text, &(start..end)) {
            self.find("high-entropy");
        }
    }

    fn unpacked(&mut self, bytes: &[u8]) {
        let inflated = if self.runs(Stage::Gzip) {
            unpack::inflated(bytes, MAX_UNPACKED)
        } else {
            Ok(None)
        };
        let Ok(inflated) = inflated else {
            return self.find("gate-bytes");
        };
        let bytes = inflated.as_deref().unwrap_or(bytes);
        let was = std::mem::replace(&mut self.packed, true);
        if crate::decode::packed::is_text(bytes) {
            self.decoded(bytes);
        } else {
            self.rules(bytes, true);
        }
        self.packed = was;
    }

    /// The value of a key of JSON.
    pub fn value(&mut self, key: &str, value: &[u8]) {
        if self.runs(Stage::Keys)
            && let Some(how) = keys::sensitivity(key.as_bytes())
            && checks::looks_assigned(how, value, Style::Json)
        {
            self.find("sensitive-key");
        }
    }

    /// A number of JSON.
    pub fn number(&mut self, key: Option<&str>, number: u64) {
        let digits = number.to_string();
        let how = key.and_then(|key| keys::sensitivity(key.as_bytes()));
        if how == Some(Sensitivity::Secret) && digits.len() >= 4 && self.runs(Stage::Keys) {
            self.find("sensitive-key");
        }
        if self.gate.profile != Profile::Secrets
            && pii::is_card(digits.as_bytes(), false)
            && self.gate.stages.runs_rule("card")
        {
            self.find("card");
        }
    }
}

/// What a rule says at one place.
enum Answer {
    Found,
    No,
    /// No, and it would say so again up to there.
    NotBefore(usize),
}

fn token_at(text: &[u8]) -> usize {
    text.iter()
        .take_while(|b| b.is_ascii_alphanumeric() || b"_-".contains(b))
        .count()
}

/// Whether a name goes on and ends as names of values do.
fn may_be_assigned(behind: &[u8]) -> bool {
    let name = behind
        .iter()
        .take(26)
        .take_while(|b| b.is_ascii_alphanumeric() || b"_.-".contains(b))
        .count();
    name <= 24
        && behind
            .get(name)
            .is_some_and(|b| b"\"'`\\])=: \t".contains(b))
}

/// Whether a value stands behind the name of a secret that `at` is within.
fn assigned(text: &[u8], at: usize, value: &std::ops::Range<usize>, quoted: bool) -> bool {
    let of_name = |b: &u8| b.is_ascii_alphanumeric() || b"_.-".contains(b);
    let first = at
        - text[at.saturating_sub(48)..at]
            .iter()
            .rev()
            .take_while(|b| of_name(b))
            .count();
    let last = at + text[at..].iter().take_while(|b| of_name(b)).count();
    let Some(how) = keys::sensitivity(&text[first..last]) else {
        return false;
    };
    let (between, value_text) = (&text[last..value.start], &text[value.clone()]);
    if between.starts_with(b" is") {
        return checks::is_mixed(value_text)
            && checks::looks_assigned(how.min(Sensitivity::Token), value_text, Style::Loose);
    }
    let of_json = text[..first].ends_with(b"\"")
        && between.starts_with(b"\"")
        && between.ends_with(b"\"")
        && between.contains(&b':');
    let style = match quoted {
        true if of_json => Style::Json,
        true => Style::Quoted,
        false if between.ends_with(b"=") => Style::Tight,
        false => Style::Loose,
    };
    checks::looks_assigned(how, value_text, style)
}
