//! Everything that is to be known of the sessions at the end: from the store, the members' logs, the drivers' logs, the agents'
//! records, the api and a last viewer.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bex_proto::session::{EndedBy, Phase, TruncationReason, Verdict};
use bex_proto::{Generation, SessionId, TurnNo};
use bex_tests::stack::Fleet;
use bex_tests::tally::Parts;
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::doors::Doors;
use crate::faults::Hit;
use crate::sessions::Told;
use crate::verdict::{Case, Life, Statement, TurnCase};
use crate::viewers::{self, View};
use crate::witness::{self, Witness};

/// Sessions read at once.
const AT_ONCE: usize = 8;
const SESSIONS: &str = "SELECT id, phase FROM sessions";
const TURNS: &str = "SELECT t.session_id, t.turn, t.generation, t.verdict, t.reason, t.ended_by, \
    t.expected_parts IS NOT NULL AS declared, coalesce(t.settled_at - s.cancel_requested_at >= interval '10 s', false) AS waited \
    FROM turns t JOIN sessions s ON s.id = t.session_id ORDER BY 1, 2";
const LIVES: &str = "SELECT session_id, generation, state FROM sandboxes ORDER BY 1, 2";
const STATEMENTS: &str =
    "SELECT session_id, turn, statement FROM turn_statements ORDER BY 1, 2, number";

#[derive(Deserialize)]
struct SessionRow {
    id: SessionId,
    phase: String,
}

#[derive(Deserialize)]
struct TurnRow {
    session_id: SessionId,
    turn: u32,
    generation: u32,
    verdict: String,
    reason: Option<String>,
    ended_by: Option<String>,
    declared: bool,
    waited: bool,
}

#[derive(Deserialize)]
struct LifeRow {
    session_id: SessionId,
    generation: u32,
    state: String,
}

#[derive(Deserialize)]
struct StatementRow {
    session_id: SessionId,
    turn: u32,
    statement: String,
}

/// What the apis wrote that they did: (session, turn or generation) and how often.
#[derive(Default)]
struct Deeds {
    settled: BTreeMap<(String, String), u32>,
    removed: BTreeMap<(String, String), u32>,
}

/// All that is stored, by session.
struct Rows {
    phases: BTreeMap<SessionId, Phase>,
    turns: Vec<TurnRow>,
    lives: Vec<LifeRow>,
    statements: Vec<StatementRow>,
    deeds: Deeds,
    processes: Vec<(u32, String)>,
    directories: Vec<String>,
}

/// The cases of all sessions, and sessions that nobody knows of.
pub async fn gather(
    fleet: &Fleet,
    doors: &Doors,
    told: Vec<Told>,
    hits: &[Hit],
    witness: &Witness,
    records: &Path,
) -> anyhow::Result<(Vec<Case>, Vec<SessionId>)> {
    let mut phases = BTreeMap::new();
    for row in rows::<SessionRow>(fleet, SESSIONS)? {
        phases.insert(row.id, row.phase.parse()?);
    }
    let rows = Rows {
        phases,
        turns: rows(fleet, TURNS)?,
        lives: rows(fleet, LIVES)?,
        statements: rows(fleet, STATEMENTS)?,
        deeds: Deeds::read(&fleet.log_dir()),
        processes: fleet.sandboxes.left_processes(),
        directories: fleet.sandboxes.left_directories(),
    };
    let mut unknown: Vec<SessionId> = rows.phases.keys().cloned().collect();
    unknown.retain(|id| told.iter().all(|told| told.id != *id));
    let cases = stream::iter(told).map(|told| {
        let rows = &rows;
        async move {
            let read = read(doors, &told).await;
            let (stored, replay, trouble) = match read {
                Ok((stored, replay)) => (stored, replay, None),
                Err(error) => (Parts::new(), View::default(), Some(format!("{error:#}"))),
            };
            let mut case = rows.case(told, stored, replay, hits, witness, records)?;
            case.trouble.extend(trouble);
            anyhow::Ok(case)
        }
    });
    let cases: Vec<anyhow::Result<Case>> = cases.buffered(AT_ONCE).collect().await;
    Ok((cases.into_iter().collect::<anyhow::Result<_>>()?, unknown))
}

/// What is stored, by the feed, whose numbers are checked; and what a viewer is shown who comes now.
async fn read(doors: &Doors, told: &Told) -> anyhow::Result<(Parts, View)> {
    let feed = doors.apis[0].feed(&told.id).await.context("the feed")?;
    let part = |part: &bex_tests::client::FeedPart| {
        (
            part.id(),
            Bytes::copy_from_slice(part.part.get().as_bytes()),
        )
    };
    let mut stored: Parts = feed.iter().map(part).collect();
    stored.sort_by_key(|(id, _)| *id);
    let twice = stored.windows(2).find(|two| two[0].0 == two[1].0);
    ensure!(twice.is_none(), "the feed holds {twice:?}");
    let replay = viewers::replay(doors, &told.id, told.plan.number as usize).await;
    Ok((stored, replay))
}

impl Rows {
    fn case(
        &self,
        told: Told,
        stored: Parts,
        replay: View,
        hits: &[Hit],
        witness: &Witness,
        records: &Path,
    ) -> anyhow::Result<Case> {
        let id = told.id.clone();
        let lives: Vec<Life> = self
            .lives
            .iter()
            .filter(|life| life.session_id == id)
            .map(|life| Life {
                generation: Generation(life.generation),
                state: life.state.clone(),
                removals: count(&self.deeds.removed, &id, life.generation),
            })
            .collect();
        let newest = lives
            .iter()
            .map(|life| life.generation.0)
            .max()
            .unwrap_or(0);
        let mut turns = Vec::new();
        for row in self.turns.iter().filter(|row| row.session_id == id) {
            let plan = told
                .plan
                .turns
                .get(row.turn as usize - 1)
                .context("a turn nobody planned")?;
            turns.push(TurnCase {
                turn: row.turn,
                generation: Generation(row.generation),
                verdict: row.verdict.parse::<Verdict>()?,
                reason: row
                    .reason
                    .as_deref()
                    .map(str::parse::<TruncationReason>)
                    .transpose()?,
                ended_by: row
                    .ended_by
                    .as_deref()
                    .map(str::parse::<EndedBy>)
                    .transpose()?,
                declared: row.declared,
                waited: row.waited,
                settles: count(&self.deeds.settled, &id, row.turn),
                statements: self.statements(&id, row.turn)?,
                spoken: witness.spoken(&id, TurnNo(row.turn), newest),
                said: std::fs::read_to_string(records.join(&plan.record)).unwrap_or_default(),
                lines: plan.lines,
                midway: plan.midway,
            });
        }
        let name = id.to_string();
        let processes = self
            .processes
            .iter()
            .filter(|(_, line)| line.contains(&name));
        let directories = self.directories.iter().filter(|dir| dir.contains(&name));
        let left = processes.map(|(pid, line)| format!("process {pid}: {line}"));
        let left = left
            .chain(directories.map(|dir| format!("directory {dir}")))
            .collect();
        Ok(Case {
            phase: *self.phases.get(&id).context("a session is not stored")?,
            canceled: told.canceled,
            begun: told.begun,
            turns,
            stored,
            lives,
            hits: hits
                .iter()
                .filter(|hit| hit.session == id)
                .cloned()
                .collect(),
            left,
            views: told.views,
            replay,
            trouble: told.trouble,
            session: id,
        })
    }

    fn statements(&self, id: &SessionId, turn: u32) -> anyhow::Result<Vec<Statement>> {
        let of_turn = self
            .statements
            .iter()
            .filter(|row| row.session_id == *id && row.turn == turn);
        of_turn.map(|row| statement(&row.statement)).collect()
    }
}

/// The middle of a JWS; signatures are for `bex-api verify` to check.
fn statement(signed: &str) -> anyhow::Result<Statement> {
    let payload = signed.split('.').nth(1).context("a statement is signed")?;
    let payload: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload)?)?;
    let verdict = payload["verdict"]
        .as_str()
        .context("a statement has a verdict")?;
    let parts = payload["parts"]
        .as_u64()
        .context("a statement has a count")?;
    Ok(Statement {
        verdict: verdict.parse()?,
        parts: u32::try_from(parts)?,
    })
}

fn rows<T: DeserializeOwned>(fleet: &Fleet, select: &str) -> anyhow::Result<Vec<T>> {
    let lines = fleet.sql(&format!("SELECT row_to_json(r) FROM ({select}) r"))?;
    let lines = lines.lines().filter(|line| !line.is_empty());
    lines.map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn count(deeds: &BTreeMap<(String, String), u32>, id: &SessionId, number: u32) -> u32 {
    deeds
        .get(&(id.to_string(), number.to_string()))
        .copied()
        .unwrap_or(0)
}

impl Deeds {
    fn read(logs: &Path) -> Self {
        let mut deeds = Self::default();
        for log in witness::list(logs) {
            let text = std::fs::read(&log).unwrap_or_default();
            for line in String::from_utf8_lossy(&text).lines() {
                let (of, number) = if line.contains("\"turn settled\"") {
                    (&mut deeds.settled, "turn")
                } else if line.contains("\"sandbox removed\"") {
                    (&mut deeds.removed, "generation")
                } else {
                    continue;
                };
                let line: Value = serde_json::from_str(line).unwrap_or_default();
                let word = |name: &str| {
                    let value = &line["fields"][name];
                    value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned)
                };
                *of.entry((word("session"), word(number))).or_default() += 1;
            }
        }
        deeds
    }
}
