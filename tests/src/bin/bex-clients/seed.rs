//! Storing transcripts as those of ended sessions.

use std::fmt::Write as _;

use anyhow::bail;
use bex_proto::{Generation, SessionId, TurnNo, limits};
use bex_store::transcript::{Append, AppendOutcome, Marks};
use bex_store::{Db, DbConfig};
use bex_tests::stack::{Stack, WORKSPACE};

use crate::transcript::Transcript;

const GENERATION: Generation = Generation(1);
/// Sessions whose statements are given to psql at once, as an argument.
const AT_ONCE: usize = 50;

/// Stores each as a session of its own, in the order given.
///
/// # Errors
/// When anything is not stored as it should be.
pub async fn store(stack: &Stack, transcripts: &[Transcript]) -> anyhow::Result<Vec<SessionId>> {
    let db = Db::connect(&DbConfig::new(stack.database_url(), "bex-clients"))?;
    let sessions: Vec<_> = transcripts.iter().map(|_| SessionId::random()).collect();
    for (sessions, transcripts) in sessions.chunks(AT_ONCE).zip(transcripts.chunks(AT_ONCE)) {
        stack.sql(&rows(sessions, transcripts)?)?;
        for (session, transcript) in sessions.iter().zip(transcripts) {
            append(&db, session, transcript).await?;
        }
        stack.sql(&verdicts(sessions, transcripts)?)?;
    }
    Ok(sessions)
}

/// Sessions that have ended, with turns that still take parts.
fn rows(sessions: &[SessionId], transcripts: &[Transcript]) -> anyhow::Result<String> {
    let mut sql = String::new();
    for (session, transcript) in sessions.iter().zip(transcripts) {
        let turns = transcript.turns.len();
        writeln!(
            sql,
            "INSERT INTO sessions (id, workspace_id, kind, agent, created_by, phase, turns, prompt_bytes, generation)
                  VALUES ('{session}', '{WORKSPACE}', 'interactive', '{{\"profile\":\"clients\"}}', 'clients', 'completed', {turns}, 1, 1);
             INSERT INTO transcript_heads (session_id, byte_limit, part_limit) VALUES ('{session}', {}, {});
             INSERT INTO turns (session_id, turn, prompt, generation, delivery_mode, delivery_started_at, delivered_at, verdict, reason, settled_at)
                  SELECT '{session}', t, 'prompt ' || t, 1, 'fresh', now(), now(), 'truncated', 'sandbox_lost', now()
                    FROM generate_series(1, {turns}) t;",
            limits::SESSION_BYTES,
            limits::SESSION_PARTS,
        )?;
    }
    Ok(sql)
}

async fn append(db: &Db, session: &SessionId, transcript: &Transcript) -> anyhow::Result<()> {
    for (turn, spoken) in (1u32..).zip(&transcript.turns) {
        for parts in spoken.parts(turn).chunks(limits::HARVEST_BATCH_PARTS) {
            let batch = Append {
                session,
                turn: TurnNo(turn),
                generation: GENERATION,
                parts,
                marks: Marks::Clean,
                harvest: None,
            };
            match db.append(batch).await? {
                AppendOutcome::Stored(appended) if appended.stored as usize == parts.len() => {}
                other => bail!("{}: append answered {other:?}", transcript.name),
            }
        }
    }
    Ok(())
}

/// Whole turns are complete, the others stay truncated.
fn verdicts(sessions: &[SessionId], transcripts: &[Transcript]) -> anyhow::Result<String> {
    let mut sql = String::from("UPDATE turns SET rejudge = false WHERE rejudge;\n");
    for (session, transcript) in sessions.iter().zip(transcripts) {
        for (turn, spoken) in (1..).zip(&transcript.turns) {
            if spoken.is_whole() {
                writeln!(
                    sql,
                    "UPDATE turns SET verdict = 'complete', reason = NULL WHERE session_id = '{session}' AND turn = {turn};"
                )?;
            }
        }
    }
    Ok(sql)
}
