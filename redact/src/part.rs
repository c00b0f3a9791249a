//! Redaction of one part's JSON text.

use bytes::Bytes;

use crate::json;
use crate::scan::Secrets;
use crate::{MARKER, REDACTED_PART};

impl Secrets {
    /// A part with every credential in its strings replaced; the same bytes when there is none. What cannot be replaced
    /// within a string (a credential that is a number, or JSON itself) makes the whole part [`REDACTED_PART`].
    ///
    /// `part` must be valid JSON; anything else is not looked into and becomes [`REDACTED_PART`] too when it holds a form.
    pub fn redact_part(&self, part: Bytes) -> Bytes {
        if self.is_empty() {
            return part;
        }
        // without escapes the strings stand in the text as they are, so one scan of the whole text is enough
        if !part.contains(&b'\\') && self.spans(&part).is_empty() {
            return part;
        }
        let mended = self.mend_strings(&part);
        let text = mended.as_deref().unwrap_or(&part);
        if !self.spans(text).is_empty() {
            return Bytes::from_static(REDACTED_PART.as_bytes());
        }
        mended.map_or(part, Bytes::from)
    }

    /// Replaces credentials in all strings; `None` when there is nothing to replace.
    fn mend_strings(&self, text: &[u8]) -> Option<Vec<u8>> {
        let (mut out, mut at) = (Vec::new(), 0);
        for body in json::strings(text) {
            let decoded = json::decode(&text[body.clone()]);
            for span in self.spans(&decoded.text) {
                let origin = decoded.origin(span);
                out.extend_from_slice(&text[at..body.start + origin.start]);
                out.extend_from_slice(MARKER.as_bytes());
                at = body.start + origin.end;
            }
        }
        if at == 0 {
            return None;
        }
        out.extend_from_slice(&text[at..]);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact(secrets: &[&str], part: &str) -> String {
        let out = Secrets::new(secrets.iter().copied()).redact_part(Bytes::from(part.to_owned()));
        serde_json::from_slice::<serde::de::IgnoredAny>(&out).expect("still JSON");
        String::from_utf8(out.to_vec()).expect("text")
    }

    const SECRET: &str = "s3cr\"t/ké\\y-0123456789";

    #[test]
    fn every_escape_of_the_outer_json_is_seen() {
        for body in [
            r#"s3cr\"t/ké\\y-0123456789"#,
            r#"s3cr\"t\/k\u00e9\\y-0123456789"#,
            r#"\u0073\u0033cr\u0022t\u002Fk\u00E9\u005cy-0123456789"#,
        ] {
            let part = format!(r#"{{"type":"x","a":"<{body}>","{body}":1}}"#);
            assert_eq!(
                redact(&[SECRET], &part),
                r#"{"type":"x","a":"<[redacted:credential]>","[redacted:credential]":1}"#
            );
        }
    }

    #[test]
    fn json_within_a_string_is_seen_twice_deep() {
        let once = serde_json::to_string(&serde_json::json!({ "k": SECRET })).expect("JSON");
        let twice = serde_json::to_string(&serde_json::json!({ "in": once })).expect("JSON");
        for inner in [once, twice] {
            let part =
                serde_json::json!({"type": "tool-output-available", "output": inner}).to_string();
            let out = redact(&[SECRET], &part);
            assert!(out.contains(MARKER) && !out.contains("0123456789"), "{out}");
        }
    }

    #[test]
    fn what_cannot_be_mended_is_replaced_whole() {
        assert_eq!(
            redact(&["1234567890"], r#"{"type":"x","n":1234567890}"#),
            REDACTED_PART
        );
        let json_secret = r#"{"type":"service_account","key":"k"}"#;
        let part = format!(r#"{{"type":"x","data":{json_secret}}}"#);
        assert_eq!(redact(&[json_secret], &part), REDACTED_PART);
    }

    #[test]
    fn clean_parts_keep_their_bytes() {
        let part = r#"{"type":"x", "a" : "\ud800\/ \u0000 1e400", "n":1.50}"#;
        assert_eq!(redact(&[SECRET], part), part);
    }
}
