//! Writing the lossless form.

use bex_proto::TurnNo;
use bex_store::Db;
use bex_store::sessions::SessionRow;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::ExportFault;
use super::line::{EndLine, Kind, PartLine, SessionLine, StatementLine, TurnLine, seal};
use super::parts::Parts;
use super::sink::Sink;
use crate::proof::{ExportSeal, Jwks, ProofRing};

/// Statements of one page.
const STATEMENTS: u32 = 500;

/// Lines and what is known of all of them.
struct Lines<'a> {
    sink: &'a mut Sink,
    digest: Sha256,
    lines: u64,
}

impl Lines<'_> {
    async fn write(&mut self, kind: Kind, fields: &impl Serialize) -> Result<(), ExportFault> {
        let line = seal(kind, fields);
        self.digest.update(line.as_bytes());
        self.lines += 1;
        self.sink.write(&line).await
    }
}

pub(super) async fn write(
    db: &Db,
    ring: Option<&ProofRing>,
    session: &SessionRow,
    sink: &mut Sink,
) -> Result<(), ExportFault> {
    let generation = db.session_generation(&session.id).await?;
    let generation = generation.ok_or(ExportFault::Gone)?;
    let keys = ring.map_or(Jwks { keys: Vec::new() }, |ring| ring.public().to_jwks());
    let mut lines = Lines {
        sink,
        digest: Sha256::new(),
        lines: 0,
    };
    let first = SessionLine::of(session, generation, keys);
    lines.write(Kind::Session, &first).await?;
    let mut turn = TurnNo::FIRST;
    // a turn that began after the session's row was read is not part of this export
    while turn <= session.turns
        && let Some(snapshot) = db.turn_snapshot(&session.id, turn).await?
    {
        let (number, before) = (snapshot.turn.turn, snapshot.before);
        if number > session.turns {
            break;
        }
        lines.write(Kind::Turn, &TurnLine::of(snapshot)).await?;
        let mut parts = Parts::new(db, &session.id, number, before);
        while let Some(part) = parts.next().await? {
            lines.write(Kind::Part, &PartLine::of(&part)).await?;
        }
        turn = number.next();
    }
    // read last: whatever statement a turn's line names is among them
    let mut from = 0;
    loop {
        let page = db.statements(&session.id, from, STATEMENTS).await?;
        let Some(last) = page.last() else { break };
        from = last.number + 1;
        for row in page {
            let line = StatementLine::of(row);
            lines.write(Kind::Statement, &line).await?;
        }
    }
    if db.session_generation(&session.id).await?.is_none() {
        // deleted while it was read: what looks whole may not be
        return Err(ExportFault::Gone);
    }
    let digest = hex::encode(lines.digest.finalize());
    let signature = ring.map(|ring| {
        let seal = ExportSeal {
            session: session.id.clone(),
            lines: lines.lines,
            digest: digest.clone(),
        };
        seal.sign(ring)
    });
    let end = EndLine {
        lines: lines.lines,
        digest,
        signature,
    };
    let sink = lines.sink;
    sink.write(&seal(Kind::End, &end)).await?;
    sink.flush().await
}
