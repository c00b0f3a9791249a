//! The JSON Schemas of packages, and a checker for the part of JSON Schema that they are written in.
//!
//! A schema that is published is never edited. The next minor version is another file, which accepts everything the one before it
//! did: a test compares them.

#[cfg(test)]
mod additive;

use serde_json::Value;

/// Every published schema with its version, oldest first.
pub const PUBLISHED: &[(&str, &str)] = &[
    ("1.0", include_str!("../../schemas/replay-package-1.0.json")),
    ("1.1", include_str!("../../schemas/replay-package-1.1.json")),
];

/// Complaints of one check; more say nothing more.
const COMPLAINTS: usize = 20;
/// Keywords that say something about a value.
const KEYWORDS: [&str; 10] = [
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "const",
    "anyOf",
    "$ref",
    "additionalProperties",
    "minimum",
];
/// Keywords that say something to people.
const WORDS: [&str; 6] = ["$schema", "$id", "$defs", "title", "description", "format"];

/// The schema of a minor version; of one that is newer than this program the newest that it knows, since nothing is ever taken back.
pub fn of_version(version: &str) -> Option<&'static str> {
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let (Some(Ok(1)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return None;
    };
    let newest = PUBLISHED.len() - 1;
    let at = usize::try_from(minor).map_or(newest, |minor| minor.min(newest));
    Some(PUBLISHED[at].1)
}

/// Reads a schema.
///
/// # Panics
/// When a text that is none of [`PUBLISHED`] is no JSON.
pub fn parse(schema: &str) -> Value {
    serde_json::from_str(schema).expect("a published schema is JSON")
}

/// What is wrong with a value, each complaint with its place; empty when nothing is.
pub fn check(schema: &Value, value: &Value) -> Vec<String> {
    let mut complaints = Vec::new();
    Check {
        root: schema,
        complaints: &mut complaints,
    }
    .value(schema, value, "");
    complaints
}

/// Keywords of a schema that [`check`] does not know; it would not look at them.
pub fn unknown_keywords(schema: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    collect(schema, &mut unknown);
    unknown
}

fn collect(schema: &Value, unknown: &mut Vec<String>) {
    let Some(object) = schema.as_object() else {
        return;
    };
    for (keyword, inner) in object {
        match (keyword.as_str(), inner) {
            ("properties" | "$defs", Value::Object(named)) => {
                named.values().for_each(|schema| collect(schema, unknown));
            }
            ("anyOf", Value::Array(choices)) => {
                choices.iter().for_each(|schema| collect(schema, unknown));
            }
            ("items", schema) => collect(schema, unknown),
            (known, _) if KEYWORDS.contains(&known) || WORDS.contains(&known) => {}
            (other, _) => unknown.push(other.to_owned()),
        }
    }
}

/// What a `$ref` names.
fn resolve<'s>(root: &'s Value, mut schema: &'s Value) -> &'s Value {
    while let Some(name) = schema["$ref"].as_str() {
        let pointer = name.strip_prefix('#').unwrap_or(name);
        match root.pointer(pointer) {
            Some(found) => schema = found,
            None => return &Value::Null,
        }
    }
    schema
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The types a schema allows; `None` allows every one.
fn types(schema: &Value) -> Option<Vec<&str>> {
    match &schema["type"] {
        Value::String(one) => Some(vec![one]),
        Value::Array(several) => Some(several.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

fn list<'s>(schema: &'s Value, keyword: &str) -> &'s [Value] {
    schema[keyword].as_array().map_or(&[], Vec::as_slice)
}

struct Check<'a> {
    root: &'a Value,
    complaints: &'a mut Vec<String>,
}

impl Check<'_> {
    fn complain(&mut self, at: &str, what: &str) {
        if self.complaints.len() < COMPLAINTS {
            self.complaints
                .push(format!("{}: {what}", if at.is_empty() { "/" } else { at }));
        }
    }

    fn value(&mut self, schema: &Value, value: &Value, at: &str) {
        let schema = resolve(self.root, schema);
        if schema.is_null() {
            return self.complain(at, "the schema names something that it does not have");
        }
        if let Some(types) = types(schema) {
            let is = type_of(value);
            let whole = value.is_i64() || value.is_u64();
            if !types.iter().any(|t| *t == is || (*t == "integer" && whole)) {
                return self.complain(at, &format!("must be {}, is {is}", types.join(" or ")));
            }
        }
        let choices = list(schema, "enum");
        if !choices.is_empty() && !choices.contains(value) {
            self.complain(at, "is none of the words that may stand here");
        }
        if let Some(only) = schema.get("const")
            && only != value
        {
            self.complain(at, &format!("must be {only}"));
        }
        if let (Some(minimum), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
            && number < minimum
        {
            self.complain(at, &format!("must be at least {minimum}"));
        }
        let ways = list(schema, "anyOf");
        let root = self.root;
        if !ways.is_empty() && !ways.iter().any(|way| accepts(root, way, value)) {
            self.complain(at, "has none of the forms that may stand here");
        }
        match value {
            Value::Object(fields) => self.object(schema, fields, at),
            Value::Array(items) if schema.get("items").is_some() => {
                for (n, item) in items.iter().enumerate() {
                    self.value(&schema["items"], item, &format!("{at}/{n}"));
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, schema: &Value, fields: &serde_json::Map<String, Value>, at: &str) {
        for name in list(schema, "required").iter().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                self.complain(at, &format!("{name} is missing"));
            }
        }
        for (name, field) in fields {
            match schema["properties"].get(name) {
                Some(known) => self.value(known, field, &format!("{at}/{name}")),
                None if schema["additionalProperties"] == false => {
                    self.complain(at, &format!("{name} may not stand here"));
                }
                None => {}
            }
        }
    }
}

fn accepts(root: &Value, schema: &Value, value: &Value) -> bool {
    let mut complaints = Vec::new();
    Check {
        root,
        complaints: &mut complaints,
    }
    .value(schema, value, "");
    complaints.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_published_schema_is_one_that_is_checked_whole() {
        for (version, text) in PUBLISHED {
            let schema = parse(text);
            assert_eq!(unknown_keywords(&schema), Vec::<String>::new(), "{version}");
            assert_eq!(
                schema["$schema"],
                "https://json-schema.org/draft/2020-12/schema"
            );
            assert_eq!(schema["$id"], format!("urn:bex:replay-package:{version}"));
        }
        let newest = PUBLISHED[PUBLISHED.len() - 1].0;
        assert!(crate::package::SCHEMA_VERSION.starts_with(&format!("{newest}.")));
        assert_eq!(of_version("1.0.3"), Some(PUBLISHED[0].1));
        assert_eq!(of_version("1.99.0"), Some(PUBLISHED[PUBLISHED.len() - 1].1));
        assert_eq!((of_version("2.0.0"), of_version("x")), (None, None));
    }

    #[test]
    fn each_keyword_is_looked_at() {
        let schema = json!({
            "type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {
                "a": {"type": ["integer", "null"], "minimum": 1},
                "b": {"type": "array", "items": {"$ref": "#/$defs/word"}},
                "c": {"anyOf": [{"type": "array"}, {"type": "object", "required": ["p"]}]},
                "d": {"const": true}
            },
            "$defs": {"word": {"enum": ["x", "y"]}}
        });
        assert_eq!(unknown_keywords(&schema), Vec::<String>::new());
        assert_eq!(
            unknown_keywords(&json!({"properties": {"a": {"pattern": "x"}}})),
            ["pattern"]
        );
        let good = json!({"a": 1, "b": ["x"], "c": {"p": 1}, "d": true});
        assert_eq!(check(&schema, &good), Vec::<String>::new());
        for (bad, said) in [
            (json!([]), "/: must be object, is array"),
            (json!({}), "/: a is missing"),
            (json!({"a": 0}), "/a: must be at least 1"),
            (json!({"a": 1.5}), "/a: must be integer or null, is number"),
            (
                json!({"a": 1, "b": ["z"]}),
                "/b/0: is none of the words that may stand here",
            ),
            (
                json!({"a": 1, "c": {}}),
                "/c: has none of the forms that may stand here",
            ),
            (json!({"a": 1, "d": 1}), "/d: must be true"),
            (json!({"a": 1, "e": 1}), "/: e may not stand here"),
        ] {
            assert_eq!(check(&schema, &bad), [said]);
        }
    }
}
