//! The citations of a `text-end`, which newer clients check and older ones do not know.

use serde_json::value::RawValue;

use super::chunk::Chunk;
use super::shape::{Field, raw_fits};

/// A count beyond this has digits that a double does not.
const COUNT_DIGITS: usize = 15;

/// Whether a JSON text is a list of citations as the clients that know them want it.
pub(super) fn are_citations(json: &str) -> bool {
    serde_json::from_str::<Vec<&RawValue>>(json)
        .is_ok_and(|all| all.iter().all(|one| is_citation(one.get())))
}

fn is_citation(json: &str) -> bool {
    Chunk::read(json.as_bytes()).is_some_and(|citation| {
        citation.get("source").is_some_and(is_source)
            && citation.get("startIndex").is_none_or(is_count)
            && citation.get("endIndex").is_none_or(is_count)
            && citation.get("citedText").is_none_or(is_text)
    })
}

fn is_source(json: &str) -> bool {
    let Some(source) = Chunk::read(json.as_bytes()) else {
        return false;
    };
    let texts = |names: &[&str]| {
        names
            .iter()
            .all(|name| source.get(name).is_some_and(is_text))
    };
    let known = match source.get("sourceType") {
        Some(r#""url""#) => texts(&["id", "url"]) && source.get("title").is_none_or(is_text),
        Some(r#""document""#) => {
            texts(&["id", "mediaType", "title"]) && source.get("filename").is_none_or(is_text)
        }
        _ => false,
    };
    let metadata = source.get("providerMetadata");
    known
        && source.get("type") == Some(r#""source""#)
        && metadata.is_none_or(|m| raw_fits(Field::ProviderMetadata, m))
}

fn is_text(json: &str) -> bool {
    json.starts_with('"')
}

fn is_count(json: &str) -> bool {
    json.len() <= COUNT_DIGITS && json.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn citations() {
        for good in [
            "[]",
            r#"[{"source":{"type":"source","sourceType":"url","id":"a","url":"u","title":"\ud800"},"startIndex":0}]"#,
            r#"[{"source":{"sourceType":"document","type":"source","id":"a","mediaType":"m","title":"t","providerMetadata":{"a":{}}},"citedText":"","x":null}]"#,
        ] {
            assert!(are_citations(good), "{good}");
        }
        for bad in [
            "{}",
            "[7]",
            "[{}]",
            r#"[{"source":{"type":"source","sourceType":"url","id":"a"}}]"#,
            r#"[{"source":{"type":"source","sourceType":"file","id":"a","url":"u"}}]"#,
            r#"[{"source":{"type":"source","sourceType":"url","id":"a","url":"u"},"endIndex":-1}]"#,
            r#"[{"source":{"type":"source","sourceType":"url","id":"a","url":"u"},"citedText":null}]"#,
        ] {
            assert!(!are_citations(bad), "{bad}");
        }
    }
}
