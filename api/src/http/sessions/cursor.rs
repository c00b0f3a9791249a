//! The list's cursor: the last item's place in the order, opaque to callers.

use std::fmt::Display;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bex_proto::problem::Code;
use bex_store::sessions::ListCursor;
use jiff::Timestamp;

use crate::http::ApiError;

/// Longer than any cursor we gave out.
const CURSOR_BYTES: usize = 128;

/// The order's columns in full: microseconds are what the store keeps.
pub fn format(cursor: &ListCursor) -> String {
    format_any(cursor.created_at, &cursor.id)
}

/// The same of any list that is ordered by time and id.
pub fn format_any(created_at: Timestamp, id: &impl Display) -> String {
    URL_SAFE_NO_PAD.encode(format!("{} {id}", created_at.as_microsecond()))
}

/// Reads what [`format`] wrote.
pub fn parse(text: &str) -> Result<ListCursor, ApiError> {
    let (created_at, id) = parse_any(text)?;
    Ok(ListCursor { created_at, id })
}

/// Reads what [`format_any`] wrote.
pub fn parse_any<T: FromStr>(text: &str) -> Result<(Timestamp, T), ApiError> {
    let read = || {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (at, id) = text.split_once(' ')?;
        let created_at = Timestamp::from_microsecond(at.parse().ok()?).ok()?;
        Some((created_at, id.parse().ok()?))
    };
    let cursor = if text.len() <= CURSOR_BYTES {
        read()
    } else {
        None
    };
    cursor.ok_or_else(|| Code::InvalidCursor.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_round_trips_and_nothing_else_parses() {
        let cursor = ListCursor {
            created_at: Timestamp::from_microsecond(1_764_500_000_123_456).expect("a time"),
            id: bex_proto::SessionId::random(),
        };
        let text = format(&cursor);
        assert_eq!(parse(&text).ok(), Some(cursor));
        for bad in [
            "",
            "x",
            &text[1..],
            &URL_SAFE_NO_PAD.encode("1 ags-x"),
            &"A".repeat(200),
        ] {
            assert_eq!(
                parse(bad).err().map(|e| e.code()),
                Some(Code::InvalidCursor),
                "{bad}"
            );
        }
    }
}
