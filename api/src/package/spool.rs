//! The file that a package is written into: it has no name, so it is gone with its last handle, whatever happens to the process, and
//! nobody else can open it.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use bex_proto::package::PackageId;
use bex_proto::package::content::{Namer, TRAILER_BYTES, trailer};
use jiff::Timestamp;

use super::PackageFault;

/// Bytes that are copied at once.
const COPY: usize = 64 * 1024;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Spool {
    file: BufWriter<File>,
    namer: Namer,
    bytes: u64,
    limit: u64,
}

/// A package in a file without a name.
#[derive(Debug)]
pub struct Built {
    /// The package, from its first byte.
    pub file: File,
    /// What it is called.
    pub name: PackageId,
    /// Its length.
    pub bytes: u64,
    /// Ids of the sessions and the execution that it tells of.
    pub sources: Vec<String>,
}

impl Spool {
    /// An empty file in a directory, for at most `limit` bytes.
    pub fn create(dir: &Path, limit: u64) -> Result<Self, PackageFault> {
        // for a moment it has a name, so that its mode is its owner's alone
        let file = tempfile::NamedTempFile::new_in(dir).map_err(PackageFault::Spool)?;
        let file = file.into_file();
        Ok(Self {
            file: BufWriter::new(file),
            namer: Namer::default(),
            bytes: 0,
            limit,
        })
    }

    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), PackageFault> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.limit {
            return Err(PackageFault::TooLarge);
        }
        self.namer.update(bytes);
        self.file.write_all(bytes).map_err(PackageFault::Spool)
    }

    /// Adds what another file holds.
    pub fn append(&mut self, other: Self) -> Result<(), PackageFault> {
        let mut file = rewound(other.file).map_err(PackageFault::Spool)?;
        let mut piece = vec![0; COPY];
        loop {
            let read = file.read(&mut piece).map_err(PackageFault::Spool)?;
            if read == 0 {
                return Ok(());
            }
            self.write(&piece[..read])?;
        }
    }

    /// Names the content, which tells of `sources`, and ends the file.
    pub fn finish(
        mut self,
        generated_at: Timestamp,
        sources: Vec<String>,
    ) -> Result<Built, PackageFault> {
        let name = self.namer.name();
        let end = trailer(generated_at, &name);
        self.bytes += end.len() as u64;
        if self.bytes > self.limit {
            return Err(PackageFault::TooLarge);
        }
        let written = self.file.write_all(end.as_bytes());
        let file = written.and_then(|()| rewound(self.file));
        Ok(Built {
            file: file.map_err(PackageFault::Spool)?,
            name,
            bytes: self.bytes,
            sources,
        })
    }
}

impl Built {
    /// Goes to its first byte.
    pub(super) fn rewind(&mut self) -> io::Result<()> {
        self.file.rewind()
    }

    /// Says that it was made at another time: when the first with this content was.
    pub(super) fn date(&mut self, generated_at: Timestamp) -> io::Result<()> {
        let end = trailer(generated_at, &self.name);
        self.file
            .seek(SeekFrom::Start(self.bytes - TRAILER_BYTES as u64))?;
        self.file.write_all(end.as_bytes())?;
        self.file.rewind()
    }
}

fn rewound(file: BufWriter<File>) -> io::Result<File> {
    let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use bex_proto::package::content::check;

    use super::*;

    #[test]
    fn a_spool_has_no_name_and_is_nobody_elses() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut spool = Spool::create(dir.path(), 1000).expect("it opens");
        spool.write(b"{\n\"a\":1").expect("there is room");
        let mut side = Spool::create(dir.path(), 1000).expect("it opens");
        side.write(b",\n\"b\":2").expect("there is room");
        spool.append(side).expect("there is room");
        let mut finished = spool
            .finish(Timestamp::UNIX_EPOCH, Vec::new())
            .expect("there is room");
        let meta = finished.file.metadata().expect("it is there");
        assert_eq!(
            (meta.nlink(), meta.permissions().mode() & 0o777),
            (0, 0o600)
        );
        let names = std::fs::read_dir(dir.path()).expect("a directory");
        assert_eq!(names.count(), 0);
        let later = Timestamp::from_second(1_700_000_000).expect("a time");
        finished.date(later).expect("it is written");
        let mut bytes = Vec::new();
        finished.file.read_to_end(&mut bytes).expect("it reads");
        assert_eq!(bytes.len() as u64, finished.bytes);
        let trailer = check(&bytes).expect("it is called what it says");
        assert_eq!((trailer.generated_at, trailer.name), (later, finished.name));
    }

    #[test]
    fn no_more_is_written_than_may_be() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut spool = Spool::create(dir.path(), 10).expect("it opens");
        spool.write(b"0123456789").expect("there is room");
        assert!(matches!(spool.write(b"x"), Err(PackageFault::TooLarge)));
        let mut spool = Spool::create(dir.path(), 10).expect("it opens");
        spool.write(b"{").expect("there is room");
        let ended = spool.finish(Timestamp::UNIX_EPOCH, Vec::new());
        assert!(matches!(ended, Err(PackageFault::TooLarge)));
    }
}
