//! Where a package's content ends and what names it.
//!
//! When it was made and what it is called are its last two members, written in exactly one way. What stands before them is the
//! content; its SHA-256 is the name. So a name can be computed while a package is written, and checked without reading its JSON.

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::PackageId;
use crate::time;

/// What stands between content and time ...
const BEFORE_TIME: &str = ",\n\"generatedAt\":\"";
/// ... between time and name ...
const BEFORE_NAME: &str = "\",\n\"packageId\":\"";
/// ... and behind the name.
const AFTER_NAME: &str = "\"\n}\n";
/// `2026-11-30T11:53:56.000Z`
const TIME_BYTES: usize = 24;
/// `pkg-` and 20 characters
const NAME_BYTES: usize = 24;
/// Bytes of the end that is not content.
pub const TRAILER_BYTES: usize =
    BEFORE_TIME.len() + TIME_BYTES + BEFORE_NAME.len() + NAME_BYTES + AFTER_NAME.len();

/// Names content while it is written.
#[derive(Debug, Clone, Default)]
pub struct Namer(Sha256);

impl Namer {
    /// Takes the next bytes of the content.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The name of what was taken.
    pub fn name(self) -> PackageId {
        PackageId::of(&self.0.finalize().into())
    }
}

/// The end of a package.
pub fn trailer(generated_at: Timestamp, name: &PackageId) -> String {
    format!(
        "{BEFORE_TIME}{}{BEFORE_NAME}{name}{AFTER_NAME}",
        time::format(generated_at)
    )
}

/// What the end of a package says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trailer {
    /// When it was made.
    pub generated_at: Timestamp,
    /// What it is called.
    pub name: PackageId,
}

/// Reads an end of [`TRAILER_BYTES`] bytes; `None` when it is written in any other way.
pub fn read_trailer(end: &[u8]) -> Option<Trailer> {
    let rest = end.strip_prefix(BEFORE_TIME.as_bytes())?;
    let (at, rest) = rest.split_at_checked(TIME_BYTES)?;
    let rest = rest.strip_prefix(BEFORE_NAME.as_bytes())?;
    let (name, rest) = rest.split_at_checked(NAME_BYTES)?;
    (rest == AFTER_NAME.as_bytes()).then_some(Trailer {
        generated_at: time::read(at)?,
        name: std::str::from_utf8(name).ok()?.parse().ok()?,
    })
}

/// What is wrong with a package's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misnamed {
    /// It does not end as packages do.
    #[error("the file does not end as a package does")]
    NoTrailer,
    /// Its content was changed.
    #[error("the content is not what the package's name says")]
    Changed,
}

/// Checks that a package is called what its content says.
///
/// # Errors
/// What is wrong.
pub fn check(package: &[u8]) -> Result<Trailer, Misnamed> {
    let at = package
        .len()
        .checked_sub(TRAILER_BYTES)
        .ok_or(Misnamed::NoTrailer)?;
    let (content, end) = package.split_at(at);
    let trailer = read_trailer(end).ok_or(Misnamed::NoTrailer)?;
    let mut namer = Namer::default();
    namer.update(content);
    if namer.name() == trailer.name {
        Ok(trailer)
    } else {
        Err(Misnamed::Changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(content: &str) -> Vec<u8> {
        let mut namer = Namer::default();
        namer.update(content.as_bytes());
        let end = trailer(Timestamp::UNIX_EPOCH, &namer.name());
        assert_eq!(end.len(), TRAILER_BYTES);
        [content, &end].concat().into_bytes()
    }

    #[test]
    fn a_package_is_called_what_it_says_and_a_changed_one_is_not() {
        let whole = package("{\n\"a\":1");
        let value: serde_json::Value = serde_json::from_slice(&whole).expect("it is JSON");
        assert_eq!(value["generatedAt"], "1970-01-01T00:00:00.000Z");
        let read = check(&whole).expect("it is");
        assert_eq!(value["packageId"], read.name.as_str());
        assert!(read.name.as_str().starts_with("pkg-"));
        for at in 0..whole.len() - TRAILER_BYTES {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert_eq!(check(&changed), Err(Misnamed::Changed), "byte {at}");
        }
        for cut in 0..whole.len() {
            assert!(check(&whole[..cut]).is_err(), "cut at {cut}");
        }
        let mut spaced = whole.clone();
        spaced.push(b' ');
        assert_eq!(check(&spaced), Err(Misnamed::NoTrailer));
    }

    #[test]
    fn when_it_was_made_does_not_change_its_name() {
        let whole = package("{\n\"a\":1");
        let later = String::from_utf8(whole)
            .expect("text")
            .replace("1970-", "2026-");
        assert!(check(later.as_bytes()).is_ok());
    }
}
