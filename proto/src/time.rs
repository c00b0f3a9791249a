//! Times on the wire: ISO-8601 UTC with milliseconds.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer};

/// `2026-11-30T11:53:56.000Z`.
pub fn format(at: Timestamp) -> String {
    // strftime knows no fixed three digits without also truncating, so the fraction is written by hand
    let millis = at.as_millisecond().rem_euclid(1000);
    format!("{}.{millis:03}Z", at.strftime("%Y-%m-%dT%H:%M:%S"))
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
}
