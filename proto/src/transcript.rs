//! Parts of a transcript as they travel inside the system.

use bytes::Bytes;
use jiff::Timestamp;

use crate::ids::PartId;
use crate::ui_stream::ChunkHead;

/// One part on its way from a driver to the store or a viewer.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its identity.
    pub id: PartId,
    /// Kind and chunk id, read once.
    pub head: ChunkHead,
    /// The JSON text exactly as the driver wrote it: one line, valid UTF-8.
    pub bytes: Bytes,
    /// The driver's clock, where known.
    pub spoken_at: Option<Timestamp>,
}

/// Why bytes cannot be stored as a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unstorable {
    /// Over [`crate::limits::PART_BYTES`].
    #[error("too_large")]
    TooLarge,
    /// Not UTF-8.
    #[error("not_utf8")]
    NotUtf8,
    /// A NUL byte, which a text column cannot hold.
    #[error("nul_byte")]
    NulByte,
    /// Not one JSON object.
    #[error("not_json")]
    NotJson,
    /// A line break, which would end the event it travels in.
    #[error("line_break")]
    LineBreak,
}

/// Reads kind and chunk id of a part's text, or says why it cannot be stored.
pub fn inspect(text: &[u8]) -> Result<ChunkHead, Unstorable> {
    if text.len() > crate::limits::PART_BYTES {
        return Err(Unstorable::TooLarge);
    }
    let text = std::str::from_utf8(text).map_err(|_| Unstorable::NotUtf8)?;
    if memchr::memchr3(0, b'\n', b'\r', text.as_bytes()).is_some() {
        return Err(match memchr::memchr(0, text.as_bytes()) {
            Some(_) => Unstorable::NulByte,
            None => Unstorable::LineBreak,
        });
    }
    ChunkHead::read(text).ok_or(Unstorable::NotJson)
}

/// The type of the stand-in for what cannot be stored.
pub const UNSTORABLE_KIND: &str = "data-bex-unstorable";

/// The stand-in that keeps an unstorable part's place: its size and digest, under the same id.
pub fn unstorable_stand_in(reason: Unstorable, original: &[u8]) -> Bytes {
    unstorable_stand_in_of(reason, original.len() as u64, &sha256_hex(original))
}

/// As [`unstorable_stand_in`], for bytes that were digested while they were skipped.
pub fn unstorable_stand_in_of(reason: Unstorable, bytes: u64, sha256: &str) -> Bytes {
    Bytes::from(format!(
        r#"{{"type":"{UNSTORABLE_KIND}","data":{{"reason":"{reason}","bytes":{bytes},"sha256":"{sha256}"}}}}"#
    ))
}

/// A part's text as it is stored, with its head: itself, or its stand-in. Whoever stores parts makes them by this, so that a part
/// has the same bytes whoever was first.
pub fn storable(text: Bytes) -> (ChunkHead, Bytes) {
    match inspect(&text) {
        Ok(head) => (head, text),
        Err(reason) => with_head(unstorable_stand_in(reason, &text)),
    }
}

/// As [`storable`], for a text over [`crate::limits::PART_BYTES`] that was digested while it was skipped.
pub fn storable_of_skipped(bytes: u64, sha256: &str) -> (ChunkHead, Bytes) {
    with_head(unstorable_stand_in_of(Unstorable::TooLarge, bytes, sha256))
}

fn with_head(stand_in: Bytes) -> (ChunkHead, Bytes) {
    (ChunkHead::from_columns(UNSTORABLE_KIND, None), stand_in)
}

/// Lower-case hexadecimal SHA-256.
pub fn sha256_hex(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inspection_names_each_fault() {
        assert!(inspect(br#"{"type":"start"}"#).is_ok());
        // an escaped NUL and a lone surrogate are text; only the raw byte is not
        assert!(inspect(br#"{"type":"text-delta","id":"1","delta":"a\u0000\ud800"}"#).is_ok());
        let cases: [(&[u8], Unstorable); 6] = [
            (b"{\"type\":\"a\0\"}", Unstorable::NulByte),
            (b"{\"type\":\"\xff\"}", Unstorable::NotUtf8),
            (b"{\"type\":\"a\",\n}", Unstorable::LineBreak),
            (b"[1]", Unstorable::NotJson),
            (b"{\"type\":\"a\"", Unstorable::NotJson),
            (
                &vec![b' '; crate::limits::PART_BYTES + 1],
                Unstorable::TooLarge,
            ),
        ];
        for (text, fault) in cases {
            assert_eq!(inspect(text).err(), Some(fault));
        }
    }

    #[test]
    fn what_is_too_large_has_one_stand_in_whether_it_was_kept_or_skipped() {
        let large = Bytes::from(vec![b' '; crate::limits::PART_BYTES + 1]);
        let (head, text) = storable(large.clone());
        let skipped = storable_of_skipped(large.len() as u64, &sha256_hex(&large));
        assert_eq!((head.kind.as_str(), &text), (UNSTORABLE_KIND, &skipped.1));
        let read = inspect(&text).expect("storable");
        assert_eq!(read.kind, head.kind);
        let whole = Bytes::from_static(br#"{"type":"start"}"#);
        assert_eq!(storable(whole.clone()).1, whole);
    }

    #[test]
    fn a_stand_in_is_itself_storable() {
        let stand_in = unstorable_stand_in(Unstorable::NulByte, b"x\0y");
        assert!(inspect(&stand_in).is_ok());
        assert!(
            std::str::from_utf8(&stand_in)
                .is_ok_and(|t| t.contains(r#""reason":"nul_byte","bytes":3"#))
        );
    }
}
