//! How sensitive the value of a name is: a key of JSON, a variable, an option.

use std::sync::LazyLock;

use crate::lists::{HARMLESS_NAMES, NAME_TAILS, OPAQUE_NAMES, SECRET_NAMES, TOKEN_NAMES};

/// What a name says about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sensitivity {
    /// Its value may be a key of any kind, of a map as well as of a door.
    Key,
    /// Its value is a secret if it looks like one.
    Token,
    /// Its value is a secret, whatever it looks like.
    Secret,
}

/// More of a name is not looked at.
const MAX_NAME: usize = 96;

/// What a name says; `None` when nothing.
pub fn sensitivity(name: &[u8]) -> Option<Sensitivity> {
    if name.len() < 3 {
        return None;
    }
    // the end tells
    let name = &name[name.len().saturating_sub(MAX_NAME)..];
    let mut plain = [0; MAX_NAME];
    let mut length = 0;
    for byte in name.iter().filter(|b| b.is_ascii_alphanumeric()) {
        plain[length] = byte.to_ascii_lowercase();
        length += 1;
    }
    let mut plain = &plain[..length];
    while let [rest @ .., b'0'..=b'9'] = plain
        && !ends(plain, &["base64", "b64"])
    {
        plain = rest;
    }
    if let Some(tail) = NAME_TAILS
        .iter()
        .find(|tail| plain.ends_with(tail.as_bytes()))
    {
        let rest = &plain[..plain.len() - tail.len()];
        if ends(rest, &SECRET_NAMES) {
            plain = rest;
        }
    }
    // "dbPass" and "pass" are names of passwords; "bypass" and its like are harmless
    if let Some(known) = known(plain) {
        return known;
    }
    (plain.ends_with(b"key") && plain.len() < 40).then_some(Sensitivity::Key)
}

/// What the lists say of a name, by the one whose entry it ends with: first the harmless ones.
fn known(name: &[u8]) -> Option<Option<Sensitivity>> {
    type Entry = (&'static str, Option<Sensitivity>);
    static BY_LAST: LazyLock<[Vec<Entry>; 256]> = LazyLock::new(|| {
        let harmless = HARMLESS_NAMES.iter().map(|name| (*name, None));
        let secret = SECRET_NAMES
            .iter()
            .map(|name| (*name, Some(Sensitivity::Secret)));
        let token = TOKEN_NAMES
            .iter()
            .map(|name| (*name, Some(Sensitivity::Token)));
        let all: Vec<Entry> = harmless.chain(secret).chain(token).collect();
        std::array::from_fn(|last| {
            let mut entries = all.clone();
            entries.retain(|(entry, _)| entry.bytes().last().map(usize::from) == Some(last));
            entries
        })
    });
    let mut entries = BY_LAST[usize::from(*name.last()?)].iter();
    let (_, says) = entries.find(|(entry, _)| name.ends_with(entry.as_bytes()))?;
    Some(*says)
}

fn ends(name: &[u8], list: &[&str]) -> bool {
    // most differ in their last letter already
    let last = name.last();
    list.iter()
        .any(|end| end.as_bytes().last() == last && name.ends_with(end.as_bytes()))
}

/// Whether a name's last word is this one: "toolCallId", "run_id", not "paid".
fn ends_with_word(name: &[u8], word: &[u8]) -> bool {
    let Some((rest, last)) = name
        .len()
        .checked_sub(word.len())
        .map(|at| name.split_at(at))
    else {
        return false;
    };
    last.eq_ignore_ascii_case(word)
        && (last[0].is_ascii_uppercase() || rest.last().is_none_or(|b| !b.is_ascii_alphabetic()))
}

/// Whether a random-looking value of this name is to be expected: an id, a digest, something encrypted already.
pub fn is_opaque(name: &[u8]) -> bool {
    let name = &name[name.len().saturating_sub(MAX_NAME)..];
    let plain: Vec<u8> = name
        .iter()
        .filter(|b| b.is_ascii_alphanumeric())
        .map(u8::to_ascii_lowercase)
        .collect();
    if plain.ends_with(b"id") || plain.ends_with(b"ids") {
        return ends_with_word(name, b"id") || ends_with_word(name, b"ids");
    }
    plain.starts_with(b"encrypted") || ends(&plain, &OPAQUE_NAMES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_what_they_say() {
        for name in [
            "password",
            "DB_PASSWORD",
            "clientSecret",
            "x-api-key",
            "AWS_SECRET_ACCESS_KEY",
            "secretAccessKey2",
            "PGPASSWORD",
            "password_base64",
            "Authorization",
        ] {
            assert_eq!(
                sensitivity(name.as_bytes()),
                Some(Sensitivity::Secret),
                "{name}"
            );
        }
        for name in ["token", "GITHUB_TOKEN", "db_pass", "cookie"] {
            assert_eq!(
                sensitivity(name.as_bytes()),
                Some(Sensitivity::Token),
                "{name}"
            );
        }
        for name in ["key", "AWS_KEY", "sshKey"] {
            assert_eq!(
                sensitivity(name.as_bytes()),
                Some(Sensitivity::Key),
                "{name}"
            );
        }
        for name in [
            "publicKey",
            "maxTokens",
            "nextPageToken",
            "secretName",
            "tokenizer",
            "keyboard",
            "secretary",
            "accessKeyId",
            "type",
            "bypass",
            "primary_key",
        ] {
            assert_eq!(sensitivity(name.as_bytes()), None, "{name}");
        }
        assert!(
            is_opaque(b"toolCallId")
                && is_opaque(b"run_id")
                && !is_opaque(b"paid")
                && !is_opaque(b"content")
                && is_opaque(b"encrypted_content")
                && !is_opaque(b"output")
        );
    }
}
