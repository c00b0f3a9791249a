//! What the agent itself keeps of what it says, where nobody else writes: who is to be checked may not be the only witness.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// One turn's record; none where none was asked for.
pub(super) struct Record(Option<File>);

impl Record {
    /// Goes on behind what is in the record already: a turn that is spoken twice shows.
    pub(super) fn open(dir: Option<&Path>, name: Option<&str>) -> io::Result<Self> {
        let Some((dir, name)) = dir.zip(name) else {
            return Ok(Self(None));
        };
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.join(name))?;
        Ok(Self(Some(file)))
    }

    /// Keeps what will be said next. Before it is said, so that nothing is said that is not here.
    pub(super) fn before(&mut self, text: &str) -> io::Result<()> {
        match &mut self.0 {
            Some(file) => file.write_all(text.as_bytes()),
            None => Ok(()),
        }
    }
}
