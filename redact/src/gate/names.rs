//! What the gate takes a name for: a key of JSON, a variable, an option.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::lists::{HARMLESS_NAMES, NAME_TAILS, OPAQUE_NAMES, SECRET_NAMES, TOKEN_NAMES};

/// How sure a name makes it that its value is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// It may be one, if it is random enough.
    Perhaps,
    /// It is one if it looks like one.
    Likely,
    /// It is one.
    Sure,
}

/// What a name says.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Said {
    /// About its value being a secret.
    pub kind: Option<Kind>,
    /// Its value may be random and be none.
    pub opaque: bool,
}

/// More of a name, from its end, is not read.
const READ: usize = 96;
/// Names that are remembered.
const REMEMBERED: usize = 1024;

/// The telling ends of names, and the length of the longest.
struct Ends {
    kinds: HashMap<&'static [u8], Option<Kind>>,
    opaque: Vec<&'static [u8]>,
    longest: usize,
}

static ENDS: LazyLock<Ends> = LazyLock::new(|| {
    let of =
        |list: &'static [&'static str], kind| list.iter().map(move |end| (end.as_bytes(), kind));
    let kinds: HashMap<_, _> = of(&SECRET_NAMES, Some(Kind::Sure))
        .chain(of(&TOKEN_NAMES, Some(Kind::Likely)))
        .chain(of(&HARMLESS_NAMES, None))
        .collect();
    Ends {
        longest: kinds.keys().map(|end| end.len()).max().unwrap_or(0),
        kinds,
        opaque: OPAQUE_NAMES.iter().map(|end| end.as_bytes()).collect(),
    }
});

/// What names said that were asked for before: those of fields come by the thousand.
#[derive(Default)]
pub(super) struct Names(HashMap<Box<[u8]>, Said>);

impl Names {
    /// What a name says.
    pub fn said(&mut self, name: &[u8]) -> Said {
        if let Some(said) = self.0.get(name) {
            return *said;
        }
        let said = Said {
            kind: kind(name),
            opaque: is_opaque(name),
        };
        if name.len() <= READ {
            if self.0.len() >= REMEMBERED {
                self.0.clear();
            }
            self.0.insert(name.into(), said);
        }
        said
    }
}

/// Small letters and digits of a name's end.
fn letters(name: &[u8]) -> Vec<u8> {
    let end = name.len().saturating_sub(READ);
    let mut letters = name[end..].to_ascii_lowercase();
    letters.retain(u8::is_ascii_alphanumeric);
    letters
}

/// What a name makes of its value; the longest telling end of the name decides.
pub(super) fn kind(name: &[u8]) -> Option<Kind> {
    if name.len() < 3 {
        return None;
    }
    let mut name = letters(name);
    while name.last().is_some_and(u8::is_ascii_digit) && !is_encoding(&name) {
        name.pop();
    }
    for tail in NAME_TAILS {
        if let Some(rest) = name.strip_suffix(tail.as_bytes())
            && SECRET_NAMES
                .iter()
                .any(|end| rest.ends_with(end.as_bytes()))
        {
            name.truncate(rest.len());
            break;
        }
    }
    for length in (1..=ENDS.longest.min(name.len())).rev() {
        if let Some(kind) = ENDS.kinds.get(&name[name.len() - length..]) {
            return *kind;
        }
    }
    (name.ends_with(b"key") && name.len() < 40).then_some(Kind::Perhaps)
}

/// Whether the digits at its end belong to the name of an encoding.
fn is_encoding(name: &[u8]) -> bool {
    name.ends_with(b"base64") || name.ends_with(b"b64")
}

/// Whether a random value of this name is to be expected.
fn is_opaque(name: &[u8]) -> bool {
    let plain = letters(name);
    let id = match plain.as_slice() {
        [.., b'i', b'd'] => 2,
        [.., b'i', b'd', b's'] => 3,
        _ => {
            return plain.starts_with(b"encrypted")
                || ENDS.opaque.iter().any(|end| plain.ends_with(end));
        }
    };
    // "paid" is none: an id is a word of its own
    match &name[..name.len().saturating_sub(id - 1)] {
        [] => false,
        [.., before, b'i'] => !before.is_ascii_alphabetic(),
        [.., last] => last.eq_ignore_ascii_case(&b'i'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_end_decides() {
        for (name, kind_of) in [
            ("DB_PASSWORD", Some(Kind::Sure)),
            ("clientSecret2", Some(Kind::Sure)),
            ("password_base64", Some(Kind::Sure)),
            ("GITHUB_TOKEN", Some(Kind::Likely)),
            ("sshKey", Some(Kind::Perhaps)),
            ("publicKey", None),
            ("maxTokens", None),
            ("bypass", None),
            ("id", None),
        ] {
            assert_eq!(kind(name.as_bytes()), kind_of, "{name}");
        }
        let mut names = Names::default();
        assert!(names.said(b"toolCallId").opaque && !names.said(b"output").opaque);
        for (name, opaque) in [
            ("id", true),
            ("run_id", true),
            ("IDs", true),
            ("paid", false),
            ("content", false),
            ("id_", false),
        ] {
            assert_eq!(names.said(name.as_bytes()).opaque, opaque, "{name}");
        }
        assert_eq!(names.said(b"toolCallId").kind, None);
    }
}
