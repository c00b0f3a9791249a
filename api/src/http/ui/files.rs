//! The files of a built dashboard, in memory.

use std::collections::BTreeMap;
use std::path::Path;

use bex_proto::transcript::sha256_hex;
use bytes::Bytes;
use http::HeaderValue;

/// Files of a dashboard: ten times what it has.
const FILES: usize = 500;
/// Bytes of all of them.
const BYTES: u64 = 32 * 1024 * 1024;
/// Folders within folders.
const DEPTH: usize = 4;
/// The same content, packed.
const PACKED: &str = ".gz";
/// Characters of a content's digest that tell it from others.
const TAG_CHARS: usize = 32;

/// Why a dashboard is not served.
#[derive(Debug, thiserror::Error)]
pub enum UiFault {
    /// Not a directory of readable files.
    #[error("the dashboard cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// Somebody named another directory.
    #[error("more than {FILES} files or {BYTES} bytes, or folders too deep: this is no dashboard")]
    TooLarge,
    /// It was not built.
    #[error("there is no index.html: run make dashboard")]
    NoPage,
    /// The gateway's URL has no origin.
    #[error("the gateway's URL has no origin that a policy could name")]
    Origin,
}

/// One file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) kind: &'static str,
    pub(super) tag: HeaderValue,
    pub(super) bytes: Bytes,
    /// The same, as gzip packed it when it was built.
    pub(super) packed: Option<Bytes>,
}

/// Every file by its path below the root, with slashes.
#[derive(Debug)]
pub(super) struct Files(BTreeMap<String, File>);

impl Files {
    pub(super) fn read(dir: &Path) -> Result<Self, UiFault> {
        let mut found = BTreeMap::new();
        let mut room = BYTES;
        gather(dir, "", DEPTH, &mut room, &mut found)?;
        let mut files = BTreeMap::new();
        for (path, bytes) in &found {
            if path.ends_with(PACKED) {
                continue;
            }
            let tag = format!("\"{}\"", &sha256_hex(bytes)[..TAG_CHARS]);
            let file = File {
                kind: kind(path),
                tag: HeaderValue::from_str(&tag).map_err(|_| UiFault::TooLarge)?,
                bytes: bytes.clone(),
                packed: found.get(&format!("{path}{PACKED}")).cloned(),
            };
            files.insert(path.clone(), file);
        }
        Ok(Self(files))
    }

    pub(super) fn get(&self, path: &str) -> Option<&File> {
        self.0.get(path)
    }
}

fn gather(
    dir: &Path,
    prefix: &str,
    depth: usize,
    room: &mut u64,
    found: &mut BTreeMap<String, Bytes>,
) -> Result<(), UiFault> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // links lead elsewhere and are not followed
        let about = entry.metadata()?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = format!("{prefix}{name}");
        if about.is_dir() {
            let deeper = depth.checked_sub(1).ok_or(UiFault::TooLarge)?;
            gather(&entry.path(), &format!("{path}/"), deeper, room, found)?;
        } else if about.is_file() {
            *room = room.checked_sub(about.len()).ok_or(UiFault::TooLarge)?;
            if found.len() == FILES {
                return Err(UiFault::TooLarge);
            }
            found.insert(path, std::fs::read(entry.path())?.into());
        }
    }
    Ok(())
}

fn kind(path: &str) -> &'static str {
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "json" => "application/json",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
