//! Checks of what recorders send beside plain texts: JSON that is kept as it was sent, counts, times, and cursors over them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bex_proto::limits;
use bex_proto::problem::Code;
use jiff::Timestamp;
use serde_json::value::RawValue;

use crate::http::ApiError;

/// Longer than any cursor we gave out: an id of 255 bytes and a time.
const CURSOR_BYTES: usize = 512;

/// JSON of any kind; not nested deeper than [`limits::RECORD_DEPTH`].
pub fn json(field: &str, value: Option<Box<RawValue>>) -> Result<Option<String>, ApiError> {
    let Some(value) = value else { return Ok(None) };
    if depth(value.get()) > limits::RECORD_DEPTH {
        return Err(ApiError::invalid(format!(
            "{field} may be nested {} deep",
            limits::RECORD_DEPTH
        )));
    }
    Ok(Some(String::from(<Box<str>>::from(value))))
}

/// A JSON object of at most so many bytes.
pub fn object(
    field: &str,
    value: Option<Box<RawValue>>,
    most: usize,
) -> Result<Option<String>, ApiError> {
    let text = json(field, value)?;
    if text
        .as_ref()
        .is_some_and(|text| !text.starts_with('{') || text.len() > most)
    {
        return Err(ApiError::invalid(format!(
            "{field} must be an object of at most {most} bytes"
        )));
    }
    Ok(text)
}

/// How deep valid JSON is nested. Without recursion: nothing else has looked at its depth yet.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// A time as it is kept: with milliseconds, like every time of the wire, and not before 1970.
pub fn time(field: &str, at: Timestamp) -> Result<Timestamp, ApiError> {
    let kept = Timestamp::from_millisecond(at.as_millisecond()).ok();
    kept.filter(|at| *at >= Timestamp::UNIX_EPOCH)
        .ok_or_else(|| ApiError::invalid(format!("{field} must be a time since 1970")))
}

/// The same where it may be absent.
pub fn optional_time(field: &str, at: Option<Timestamp>) -> Result<Option<Timestamp>, ApiError> {
    at.map(|at| time(field, at)).transpose()
}

/// A count that every JSON reader holds exactly.
pub fn count(field: &str, value: u64) -> Result<(), ApiError> {
    if value > limits::RECORD_COUNT {
        return Err(ApiError::invalid(format!(
            "{field} must be at most {}",
            limits::RECORD_COUNT
        )));
    }
    Ok(())
}

/// Something that is said only together with something else.
pub fn only_with(
    (field, said): (&str, bool),
    (other, other_said): (&str, bool),
) -> Result<(), ApiError> {
    if said && !other_said {
        return Err(ApiError::invalid(format!("{field} needs {other}")));
    }
    Ok(())
}

/// A place in a list that is ordered by a number, then an id: opaque to callers.
pub fn cursor(number: i64, id: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{number} {id}"))
}

/// Reads what [`cursor`] wrote.
pub fn read_cursor(text: &str) -> Result<(i64, String), ApiError> {
    let read = || {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (number, id) = text.split_once(' ')?;
        let fits = !id.is_empty() && !id.contains('\0');
        Some((number.parse().ok().filter(|_| fits)?, id.to_owned()))
    };
    let read = if text.len() <= CURSOR_BYTES {
        read()
    } else {
        None
    };
    read.ok_or_else(|| Code::InvalidCursor.into())
}

/// A cursor over times.
pub fn time_cursor(at: Timestamp, id: &str) -> String {
    cursor(at.as_microsecond(), id)
}

/// Reads what [`time_cursor`] wrote.
pub fn read_time_cursor(text: &str) -> Result<(Timestamp, String), ApiError> {
    let (micros, id) = read_cursor(text)?;
    let at = Timestamp::from_microsecond(micros).map_err(|_| Code::InvalidCursor)?;
    // what the store can hold
    if at < Timestamp::UNIX_EPOCH {
        return Err(Code::InvalidCursor.into());
    }
    Ok((at, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Option<Box<RawValue>> {
        Some(RawValue::from_string(text.to_owned()).expect("JSON"))
    }

    #[test]
    fn depth_is_counted_outside_of_texts() {
        for (text, expected) in [
            ("1", 0),
            ("[]", 1),
            (r#"{"a":[1,{"b":2}],"c":[]}"#, 3),
            (r#"["[[[","\"[[",{"]":"\\"}]"#, 2),
        ] {
            assert_eq!(depth(text), expected, "{text}");
        }
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(json("x", raw(&deep(limits::RECORD_DEPTH))).is_ok());
        assert!(json("x", raw(&deep(limits::RECORD_DEPTH + 1))).is_err());
        assert!(json("x", raw(&deep(50_000))).is_err());
    }

    #[test]
    fn json_is_kept_as_it_was_sent() {
        let sent = r#"{"n": 12345678901234567890, "n": 1.0}"#;
        assert_eq!(
            object("x", raw(sent), 100).ok().flatten().as_deref(),
            Some(sent)
        );
        assert!(object("x", raw("[]"), 100).is_err());
        assert!(object("x", raw(sent), sent.len() - 1).is_err());
        assert!(matches!(object("x", None, 1), Ok(None)));
    }

    #[test]
    fn cursors_round_trip_and_nothing_else_parses() {
        let id = format!("a b {}", "é".repeat(120));
        assert_eq!(read_cursor(&cursor(7, &id)).ok(), Some((7, id)));
        let at = Timestamp::from_microsecond(1_764_500_000_123_456).expect("a time");
        let text = time_cursor(at, "x");
        assert_eq!(read_time_cursor(&text).ok(), Some((at, "x".to_owned())));
        for bad in [
            "",
            "x",
            &cursor(1, ""),
            &cursor(1, "a\0b"),
            &cursor(i64::MIN, "x"),
            &cursor(-1, "x"),
            &"A".repeat(600),
        ] {
            assert!(read_time_cursor(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_have_milliseconds_and_a_beginning() {
        let at: Timestamp = "2026-01-02T03:04:05.006789Z".parse().expect("a time");
        let kept = time("at", at).expect("a time");
        assert_eq!(kept.to_string(), "2026-01-02T03:04:05.006Z");
        assert!(time("at", "1969-12-31T23:59:59Z".parse().expect("a time")).is_err());
    }
}
