//! Nothing of a secret is shown before it is known to be one: every rule, every split.

use bex_redact::{Class, Profile, Redactor, Rules, Secrets, StreamRedactor, TokenKey};
use serde_json::json;

use crate::joined_text;

fn stream() -> StreamRedactor {
    StreamRedactor::new(Secrets::new([]))
        .with_rules(Redactor::new(Profile::Secrets, TokenKey::new(b"session")))
}

/// What comes out of a text that is cut at these places.
fn shown(text: &str, places: &[usize]) -> String {
    let (mut stream, mut out, mut at) = (stream(), Vec::new(), 0);
    for place in places.iter().copied().chain([text.len()]) {
        let delta = json!({"type": "text-delta", "id": "1", "delta": &text[at..place]});
        stream.push(delta.to_string().into(), &mut out);
        at = place;
    }
    stream.end(&mut out);
    joined_text(&out)
}

/// The longest beginning of a taken text that stands in what was shown in front of its token.
fn leaked(taken: &str, before: &str, shown: &str) -> usize {
    let rest = shown.strip_prefix(before).unwrap_or(shown);
    let head = &rest[..rest.find("[redacted:").unwrap_or(rest.len())];
    taken
        .bytes()
        .zip(head.bytes())
        .take_while(|(a, b)| a == b)
        .count()
}

/// Characters of a secret without letters of its own in front that are not waited for: everything would be.
fn beginning(id: &str) -> usize {
    match id {
        // the four in front of its keyword; a digit must be among them
        "azure-secret" => 3,
        // its two letters
        "twilio-key" => 2,
        // eight of a line's 64 tell that it is none of words
        "private-key-rest" => 7,
        _ => 0,
    }
}

#[test]
fn every_sample_of_every_rule_split_over_two_and_three_deltas() {
    let mut failed = Vec::new();
    for rule in Rules::get()
        .iter()
        .filter(|rule| rule.class == Class::Secret)
    {
        for sample in &rule.positive {
            let text = format!("so:\n{sample}\n.");
            let whole = shown(&text, &[]);
            let before = &whole[..whole.find("[redacted:").expect(sample)];
            let taken = &text[before.len()..];
            // letters that all secrets of the kind begin with tell nothing of this one, nor do an account's digits in front of its token
            let account = taken
                .bytes()
                .take_while(|b| b.is_ascii_digit() || *b == b'-')
                .count();
            let telling = rule
                .keywords()
                .iter()
                .filter(|k| taken.starts_with(k.as_str()))
                .map(|k| k.len())
                .max()
                .unwrap_or(0)
                .max(account + usize::from(account > 0))
                .max(beginning(&rule.id));
            let places: Vec<usize> = (1..text.len())
                .filter(|at| text.is_char_boundary(*at))
                .collect();
            let mut worst = (0, Vec::new(), String::new());
            for first in &places {
                for cuts in [
                    vec![*first],
                    vec![*first, (*first + 3).min(text.len() - 1)],
                    vec![*first / 2 + 1, *first.max(&2)],
                ] {
                    if cuts.windows(2).any(|w| w[0] > w[1])
                        || cuts.iter().any(|c| !text.is_char_boundary(*c))
                    {
                        continue;
                    }
                    let out = shown(&text, &cuts);
                    let leaked = if out.starts_with(before) || out.len() < before.len() {
                        leaked(taken, before, &out)
                    } else {
                        0
                    };
                    let whole_left = !out.contains("[redacted:");
                    if leaked > worst.0 || whole_left {
                        worst = (if whole_left { 999 } else { leaked }, cuts, out);
                    }
                }
            }
            if worst.0 > telling {
                failed.push(format!(
                    "{}: {} of {:?} shown when cut at {:?}: {:?}",
                    rule.id, worst.0, sample, worst.1, worst.2
                ));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
