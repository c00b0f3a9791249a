//! Makes a part storable before it is numbered: one line of compact JSON, valid UTF-8, no raw control byte, at most
//! [`limits::PART_BYTES`]. What cannot be mended keeps its place as `data-truncated`.

use std::borrow::Cow;

use bex_proto::limits;
use bex_proto::transcript::{Unstorable, inspect};
use bytes::Bytes;

/// The part's bytes as they will be logged, shown, digested and stored. A part that is storable already keeps its bytes.
pub fn make(part: Bytes) -> Bytes {
    if part.len() > limits::PART_BYTES {
        return stand_in(Unstorable::TooLarge, part.len() as u64);
    }
    let mended = match String::from_utf8_lossy(&part) {
        Cow::Borrowed(text) => squeeze(text.as_bytes()),
        Cow::Owned(text) => Some(squeeze(text.as_bytes()).unwrap_or(text.into_bytes())),
    };
    let candidate = mended.map_or_else(|| part.clone(), Bytes::from);
    match inspect(&candidate) {
        Ok(_) => candidate,
        Err(fault) => stand_in(fault, part.len() as u64),
    }
}

/// What stands for a part that was too long to be kept.
pub fn oversized(bytes: u64) -> Bytes {
    stand_in(Unstorable::TooLarge, bytes)
}

fn stand_in(reason: Unstorable, bytes: u64) -> Bytes {
    Bytes::from(format!(
        r#"{{"type":"data-truncated","data":{{"reason":"{reason}","bytes":{bytes}}}}}"#
    ))
}

/// Takes out white space between tokens and escapes raw control bytes within strings; `None` when there are none.
fn squeeze(text: &[u8]) -> Option<Vec<u8>> {
    let mut out: Option<Vec<u8>> = None;
    let (mut in_string, mut escaped) = (false, false);
    for (at, byte) in text.iter().enumerate() {
        let byte = *byte;
        let odd = if in_string {
            byte < b' '
        } else {
            byte.is_ascii_whitespace()
        };
        if odd {
            let out = out.get_or_insert_with(|| text[..at].to_vec());
            if in_string {
                // a control byte after a backslash is no JSON whatever is done; inspection will say so
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            }
        } else if let Some(out) = &mut out {
            out.push(byte);
        }
        if escaped {
            escaped = false;
        } else if in_string && byte == b'\\' {
            escaped = true;
        } else if byte == b'"' {
            in_string = !in_string;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(part: &[u8]) -> String {
        String::from_utf8(make(Bytes::copy_from_slice(part)).to_vec()).expect("always UTF-8")
    }

    #[test]
    fn storable_parts_keep_their_bytes() {
        for part in [
            r#"{"type":"text-delta","id":"1","delta":"a\u0000 \ud800 \/ é"}"#,
            r#"{"type":"x","n":1.50,"a":"1","a":"2"}"#,
        ] {
            assert_eq!(made(part.as_bytes()), part);
        }
    }

    #[test]
    fn what_can_be_mended_is() {
        let cases: [(&[u8], &str); 4] = [
            (
                b"{ \"type\" : \"a b\",\n\t\"n\": [1, 2] }\r\n",
                r#"{"type":"a b","n":[1,2]}"#,
            ),
            (b"{\"type\":\"a\0b\nc\"}", r#"{"type":"a\u0000b\u000ac"}"#),
            (b"{\"type\":\"a\xffb\"}", "{\"type\":\"a\u{fffd}b\"}"),
            (b"{\"type\":\"a\xf0\x9f\"}", "{\"type\":\"a\u{fffd}\"}"),
        ];
        for (part, expected) in cases {
            assert_eq!(made(part), expected);
        }
    }

    #[test]
    fn what_cannot_be_mended_keeps_its_place() {
        assert_eq!(
            made(b"no json"),
            r#"{"type":"data-truncated","data":{"reason":"not_json","bytes":7}}"#
        );
        let at_limit = format!(
            r#"{{"type":"x","d":"{}"}}"#,
            "y".repeat(limits::PART_BYTES - 19)
        );
        assert_eq!(at_limit.len(), limits::PART_BYTES);
        assert_eq!(made(at_limit.as_bytes()), at_limit);
        let over = format!("{at_limit} ");
        assert_eq!(
            made(over.as_bytes()),
            r#"{"type":"data-truncated","data":{"reason":"too_large","bytes":1048577}}"#
        );
    }

    proptest! {
        #[test]
        fn whatever_comes_in_is_storable(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(inspect(&make(bytes.clone().into())).is_ok());
            let wrapped = [b"{\"type\":\"", &bytes[..], b"\"}"].concat();
            prop_assert!(inspect(&make(wrapped.into())).is_ok());
        }
    }
}
