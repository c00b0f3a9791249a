//! JSON as the gate reads it: piece by piece, so that a document need not be in memory, and as deep as it likes.
//!
//! Whether something is JSON is for serde to say; here its strings and numbers are told from what stands between.

use memchr::memchr2;
use serde::de::IgnoredAny;

use super::look::Look;
use super::unpack;
use super::values::Place;
use crate::bounds::{MAX_GATE_OPEN, MAX_GATE_TEXT, MIN_BASE64};
use crate::lists::PAIRS;
use crate::switch::Stage;

/// Looks at a text as a JSON object or array; whether it is one.
pub(super) fn document(text: &[u8], look: &mut Look<'_>) -> bool {
    let text = text.trim_ascii();
    let brackets = matches!(
        (text.first(), text.last()),
        (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']'))
    );
    // as many logs have
    if brackets && text.len() == 2 {
        return true;
    }
    if !brackets || serde_json::from_slice::<IgnoredAny>(text).is_err() {
        return false;
    }
    let mut reader = Reader::new(Bound::Shared);
    reader.feed(text, look);
    reader.finish(look);
    true
}

/// What bounds the views of a document's texts.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Bound {
    /// The bound of the text that the document is.
    Shared,
    /// One for each text: the document's length is not known.
    Each,
}

/// An open object or array.
#[derive(Default)]
struct Open {
    is_array: bool,
    /// In an object the last key; in an array the name that the array stands under.
    key: Vec<u8>,
    /// What this object's `name` or `key` says, or else what it stands under: the name of its `value`.
    names: Option<Vec<u8>>,
    /// Elements of this array that are over, and the last one if it is a short text.
    elements: usize,
    last: Option<Vec<u8>>,
    /// What its elements are as bytes, as long as they are.
    bytes: Vec<u8>,
}

/// Longer texts name nothing.
const MAX_NAME: usize = 128;

/// Where the reading is.
enum State {
    Between,
    /// In a string; whether a backslash came last.
    Text(bool),
    Number,
}

/// Reads valid JSON that comes in pieces; tells the look every key, text and whole number.
pub(super) struct Reader {
    bound: Bound,
    state: State,
    /// The raw string or number that is being read.
    raw: Vec<u8>,
    /// Whether the string has escapes.
    escapes: bool,
    /// A string that is over: a key if a colon follows.
    last: Option<Vec<u8>>,
    open: Vec<Open>,
}

impl Reader {
    pub fn new(bound: Bound) -> Self {
        Self {
            bound,
            state: State::Between,
            raw: Vec::new(),
            escapes: false,
            last: None,
            open: Vec::new(),
        }
    }

    /// Reads the next piece.
    pub fn feed(&mut self, piece: &[u8], look: &mut Look<'_>) {
        let mut at = 0;
        while at < piece.len() {
            at = match self.state {
                State::Text(escaped) => self.in_text(piece, at, escaped, look),
                State::Number => self.in_number(piece, at, look),
                State::Between => {
                    self.between(piece[at], look);
                    at + 1
                }
            };
        }
    }

    /// The document is over.
    pub fn finish(mut self, look: &mut Look<'_>) {
        // a document that is a text or a number alone
        self.in_number(b" ", 0, look);
        self.between(b',', look);
    }

    fn in_text(&mut self, piece: &[u8], at: usize, escaped: bool, look: &mut Look<'_>) -> usize {
        if escaped {
            self.raw.push(piece[at]);
            self.state = State::Text(false);
            return at + 1;
        }
        let end = memchr2(b'"', b'\\', &piece[at..]).map_or(piece.len(), |n| at + n);
        if self.raw.len() + (end - at) > MAX_GATE_TEXT {
            look.find("gate-bytes");
            self.raw.clear();
        } else {
            self.raw.extend_from_slice(&piece[at..end]);
        }
        match piece.get(end) {
            Some(b'\\') => {
                self.raw.push(b'\\');
                self.escapes = true;
                self.state = State::Text(true);
            }
            Some(_) => {
                self.state = State::Between;
                self.last = Some(self.decoded());
            }
            None => {}
        }
        end + 1
    }

    /// What the string says that was read.
    fn decoded(&mut self) -> Vec<u8> {
        let raw = std::mem::take(&mut self.raw);
        if !std::mem::take(&mut self.escapes) {
            return raw;
        }
        let quoted = [b"\"", &raw[..], b"\""].concat();
        match serde_json::from_slice::<String>(&quoted) {
            Ok(text) => text.into_bytes(),
            // half a surrogate pair
            Err(_) => unpack::unescaped(&raw).unwrap_or(raw),
        }
    }

    fn in_number(&mut self, piece: &[u8], at: usize, look: &mut Look<'_>) -> usize {
        let length = piece[at..]
            .iter()
            .take_while(|b| b.is_ascii_digit() || b"+-.eE".contains(b))
            .count();
        // a longer one is nobody's
        if self.raw.len() < 4096 {
            self.raw.extend_from_slice(&piece[at..at + length]);
        }
        if at + length < piece.len() {
            self.state = State::Between;
            let raw = std::mem::take(&mut self.raw);
            look.number(self.name(), &raw);
            if let Some(array) = self.open.last_mut().filter(|open| open.is_array) {
                let number = std::str::from_utf8(&raw).unwrap_or_default();
                match number.parse() {
                    Ok(byte) if array.bytes.len() == array.elements => array.bytes.push(byte),
                    _ => {}
                }
            }
        }
        at + length
    }

    fn between(&mut self, byte: u8, look: &mut Look<'_>) {
        if byte.is_ascii_whitespace() {
            return;
        }
        if let Some(text) = self.last.take() {
            if byte == b':' {
                self.is_key(text, look);
                return;
            }
            self.is_value(text, byte, look);
        }
        match byte {
            b'"' => self.state = State::Text(false),
            b'{' | b'[' => {
                if self.open.len() >= MAX_GATE_OPEN {
                    return look.find("gate-depth");
                }
                let is_array = byte == b'[';
                let above = self.open.last().map(|open| open.key.clone());
                let above = above.filter(|key| !key.is_empty());
                let open = if is_array {
                    Open {
                        is_array,
                        key: above.unwrap_or_default(),
                        ..Open::default()
                    }
                } else {
                    Open {
                        names: above,
                        ..Open::default()
                    }
                };
                self.open.push(open);
            }
            b',' => {
                if let Some(open) = self.open.last_mut() {
                    open.elements += 1;
                }
            }
            b'}' | b']' => {
                let bytes = self.open.pop().map(|open| open.bytes).unwrap_or_default();
                if bytes.len() >= MIN_BASE64 && look.runs(Stage::Bytes) {
                    self.allow(bytes.len(), look);
                    look.unpacked(&bytes);
                }
            }
            b'-' | b'0'..=b'9' => {
                self.raw.push(byte);
                self.state = State::Number;
            }
            _ => {}
        }
    }

    fn is_key(&mut self, key: Vec<u8>, look: &mut Look<'_>) {
        self.allow(key.len(), look);
        look.bare_text(&key);
        if let Some(object) = self.open.last_mut() {
            object.key = key;
        }
    }

    /// A text that is no key; `next` stands behind it.
    fn is_value(&mut self, text: Vec<u8>, next: u8, look: &mut Look<'_>) {
        self.allow(text.len(), look);
        match (self.name_in_front(next), self.name()) {
            (Some(name), _) => look.named_text(name, &text, Place::Apart),
            (None, b"") => look.bare_text(&text),
            (None, name) => look.named_text(name, &text, Place::Json),
        }
        let Some(open) = self.open.last_mut() else {
            return;
        };
        if open.is_array {
            open.last = Some(text).filter(|text| text.len() <= MAX_NAME);
        } else if is_any(&open.key, PAIRS.map(|(name, _)| name)) {
            open.names = Some(text);
        }
    }

    /// The text in front of an element that names it: in pairs, behind options, among headers.
    fn name_in_front(&self, next: u8) -> Option<&[u8]> {
        let array = self.open.last().filter(|open| open.is_array)?;
        let name = array.last.as_deref()?;
        let headers = array.key.to_ascii_lowercase().ends_with(b"headers");
        let in_turns = headers && array.elements % 2 == 1;
        let is_pair = array.elements == 1 && next == b']';
        let is_option = name.starts_with(b"--") && name.get(2).is_some_and(u8::is_ascii_alphabetic);
        (in_turns || is_pair || is_option).then_some(name)
    }

    /// What a value stands under; the `value` beside a `name` stands under that name.
    fn name(&self) -> &[u8] {
        let Some(open) = self.open.last() else {
            return b"";
        };
        match &open.names {
            Some(name) if !open.is_array && is_any(&open.key, PAIRS.map(|(_, value)| value)) => {
                name
            }
            _ => &open.key,
        }
    }

    fn allow(&self, bytes: usize, look: &mut Look<'_>) {
        if self.bound == Bound::Each {
            look.allow(bytes);
        }
    }
}

fn is_any(key: &[u8], names: [&str; PAIRS.len()]) -> bool {
    names
        .iter()
        .any(|name| key.eq_ignore_ascii_case(name.as_bytes()))
}
