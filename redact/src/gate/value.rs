//! JSON as serde reads it: every key, text and number of a document.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::look::Look;

/// Looks at a text as a JSON object or array; whether it is one. What is found before a text turns out to be none counts.
pub(super) fn json(text: &[u8], look: &mut Look<'_>) -> bool {
    let text = text.trim_ascii();
    if !matches!(
        (text.first(), text.last()),
        (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']'))
    ) {
        return false;
    }
    // what is no JSON may read differently as one: nothing of it counts
    if serde_json::from_slice::<serde::de::IgnoredAny>(text).is_err() {
        return false;
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    Node {
        look,
        key: None,
        named: None,
    }
    .deserialize(&mut reader)
    .is_ok()
}

/// A value and the key that it stands under.
struct Node<'l, 'g> {
    look: &'l mut Look<'g>,
    key: Option<&'l str>,
    /// The `name` beside it.
    named: Option<&'l str>,
}

impl Node<'_, '_> {
    fn name(&self) -> Option<&str> {
        match self.key {
            Some(key) if key.eq_ignore_ascii_case("value") => self.named.or(self.key),
            key => key,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_> {
    /// The text, where it is one.
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let name = self.name().map(str::to_owned);
        if let Some(name) = &name {
            self.look.value(name, text.as_bytes());
        }
        let opaque = name.is_some_and(|name| crate::keys::is_opaque(name.as_bytes()));
        let was = std::mem::replace(&mut self.look.opaque, opaque);
        self.look.text(text.as_bytes());
        self.look.opaque = was;
        let names = self
            .key
            .is_some_and(|key| ["name", "key"].iter().any(|n| key.eq_ignore_ascii_case(n)));
        Ok(names.then(|| text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        let name = self.name().map(str::to_owned);
        self.look.number(name.as_deref(), number);
        Ok(None)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        loop {
            let item = Node {
                look: &mut *self.look,
                key: self.key,
                named: None,
            };
            if items.next_element_seed(item)?.is_none() {
                return Ok(None);
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut named = None;
        while let Some(key) = fields.next_key::<std::borrow::Cow<'de, str>>()? {
            let was = std::mem::replace(&mut self.look.opaque, false);
            self.look.text(key.as_bytes());
            self.look.opaque = was;
            let field = Node {
                look: &mut *self.look,
                key: Some(&key),
                named: named.as_deref(),
            };
            let text = fields.next_value_seed(field)?;
            named = text.or(named);
        }
        Ok(None)
    }
}
