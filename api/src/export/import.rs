//! Taking in what was exported: checked as a whole first, then stored as a whole.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use bex_proto::SessionId;
use bex_proto::transcript::Part;
use bex_proto::transcript::storable;
use bex_store::Db;
use bex_store::import::{ImportError, ImportRecord, Imported};
use serde::de::DeserializeOwned;

use super::line::{Kind, PartLine, SessionLine, StatementLine, TurnLine, unseal};
use super::verify::{VerifyFault, verify};
use crate::proof::PublicKeys;

/// Why nothing was taken in.
#[derive(Debug, thiserror::Error)]
pub enum ImportFault {
    /// The file.
    #[error("the export cannot be read")]
    Read(#[from] io::Error),
    /// It is not as it was exported.
    #[error("the export is not believed")]
    Verify(#[from] VerifyFault),
    /// A turn was open, or the session active, when it was exported.
    #[error("the session was not finished when it was exported")]
    Unfinished,
    /// A session of this id is here.
    #[error("session {0} is here already")]
    Exists(SessionId),
    /// A session of this id is being deleted.
    #[error("session {0} was deleted and its parts are still being removed; try again later")]
    BeingDeleted(SessionId),
    /// Store trouble.
    #[error("the store did not take it")]
    Store(#[from] bex_store::StoreError),
}

/// Takes in one session from a file. The file must not change meanwhile.
///
/// # Errors
/// See [`ImportFault`]; nothing was stored then.
pub async fn import(
    db: &Db,
    path: &Path,
    keys: Option<&PublicKeys>,
) -> Result<SessionId, ImportFault> {
    let checked = verify(BufReader::new(File::open(path)?), keys)?;
    let mut lines = Lines {
        reader: BufReader::new(File::open(path)?),
        session: checked.session.clone(),
    };
    let session: SessionLine = lines.first()?;
    if !checked.finished || !session.phase.is_terminal() {
        return Err(ImportFault::Unfinished);
    }
    let generation = session.generation;
    let imported = db
        .import_session(&session.into_row(), generation, lines)
        .await;
    match imported {
        Ok(Imported::Done) => Ok(checked.session),
        Ok(Imported::Exists) => Err(ImportFault::Exists(checked.session)),
        Ok(Imported::BeingDeleted) => Err(ImportFault::BeingDeleted(checked.session)),
        Err(ImportError::Read(error)) => Err(error.into()),
        Err(ImportError::Store(error)) => Err(error.into()),
    }
}

/// A checked export's records.
struct Lines {
    reader: BufReader<File>,
    session: SessionId,
}

impl Lines {
    fn line(&mut self) -> io::Result<Option<(Kind, Vec<u8>)>> {
        let mut line = Vec::new();
        self.reader.by_ref().read_until(b'\n', &mut line)?;
        if line.pop().is_none() {
            return Ok(None);
        }
        let kind = unseal(&line).ok_or_else(changed)?;
        Ok(Some((kind, line)))
    }

    fn first<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let (_, line) = self.line()?.ok_or_else(changed)?;
        read(&line)
    }

    fn record(&mut self) -> io::Result<Option<ImportRecord>> {
        let Some((kind, line)) = self.line()? else {
            return Ok(None);
        };
        match kind {
            Kind::Session => Err(changed()),
            Kind::Turn => {
                let line: TurnLine = read(&line)?;
                let stated = line.statement.is_some();
                let row = Box::new(line.into_row(&self.session));
                Ok(Some(ImportRecord::Turn { row, stated }))
            }
            Kind::Part => part(read(&line)?).map(Some),
            Kind::Statement => {
                let line: StatementLine = read(&line)?;
                Ok(Some(ImportRecord::Statement(line.into_row())))
            }
            Kind::End => Ok(None),
        }
    }
}

impl Iterator for Lines {
    type Item = io::Result<ImportRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        self.record().transpose()
    }
}

fn part(line: PartLine) -> io::Result<ImportRecord> {
    let (id, seq) = (line.id(), line.seq);
    let (spoken_at, created_at) = (line.spoken_at, line.created_at);
    let given = line.into_bytes();
    let (head, bytes) = storable(given.clone());
    if bytes != given {
        // no store ever held it
        return Err(changed());
    }
    Ok(ImportRecord::Part {
        part: Part {
            id,
            head,
            bytes,
            spoken_at,
        },
        seq,
        created_at,
    })
}

fn read<T: DeserializeOwned>(line: &[u8]) -> io::Result<T> {
    serde_json::from_slice(line).map_err(|_| changed())
}

fn changed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the file is not the one that was checked",
    )
}
