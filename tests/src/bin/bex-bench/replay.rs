//! Replay of a full session from the store, beside an ordered COPY out of the same rows; and the gateway's memory while it replays.

use std::time::Instant;

use futures::StreamExt;

use crate::RUNS;
use bex_tests::bench::database::Database;
use bex_tests::bench::gateway::{Gateway, Tee};
use bex_tests::bench::parts::{USUAL_LINES, parts_of_bytes, size};
use bex_tests::bench::report::{Figure, median};

const TURNS: u32 = 4;
/// Charges of 64 bytes a part leave this much of the 64 MiB quota for the parts themselves.
const TURN_BYTES: usize = 56 * 1024 * 1024 / TURNS as usize;
const MIB: f64 = 1024.0 * 1024.0;
/// What a replay may cost above idle.
const MEMORY: u64 = 24 * 1024 * 1024;

pub async fn run(database: &Database) -> anyhow::Result<Vec<Figure>> {
    let session = database.session(TURNS).await?;
    let mut bytes = 0;
    for turn in 1..=TURNS {
        let parts = parts_of_bytes(turn, TURN_BYTES, USUAL_LINES);
        bytes += size(&parts);
        database.fill(&session, turn, &parts).await?;
    }
    database.end(&session).await?;
    database
        .sql
        .batch_execute("VACUUM ANALYZE transcript_parts")
        .await?;

    let gateway = Gateway::start(database, Tee::On).await?;
    // one stream before the measuring, as any process has served one
    gateway.drink(&session, 1024 * 1024).await?;
    let (mut ours, mut copies, mut growth) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (idle, _) = gateway.memory()?;
        gateway.forget_peak()?;
        let sunk = gateway.drink(&session, bytes as u64).await?;
        growth.push(gateway.memory()?.1.saturating_sub(idle) as f64);
        ours.push(bytes as f64 / MIB / sunk.took.as_secs_f64());
        copies.push(copy_out(database, session.as_str()).await?);
    }
    let (ours, copies, growth) = (median(ours), median(copies), median(growth));
    Ok(vec![
        Figure {
            name: "replay of a full session (64 MiB with charges)",
            value: format!("{ours:.0} MiB/s"),
            beside: format!(
                "ordered COPY out: {copies:.0} MiB/s ({:.0} %)",
                100.0 * ours / copies
            ),
            floor: "≥ 70 % of COPY",
            holds: ours >= 0.7 * copies,
        },
        Figure {
            name: "gateway memory over that replay",
            value: format!("{:.1} MiB above idle", growth / MIB),
            beside: "its own memory before".into(),
            floor: "≤ 24 MiB",
            holds: growth <= MEMORY as f64,
        },
    ])
}

async fn copy_out(database: &Database, session: &str) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let rows = database
        .sql
        .copy_out(&format!("COPY (SELECT part FROM transcript_parts WHERE session_id = '{session}' ORDER BY turn, part_index) TO STDOUT"))
        .await?;
    let mut bytes = 0usize;
    let mut rows = std::pin::pin!(rows);
    while let Some(chunk) = rows.next().await {
        bytes += chunk?.len();
    }
    Ok(bytes as f64 / MIB / begun.elapsed().as_secs_f64())
}
