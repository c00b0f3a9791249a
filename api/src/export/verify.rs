//! Checking an export without the store: every line vouches for itself, the last one for all, and the signed statements for what was
//! said. What does not fit is named as exactly as the damage allows.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use bex_proto::ids::PartId;
use bex_proto::session::Verdict;
use bex_proto::transcript::sha256_hex;
use bex_proto::{SessionId, TurnNo, WorkspaceId};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::line::{EndLine, Kind, PartLine, SessionLine, StatementLine, TurnLine, VERSION, unseal};
use crate::proof::{ExportSeal, PublicKeys, Statement, digest_of};

/// Longest line: a part of 1 MiB of which every byte is escaped fits.
const LINE_BYTES: u64 = 16 * 1024 * 1024;

/// What does not fit, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} ({place}): {problem}")]
pub struct Complaint {
    /// From 1.
    pub line: u64,
    /// A part, a turn, a statement, or what stands before the damage.
    pub place: String,
    /// What is wrong.
    pub problem: String,
}

/// Why an export is not believed.
#[derive(Debug, thiserror::Error)]
pub enum VerifyFault {
    /// The file.
    #[error("the export cannot be read")]
    Read(#[from] io::Error),
    /// Its content.
    #[error(transparent)]
    Complaint(#[from] Complaint),
}

/// What was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The session.
    pub session: SessionId,
    /// Turns in the export.
    pub turns: u32,
    /// Turns of which a statement says exactly what the export holds.
    pub stated: u32,
    /// Parts in the export.
    pub parts: u64,
    /// Statements of the chain.
    pub statements: u32,
    /// Whether the export as a whole is signed.
    pub signed: bool,
    /// Every turn is settled.
    pub finished: bool,
}

/// Reads an export to its end. `keys` are those it must be signed with; without them the export's own are taken, which says that it
/// is of one piece but not by whom it was made.
///
/// # Errors
/// The first thing that does not fit.
pub fn verify(reader: impl BufRead, keys: Option<&PublicKeys>) -> Result<Checked, VerifyFault> {
    let mut reader = reader;
    let mut checker = Checker::new(keys);
    let mut line = Vec::new();
    loop {
        line.clear();
        reader
            .by_ref()
            .take(LINE_BYTES)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(checker.finish()?);
        }
        checker.take(&line)?;
    }
}

/// The turn whose parts are being read.
struct OpenTurn {
    line: TurnLine,
    prompt_sha256: String,
    digest: Sha256,
    parts: u32,
    bytes: u64,
    last: Option<PartId>,
}

struct Header {
    session: SessionId,
    workspace: WorkspaceId,
}

struct Checker<'k> {
    trusted: Option<&'k PublicKeys>,
    keys: PublicKeys,
    header: Option<Header>,
    turn: Option<OpenTurn>,
    last_turn: Option<TurnNo>,
    /// What statements must say, by their number.
    expected: BTreeMap<u32, Statement>,
    /// Number and digest of the newest statement.
    chain: Option<(u32, String)>,
    /// Newest statement of each turn.
    newest: BTreeMap<u32, u32>,
    digest: Sha256,
    lines: u64,
    /// What the line before was.
    before: String,
    ended: bool,
    checked: Option<Checked>,
}

impl<'k> Checker<'k> {
    fn new(trusted: Option<&'k PublicKeys>) -> Self {
        Self {
            trusted,
            keys: PublicKeys::default(),
            header: None,
            turn: None,
            last_turn: None,
            expected: BTreeMap::new(),
            chain: None,
            newest: BTreeMap::new(),
            digest: Sha256::new(),
            lines: 0,
            before: "the beginning".to_owned(),
            ended: false,
            checked: None,
        }
    }

    fn take(&mut self, line: &[u8]) -> Result<(), Complaint> {
        let place = name_of(line).unwrap_or_else(|| format!("behind {}", self.before));
        let number = self.lines + 1;
        let complaint = |problem: String| Complaint {
            line: number,
            place: place.clone(),
            problem,
        };
        if self.ended {
            return Err(complaint("something stands behind the end".into()));
        }
        let body = line
            .strip_suffix(b"\n")
            .ok_or_else(|| complaint("it does not end as a line".into()))?;
        let kind = unseal(body)
            .ok_or_else(|| complaint("its bytes are not those that were exported".into()))?;
        if (kind == Kind::Session) != self.header.is_none() {
            return Err(complaint("the session does not stand first, once".into()));
        }
        match kind {
            Kind::Session => self.session(body),
            Kind::Turn => self.turn(body),
            Kind::Part => self.part(body),
            Kind::Statement => self.statement(body),
            Kind::End => self.end(body),
        }
        .map_err(complaint)?;
        self.digest.update(line);
        self.lines += 1;
        self.before = place;
        Ok(())
    }

    fn finish(self) -> Result<Checked, Complaint> {
        let (line, place) = (self.lines + 1, format!("behind {}", self.before));
        let checked = self.checked.filter(|_| self.ended);
        checked.ok_or_else(|| Complaint {
            line,
            place,
            problem: "the export ends here without its end".to_owned(),
        })
    }

    fn session(&mut self, body: &[u8]) -> Result<(), String> {
        let line: SessionLine = read(body)?;
        if line.version != VERSION {
            return Err(format!(
                "version {} is not known to this release",
                line.version
            ));
        }
        self.keys = match self.trusted {
            Some(keys) => keys.clone(),
            None => PublicKeys::of_jwks(&line.keys),
        };
        let session = line.id.clone();
        let workspace = line.into_row().workspace;
        self.checked = None;
        self.header = Some(Header { session, workspace });
        Ok(())
    }

    fn turn(&mut self, body: &[u8]) -> Result<(), String> {
        self.close_turn()?;
        let line: TurnLine = read(body)?;
        if self.chain.is_some() {
            return Err("a turn stands behind the statements".to_owned());
        }
        if self.last_turn.is_some_and(|last| last >= line.turn) {
            return Err("its turn does not follow the one before".to_owned());
        }
        self.last_turn = Some(line.turn);
        self.turn = Some(OpenTurn {
            prompt_sha256: sha256_hex(line.prompt.as_bytes()),
            line,
            digest: Sha256::new(),
            parts: 0,
            bytes: 0,
            last: None,
        });
        Ok(())
    }

    fn part(&mut self, body: &[u8]) -> Result<(), String> {
        let line: PartLine = read(body)?;
        let turn = self.turn.as_mut().filter(|t| t.line.turn == line.turn);
        let turn = turn.ok_or("it does not stand behind its turn")?;
        if turn.last.is_some_and(|last| last >= line.id()) {
            return Err("it does not follow the part before".to_owned());
        }
        turn.last = Some(line.id());
        let bytes = line.bytes();
        turn.digest.update(bytes.as_bytes());
        turn.digest.update(b"\n");
        turn.parts += 1;
        turn.bytes += bytes.len() as u64;
        Ok(())
    }

    /// What was read of the turn is what its line counts, and is remembered for its statement.
    fn close_turn(&mut self) -> Result<(), String> {
        let Some(turn) = self.turn.take() else {
            return Ok(());
        };
        let Header { session, workspace } = self.header.as_ref().ok_or("no session")?;
        let line = turn.line;
        if (turn.parts, turn.bytes) != (line.stored_parts, line.stored_bytes) {
            return Err(format!(
                "turn {} before it has {} parts of {} bytes, its line says {} of {}",
                line.turn, turn.parts, turn.bytes, line.stored_parts, line.stored_bytes
            ));
        }
        let sha256 = hex::encode(turn.digest.finalize());
        let declared = (line.expected_parts, line.expected_sha256.as_deref());
        let proved = declared == (Some(turn.parts), Some(&sha256));
        if line.verdict == Verdict::Complete && line.expected_sha256.is_some() && !proved {
            return Err(format!(
                "turn {} before it is called complete, but its parts are not those the driver declared",
                line.turn
            ));
        }
        let checked = self.checked.get_or_insert_with(|| Checked {
            session: session.clone(),
            turns: 0,
            stated: 0,
            parts: 0,
            statements: 0,
            signed: false,
            finished: true,
        });
        checked.turns += 1;
        checked.parts += u64::from(turn.parts);
        checked.finished &= line.verdict != Verdict::Open;
        if let Some(number) = line.statement {
            let expected = Statement {
                v: 1,
                session: session.clone(),
                workspace: workspace.clone(),
                number,
                previous: None,
                turn: line.turn,
                supersedes: None,
                generation: line.generation,
                prompt_sha256: turn.prompt_sha256,
                verdict: line.verdict,
                reason: line.reason,
                ended_by: line.ended_by,
                parts: turn.parts,
                bytes: turn.bytes,
                sha256,
                declared_parts: line.expected_parts,
                declared_sha256: line.expected_sha256,
                settled_at: line.settled_at,
                healed_at: line.healed_at,
            };
            self.expected.insert(number, expected);
        }
        Ok(())
    }

    fn statement(&mut self, body: &[u8]) -> Result<(), String> {
        self.close_turn()?;
        let line: StatementLine = read(body)?;
        let said = Statement::verify(&line.statement, &self.keys).map_err(|e| e.to_string())?;
        let Header { session, .. } = self.header.as_ref().ok_or("no session")?;
        let next = self.chain.as_ref().map_or(0, |(number, _)| number + 1);
        let previous = self.chain.as_ref().map(|(_, digest)| digest.clone());
        if said.session != *session || (said.number, said.turn) != (line.number, line.turn) {
            return Err("it speaks of something else".to_owned());
        }
        if said.number != next || said.previous != previous {
            return Err("it does not follow the statement before".to_owned());
        }
        let superseded = self.newest.insert(said.turn.0, said.number);
        if said.supersedes != superseded {
            return Err("it does not supersede the turn's statement before".to_owned());
        }
        if let Some(expected) = self.expected.remove(&said.number) {
            let expected = Statement {
                previous,
                supersedes: superseded,
                ..expected
            };
            if expected.sha256 != said.sha256 {
                return Err(format!(
                    "the parts of turn {} are not those that were stated",
                    said.turn
                ));
            }
            if expected != said {
                return Err(format!("turn {} is not as it was stated", said.turn));
            }
            if let Some(checked) = &mut self.checked {
                checked.stated += 1;
            }
        }
        if let Some(checked) = &mut self.checked {
            checked.statements += 1;
        }
        self.chain = Some((said.number, digest_of(&line.statement)));
        Ok(())
    }

    fn end(&mut self, body: &[u8]) -> Result<(), String> {
        self.close_turn()?;
        let line: EndLine = read(body)?;
        if let Some((number, _)) = self.expected.first_key_value() {
            return Err(format!(
                "statement {number}, which a turn names, is missing"
            ));
        }
        let digest = hex::encode(self.digest.clone().finalize());
        if (line.lines, &line.digest) != (self.lines, &digest) {
            return Err("the lines before it are not those that were exported".to_owned());
        }
        let Header { session, .. } = self.header.as_ref().ok_or("no session")?;
        let checked = self.checked.as_mut().ok_or("there is no turn")?;
        if let Some(signature) = &line.signature {
            let seal = ExportSeal::verify(signature, &self.keys).map_err(|e| e.to_string())?;
            let expected = ExportSeal {
                session: session.clone(),
                lines: line.lines,
                digest,
            };
            if seal != expected {
                return Err("its signature is another export's".to_owned());
            }
            checked.signed = true;
        }
        self.ended = true;
        Ok(())
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|_| "it has another form".to_owned())
}

/// What a line is about, read without belief in it.
fn name_of(line: &[u8]) -> Option<String> {
    let kind = |word: &str| line.starts_with(format!(r#"{{"type":"{word}""#).as_bytes());
    let number = |field: &str| {
        let at = memchr::memmem::find(line, format!(r#""{field}":"#).as_bytes())?;
        let digits: Vec<u8> = line[at + field.len() + 3..]
            .iter()
            .copied()
            .take_while(u8::is_ascii_digit)
            .collect();
        String::from_utf8(digits).ok().filter(|d| !d.is_empty())
    };
    if kind("part") {
        return Some(format!("part {}.{}", number("turn")?, number("index")?));
    }
    if kind("turn") {
        return Some(format!("turn {}", number("turn")?));
    }
    if kind("statement") {
        return Some(format!("statement {}", number("number")?));
    }
    if kind("session") {
        return Some("the session".to_owned());
    }
    kind("end").then(|| "the end".to_owned())
}

#[cfg(test)]
mod tests;
