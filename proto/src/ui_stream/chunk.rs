//! A chunk read and written field by field: no value is decoded, since a text may hold what no decoder here takes.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use super::head::Key;

/// A chunk's fields as they are written, in order and with repeats.
pub(super) struct Chunk<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Chunk<'a> {
    /// Reads a chunk. `None` for what is no object.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        serde_json::Deserializer::from_slice(bytes)
            .deserialize_map(Reader)
            .ok()
    }

    /// A field's JSON text; of a repeated one the last counts, as in a browser.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let field = self.0.iter().rfind(|(n, _)| n == name);
        field.map(|(_, value)| value.get())
    }

    /// A field's JSON text, if it is a string.
    pub fn quoted(&self, name: &str) -> Option<&'a str> {
        self.get(name).filter(|value| value.starts_with('"'))
    }

    /// All fields.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }
}

/// A chunk being written from texts that are JSON already.
pub(super) struct Writing(String);

impl Writing {
    /// A chunk of this type and no other field yet.
    pub fn new(kind: &str) -> Self {
        Self(format!(r#"{{"type":{}"#, json(kind)))
    }

    /// Adds a field.
    pub fn field(&mut self, name: &str, value: &str) -> &mut Self {
        let name = if name.bytes().all(|b| b.is_ascii_alphanumeric()) {
            Cow::Owned(format!("\"{name}\""))
        } else {
            Cow::Owned(json(name))
        };
        self.0.extend([",", &*name, ":", value]);
        self
    }

    /// The chunk.
    pub fn done(&mut self) -> String {
        self.0.push('}');
        std::mem::take(&mut self.0)
    }
}

/// A text as JSON.
pub(super) fn json(text: &str) -> String {
    serde_json::to_string(text).expect("a text always serialises")
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Chunk<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a chunk")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(Key(name)) = map.next_key()? {
            fields.push((name, map.next_value()?));
        }
        Ok(Chunk(fields))
    }
}
