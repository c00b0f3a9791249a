//! Taking out of a JSON text the keys for which a client's parser refuses all of it, and touching nothing else: neither numbers
//! nor escapes are decoded, since a text may hold what no decoder here takes (half of a surrogate pair, a number beyond a double).

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::{self, Finder};

use super::profile::Profile;

/// The text without forbidden keys, or `None` when it has none. `json` is valid JSON. Linear, whatever the nesting.
///
/// Forbidden are `__proto__`, a `prototype` below a `constructor`, and for strict clients a `constructor` that is null.
pub(super) fn scrub(json: &str, profile: Profile) -> Option<String> {
    is_suspicious(json.as_bytes(), profile)
        .then(|| Scrubber::new(json, profile).run())
        .flatten()
}

/// As [`scrub`], with the text itself when nothing is to be taken out.
pub(super) fn scrubbed(json: &str, profile: Profile) -> Cow<'_, str> {
    scrub(json, profile).map_or(Cow::Borrowed(json), Cow::Owned)
}

/// Made once: every part is searched for them.
static PROTO: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("proto"));
static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br"\u00"));

fn is_suspicious(json: &[u8], profile: Profile) -> bool {
    PROTO.find(json).is_some()
        || (profile == Profile::Strict5 && memmem::find(json, b"constructor").is_some())
        || has_letter_escape(json)
}

/// A `\u00xx` escape of an ASCII letter or underscore, which could spell a key.
fn has_letter_escape(text: &[u8]) -> bool {
    ESCAPE
        .find_iter(text)
        .any(|at| matches!(text.get(at + 4), Some(b'5'..=b'7')))
}

#[derive(Clone, Copy)]
struct Level {
    is_object: bool,
    /// It is the value of a key `constructor`.
    of_constructor: bool,
    /// Nothing of it was kept yet.
    is_first: bool,
    awaits_key: bool,
}

struct Scrubber<'a> {
    json: &'a str,
    profile: Profile,
    at: usize,
    kept: String,
    levels: Vec<Level>,
    /// The key whose value comes next is `constructor`.
    at_constructor: bool,
    took_out: bool,
}

impl<'a> Scrubber<'a> {
    fn new(json: &'a str, profile: Profile) -> Self {
        Self {
            json,
            profile,
            at: 0,
            kept: String::with_capacity(json.len()),
            levels: Vec::new(),
            at_constructor: false,
            took_out: false,
        }
    }

    fn run(mut self) -> Option<String> {
        while let Some(byte) = self.json.as_bytes().get(self.at) {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                b',' => {
                    self.at += 1;
                    if let Some(level) = self.levels.last_mut() {
                        level.awaits_key = level.is_object;
                    }
                }
                b':' => self.keep(1),
                b'}' | b']' => {
                    self.levels.pop();
                    self.keep(1);
                }
                b'{' | b'[' => {
                    self.separate();
                    self.levels.push(Level {
                        is_object: *byte == b'{',
                        of_constructor: std::mem::take(&mut self.at_constructor),
                        is_first: true,
                        awaits_key: *byte == b'{',
                    });
                    self.keep(1);
                }
                b'"' if self.levels.last().is_some_and(|level| level.awaits_key) => self.member(),
                _ => {
                    self.separate();
                    self.at_constructor = false;
                    self.keep(self.token());
                }
            }
        }
        self.took_out.then_some(self.kept)
    }

    /// A key: kept, or taken out with its value.
    fn member(&mut self) {
        let length = self.token();
        let name = name(&self.json[self.at..self.at + length]);
        let value = self.value_behind(self.at + length);
        let below_constructor = self.levels.last().is_some_and(|level| level.of_constructor);
        let is_null = self.json[value..].starts_with("null");
        let is_forbidden = match &*name {
            "__proto__" => true,
            "prototype" => below_constructor,
            "constructor" => self.profile == Profile::Strict5 && is_null,
            _ => false,
        };
        if is_forbidden {
            self.took_out = true;
            self.at = value;
            self.skip_value();
            return;
        }
        self.at_constructor = name == "constructor";
        self.separate();
        self.keep(length);
        if let Some(level) = self.levels.last_mut() {
            level.awaits_key = false;
        }
    }

    /// The comma before whatever is kept next, unless it follows its key.
    fn separate(&mut self) {
        if let Some(level) = self.levels.last_mut()
            && (level.awaits_key || !level.is_object)
            && !std::mem::take(&mut level.is_first)
        {
            self.kept.push(',');
        }
    }

    fn keep(&mut self, length: usize) {
        self.kept.push_str(&self.json[self.at..self.at + length]);
        self.at += length;
    }

    fn token(&self) -> usize {
        token_length(&self.json.as_bytes()[self.at..])
    }

    fn value_behind(&self, key_end: usize) -> usize {
        let rest = &self.json.as_bytes()[key_end..];
        let value = rest
            .iter()
            .position(|b| !matches!(b, b':' | b' ' | b'\t' | b'\n' | b'\r'));
        key_end + value.unwrap_or(rest.len())
    }

    fn skip_value(&mut self) {
        let mut depth = 0usize;
        while let Some(byte) = self.json.as_bytes().get(self.at) {
            match byte {
                b',' if depth == 0 => return,
                b'}' | b']' if depth == 0 => return,
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                b'"' => {
                    self.at += self.token();
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
    }
}

/// Length of the string, number or word that valid JSON begins with here.
pub(super) fn token_length(rest: &[u8]) -> usize {
    if rest.first() != Some(&b'"') {
        let ends = |b: &u8| matches!(b, b',' | b':' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
        return rest.iter().position(ends).unwrap_or(rest.len());
    }
    let mut length = 1;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &rest[length..]) {
        length += found + 1;
        if rest[length - 1] == b'"' {
            break;
        }
        length += 1;
    }
    length.min(rest.len())
}

/// A key as a client reads it. One that cannot be decoded is none of those that matter.
fn name(quoted: &str) -> Cow<'_, str> {
    if quoted.contains('\\') {
        serde_json::from_str(quoted).map_or(Cow::Borrowed(""), Cow::Owned)
    } else {
        Cow::Borrowed(&quoted[1..quoted.len() - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_keys_go_and_the_rest_stays_as_it_is() {
        for (json, kept) in [
            (r#"{"__proto__":1}"#, "{}"),
            (
                r#"{ "a" : 1 , "__proto__" : {"b":[1,"}"]} , "c" : "\ud800" }"#,
                r#"{"a":1,"c":"\ud800"}"#,
            ),
            (
                r#"[{"\u005f_prot\u006f__":1},[1e999,{"__proto__":[]}],"x"]"#,
                r#"[{},[1e999,{}],"x"]"#,
            ),
            (
                r#"{"constructor":{"prototype":1,"b":2},"prototype":3}"#,
                r#"{"constructor":{"b":2},"prototype":3}"#,
            ),
            (
                r#"{"constructor":[{"prototype":1}],"\u005f":{"__proto__":0,"__proto__":1},"z":-1.50}"#,
                r#"{"constructor":[{"prototype":1}],"\u005f":{},"z":-1.50}"#,
            ),
        ] {
            assert_eq!(
                scrub(json, Profile::Current).as_deref(),
                Some(kept),
                "{json}"
            );
        }
    }

    #[test]
    fn a_text_without_them_is_untouched() {
        for json in [
            r#"{"a":"__proto__","b":["prototype"],"prototype":1}"#,
            r#"{"constructor":1,"x":{"prototype":1}}"#,
            r#"{"constructor":[],"x":{"y":{"prototype":1}},"\u0041":"\ud800"}"#,
            r#"{"constructor":null,"proto":1}"#,
        ] {
            assert_eq!(scrub(json, Profile::Current), None, "{json}");
            assert_eq!(scrubbed(json, Profile::Current), json);
        }
        let null = r#"{"constructor":null,"a":1}"#;
        assert_eq!(scrub(null, Profile::Strict5).as_deref(), Some(r#"{"a":1}"#));
    }

    #[test]
    fn nesting_costs_no_stack() {
        let deep = 200_000;
        let json = format!(
            r#"{}{{"__proto__":1}}{}"#,
            "[".repeat(deep),
            "]".repeat(deep)
        );
        let kept = scrub(&json, Profile::Current).expect("a forbidden key");
        assert_eq!(kept.len(), 2 * deep + 2);
    }
}
