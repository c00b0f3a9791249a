//! The state directory: one per session, one reporter at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bex_proto::RemoteSessionId;
use bex_proto::remote::OutputStream;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fault::Fault;
use crate::files;

/// Where everything of a session is.
#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
    /// Held while the reporter lives.
    _lock: Option<File>,
}

impl Place {
    /// The directory, made where there is none, locked, and this session's.
    ///
    /// # Errors
    /// When it is another's.
    pub fn open(dir: &Path, session: &RemoteSessionId) -> Result<Self, Fault> {
        std::fs::create_dir_all(dir)?;
        let dir = dir.canonicalize()?;
        files::close(&dir)?;
        let lock = lock(&dir.join("reporter.lock"))?.ok_or(Fault::Busy)?;
        let place = Self {
            dir,
            _lock: Some(lock),
        };
        let path = place.dir.join("session");
        match std::fs::read_to_string(&path) {
            Ok(other) if other == session.as_str() => {}
            Ok(other) => return Err(Fault::OtherSession(other)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                files::replace(&path, session.as_str().as_bytes())?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(place)
    }

    /// The same directory as the runner sees it: the lock is its reporter's.
    pub fn of_runner(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            _lock: None,
        }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What a stream said.
    pub fn spool(&self, stream: OutputStream) -> PathBuf {
        self.dir.join(format!("{stream}.spool"))
    }

    /// How the output was cut.
    pub fn journal(&self) -> PathBuf {
        self.dir.join("events.journal")
    }

    /// What became of commands.
    pub fn commands(&self) -> PathBuf {
        self.dir.join("commands.journal")
    }

    /// The command's standard input.
    pub fn stdin(&self) -> PathBuf {
        self.dir.join("stdin")
    }

    /// The command's process.
    pub fn child(&self) -> PathBuf {
        self.dir.join("child.json")
    }

    /// How it ended.
    pub fn exit(&self) -> PathBuf {
        self.dir.join("exit.json")
    }

    /// The runner's lock, while it lives; nothing where somebody holds it.
    ///
    /// # Errors
    /// What the system says.
    pub fn lock_runner(&self) -> io::Result<Option<File>> {
        lock(&self.dir.join("runner.lock"))
    }

    /// The exit code of a session whose end was reported.
    ///
    /// # Errors
    /// What the system says.
    pub fn reported(&self) -> Result<Option<u8>, Fault> {
        read_json(&self.dir.join("reported"))
    }

    /// Its end was reported.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_reported(&self, code: u8) -> io::Result<()> {
        write_json(&self.dir.join("reported"), &code)
    }
}

fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// What there is of a piece of a spool: less than was written only after the machine itself fell.
///
/// # Errors
/// What the system says.
pub fn read_piece(spool: &File, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).unwrap_or_default()];
    let mut filled = 0;
    while filled < bytes.len() {
        match spool.read_at(&mut bytes[filled..], from + filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// A small file; nothing where there is none.
///
/// # Errors
/// What the system says, or that it is not what was written.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Fault> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|_| Fault::Corrupt("a file of the state directory")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes one, all of it or nothing.
///
/// # Errors
/// What the system says.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    files::replace(path, &serde_json::to_vec(value)?)
}
