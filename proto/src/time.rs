//! Times on the wire: ISO-8601 UTC with milliseconds.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer};

/// `2026-11-30T11:53:56.000Z`.
pub fn format(at: Timestamp) -> String {
    // strftime knows no fixed three digits without also truncating, so the fraction is written by hand
    let millis = at.as_millisecond().rem_euclid(1000);
    format!("{}.{millis:03}Z", at.strftime("%Y-%m-%dT%H:%M:%S"))
}

/// Reads what [`format`] writes, without the search for what else a time may look like. `None` for every other form.
pub fn read(text: &[u8]) -> Option<Timestamp> {
    let text: &[u8; 24] = text.try_into().ok()?;
    let marks = [
        (4, b'-'),
        (7, b'-'),
        (10, b'T'),
        (13, b':'),
        (16, b':'),
        (19, b'.'),
        (23, b'Z'),
    ];
    if marks.iter().any(|(at, mark)| text[*at] != *mark) {
        return None;
    }
    let number = |digits: std::ops::Range<usize>| {
        text[digits].iter().try_fold(0_i16, |number, digit| {
            digit
                .is_ascii_digit()
                .then(|| number * 10 + i16::from(digit - b'0'))
        })
    };
    let small = |at: usize| i8::try_from(number(at..at + 2)?).ok();
    let date = jiff::civil::Date::new(number(0..4)?, small(5)?, small(8)?).ok()?;
    let nanos = i32::from(number(20..23)?) * 1_000_000;
    let time = jiff::civil::Time::new(small(11)?, small(14)?, small(17)?, nanos).ok()?;
    jiff::tz::Offset::UTC
        .to_timestamp(date.to_datetime(time))
        .ok()
}

/// Serde form of a required time.
pub fn serialize<S: Serializer>(at: &Timestamp, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&format(*at))
}

/// Serde form of a required time; any RFC 3339 offset is accepted.
pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Timestamp, D::Error> {
    String::deserialize(d)?
        .parse()
        .map_err(serde::de::Error::custom)
}

/// Serde form of an optional time (with `skip_serializing_if = "Option::is_none"`).
pub mod optional {
    use super::{Deserialize, Deserializer, Serializer, Timestamp};

    /// Writes the time or null.
    pub fn serialize<S: Serializer>(at: &Option<Timestamp>, s: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => super::serialize(at, s),
            None => s.serialize_none(),
        }
    }

    /// Reads the time or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Timestamp>, D::Error> {
        Option::<String>::deserialize(d)?
            .map(|t| t.parse().map_err(serde::de::Error::custom))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn three_digits_and_z() {
        let at: jiff::Timestamp = "2026-01-02T03:04:05.006789+01:00".parse().expect("a time");
        assert_eq!(super::format(at), "2026-01-02T02:04:05.006Z");
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for second in [
            0,
            -1,
            951_782_399,
            951_868_800,
            4_107_542_399,
            253_402_207_200,
        ] {
            let at = jiff::Timestamp::new(second, 7_000_000).expect("a time");
            let text = super::format(at);
            assert_eq!(super::read(text.as_bytes()), text.parse().ok(), "{text}");
            assert!(super::read(text.as_bytes()).is_some(), "{text}");
        }
        for other in [
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05.006+",
            "2026-01-02 03:04:05.006Z",
            "2026-13-02T03:04:05.006Z",
            "2026-02-29T03:04:05.006Z",
            "2026-01-02T24:04:05.006Z",
            "2026-01-02T03:04:60.006Z",
            "2026-01-02T03:04:0x.006Z",
            "+026-01-02T03:04:05.006Z",
        ] {
            assert_eq!(super::read(other.as_bytes()), None, "{other}");
        }
    }
}
