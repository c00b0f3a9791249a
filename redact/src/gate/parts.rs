//! Parts in JSON, read without a tree of it: of a document of any form only its deltas and the names of their texts are kept.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::lines::Joined;

/// Takes the parts of one document, as deep as `levels`. What came before a mistake in it is taken too.
pub(super) fn take(json: &[u8], levels: usize, joined: &mut Joined) -> serde_json::Result<()> {
    let mut json = serde_json::Deserializer::from_slice(json);
    let place = Place {
        joined,
        array: 0,
        levels,
        keep: false,
    };
    let found = place.deserialize(&mut json)?;
    if let Found::Record(record) = found {
        joined.record(&record, 0);
    }
    json.end()
}

/// What a part, or a record with one, says of itself.
#[derive(Default)]
pub(super) struct Record {
    pub kind: Option<String>,
    pub delta: Option<String>,
    pub input_delta: Option<String>,
    pub id: Option<String>,
    pub call: Option<String>,
    pub session: Option<String>,
    pub turn: Option<String>,
    pub part: Option<Box<Record>>,
}

/// The names that matter.
#[derive(serde::Deserialize)]
#[serde(field_identifier)]
enum Name {
    #[serde(rename = "type")]
    Kind,
    #[serde(rename = "delta")]
    Delta,
    #[serde(rename = "inputTextDelta")]
    InputDelta,
    #[serde(rename = "id")]
    Id,
    #[serde(rename = "toolCallId")]
    Call,
    #[serde(rename = "session")]
    Session,
    #[serde(rename = "turn")]
    Turn,
    #[serde(rename = "part")]
    Part,
    #[serde(other)]
    Other,
}

enum Found {
    Record(Record),
    Text(String),
    Nothing,
}

impl Found {
    fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Record(_) | Self::Nothing => None,
        }
    }
}

/// Where a value stands.
struct Place<'j> {
    joined: &'j mut Joined,
    /// The array that it belongs to: the deltas of one belong together.
    array: usize,
    levels: usize,
    /// Whether its text matters.
    keep: bool,
}

impl Place<'_> {
    fn within(&mut self, keep: bool) -> Place<'_> {
        Place {
            joined: self.joined,
            array: self.array,
            levels: self.levels - 1,
            keep,
        }
    }

    fn scalar(&self, text: impl ToString) -> Found {
        if self.keep {
            Found::Text(text.to_string())
        } else {
            Found::Nothing
        }
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Found, D::Error> {
        if self.levels > 0 {
            return json.deserialize_any(self);
        }
        json.deserialize_ignored_any(IgnoredAny)?;
        Ok(Found::Nothing)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<Found, E> {
        Ok(Found::Nothing)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Found, E> {
        Ok(self.scalar(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Found, E> {
        Ok(self.scalar(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Found, E> {
        Ok(self.scalar(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Found, E> {
        Ok(self.scalar(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Found, E> {
        Ok(self.scalar(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<Found, A::Error> {
        self.array = self.joined.array();
        while let Some(found) = elements.next_element_seed(self.within(false))? {
            if let Found::Record(record) = found {
                self.joined.record(&record, self.array);
            }
        }
        Ok(Found::Nothing)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Found, A::Error> {
        let mut record = Record::default();
        while let Some(name) = entries.next_key::<Name>()? {
            let keep = !matches!(name, Name::Part | Name::Other);
            let found = entries.next_value_seed(self.within(keep))?;
            let text = match (name, found) {
                (Name::Part, Found::Record(part)) => {
                    record.part = Some(Box::new(part));
                    continue;
                }
                // a record that stands for no part, whatever its name is
                (_, Found::Record(other)) => {
                    self.joined.record(&other, self.array);
                    continue;
                }
                (name, found) => (name, found.text()),
            };
            match text {
                (Name::Kind, text) => record.kind = text,
                (Name::Delta, text) => record.delta = text,
                (Name::InputDelta, text) => record.input_delta = text,
                (Name::Id, text) => record.id = text,
                (Name::Call, text) => record.call = text,
                (Name::Session, text) => record.session = text,
                (Name::Turn, text) => record.turn = text,
                (Name::Part | Name::Other, _) => {}
            }
        }
        Ok(Found::Record(record))
    }
}
