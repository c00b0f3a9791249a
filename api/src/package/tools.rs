//! What can be done with a package in a file: look into it, check it, keep it as a case for evaluations.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use bex_proto::package::content::{self, Misnamed};
use bex_proto::package::{Envelope, Findings, SCHEMA_VERSION, schema};
use bex_proto::transcript::sha256_hex;
use bex_redact::{Gate, Profile};
use tokio_util::sync::CancellationToken;

use super::{Bounds, PackageFault, check};

/// What is said of a package.
#[derive(Debug)]
pub struct Summary {
    /// What it says.
    pub envelope: Envelope,
    /// Its length.
    pub bytes: u64,
    /// Digest of it.
    pub sha256: String,
}

/// What is wrong with a package.
#[derive(Debug, thiserror::Error)]
pub enum Complaint {
    /// It cannot be read.
    #[error("{} cannot be read: {}", .0.display(), .1.kind())]
    Read(PathBuf, std::io::Error),
    /// It is larger than a package may be.
    #[error("the file is larger than a package may be")]
    TooLarge,
    /// It is no JSON, or not that of a package.
    #[error("the file is no package: {}", shown(.0))]
    NoPackage(serde_json::Error),
    /// It is of a version that this program does not know.
    #[error("packages of version {} are not known here", shown(.0))]
    Version(String),
    /// It is not as the schema says.
    #[error("the package is not as its schema says: {}", shown(&.0.join("; ")))]
    Schema(Vec<String>),
    /// Its name is not that of its content.
    #[error(transparent)]
    Name(#[from] Misnamed),
    /// Its bytes are others than were asked for.
    #[error("the file has another SHA-256 than was given")]
    Digest,
    /// The gate found something.
    #[error(transparent)]
    Gate(PackageFault),
    /// The gate does not serve.
    #[error(transparent)]
    NoGate(#[from] bex_redact::GateError),
    /// It cannot be written.
    #[error("the case cannot be written into {}: {}", .0.display(), .1.kind())]
    Write(PathBuf, std::io::Error),
    /// Something else is there under its name.
    #[error("{} is there and is something else", .0.display())]
    Other(PathBuf),
}

/// Reads a package's file.
///
/// # Errors
/// When it is none.
pub fn read(path: &Path) -> Result<Vec<u8>, Complaint> {
    let unread = |error| Complaint::Read(path.to_owned(), error);
    let file = File::open(path).map_err(unread)?;
    let limit = Bounds::default().bytes;
    let mut bytes = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    if read.map_err(unread)? as u64 > limit {
        return Err(Complaint::TooLarge);
    }
    Ok(bytes)
}

/// What a package says of itself; nothing is checked.
///
/// # Errors
/// When it is none.
pub fn inspect(package: &[u8]) -> Result<Summary, Complaint> {
    let envelope: Envelope = serde_json::from_slice(package).map_err(Complaint::NoPackage)?;
    Ok(Summary {
        envelope,
        bytes: package.len() as u64,
        sha256: sha256_hex(package),
    })
}

/// Checks a package: its schema, its name, its digest where one is given, and once more by a gate.
///
/// # Errors
/// The first thing that is wrong.
pub fn verify(package: &[u8], sha256: Option<&str>) -> Result<Summary, Complaint> {
    let value: serde_json::Value = serde_json::from_slice(package).map_err(Complaint::NoPackage)?;
    let version = value["schemaVersion"].as_str().unwrap_or_default();
    let text = schema::of_version(version).ok_or_else(|| Complaint::Version(version.to_owned()))?;
    let complaints = schema::check(&schema::parse(text), &value);
    if !complaints.is_empty() {
        return Err(Complaint::Schema(complaints));
    }
    drop(value);
    content::check(package)?;
    let summary = inspect(package)?;
    if sha256.is_some_and(|given| !given.eq_ignore_ascii_case(&summary.sha256)) {
        return Err(Complaint::Digest);
    }
    // to its end
    let given_up = CancellationToken::new();
    check::check(&Gate::new(Profile::Package)?, package, &given_up).map_err(Complaint::Gate)?;
    Ok(summary)
}

/// Keeps a checked package as a case, byte for byte, under its own name; where it is kept already nothing happens.
///
/// # Errors
/// When it is not good, or cannot be written.
pub fn promote(package: &[u8], sha256: Option<&str>, dir: &Path) -> Result<PathBuf, Complaint> {
    let name = content::check(package)?.name;
    verify(package, sha256)?;
    let path = dir.join(format!("{name}.json"));
    match std::fs::read(&path) {
        Ok(there) if there == package => return Ok(path),
        Ok(_) => return Err(Complaint::Other(path)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Complaint::Read(path, error)),
    }
    let unwritten = |error| Complaint::Write(dir.to_owned(), error);
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(unwritten)?;
    file.write_all(package).map_err(unwritten)?;
    file.persist_noclobber(&path)
        .map_err(|e| unwritten(e.error))?;
    Ok(path)
}

/// What a file says, without what would speak to the terminal.
fn shown(said: &(impl fmt::Display + ?Sized)) -> String {
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    said.to_string().chars().map(plain).collect()
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (e, s) = (&self.envelope, &self.envelope.sections);
        let name = e.package_id.as_ref().map_or("none", |id| id.as_str());
        let commit = e.producer_commit.as_deref().unwrap_or("unknown");
        writeln!(
            f,
            "package     {name} ({} {})",
            e.kind,
            shown(&e.correlation_id)
        )?;
        writeln!(f, "of          {}", shown(&e.org_id))?;
        writeln!(
            f,
            "made        {} by {}",
            shown(&e.generated_at),
            shown(commit)
        )?;
        writeln!(
            f,
            "schema      {} (this program writes {SCHEMA_VERSION})",
            shown(&e.schema_version)
        )?;
        writeln!(f, "bytes       {}", self.bytes)?;
        writeln!(f, "sha256      {}", self.sha256)?;
        writeln!(f, "nodes       {}", s.nodes.len())?;
        writeln!(f, "sessions    {}", s.sessions.len())?;
        writeln!(f, "turns       {}", s.turns.len())?;
        let messages = s.messages.as_ref().map_or(0, Vec::len);
        writeln!(f, "messages    {messages}")?;
        let partial = if s.tool_results.partial {
            ", partial"
        } else {
            ""
        };
        writeln!(f, "tools       {}{partial}", s.tool_results.results.len())?;
        match &s.findings {
            Findings::Joined(findings) => writeln!(f, "findings    {}", findings.len())?,
            Findings::Partial(_) => writeln!(f, "findings    not joined")?,
        }
        for note in &s.notes {
            writeln!(
                f,
                "partial     {}: {}",
                shown(&note.section),
                shown(&note.provenance)
            )?;
        }
        Ok(())
    }
}
