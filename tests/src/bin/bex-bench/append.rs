//! Append of 32-part batches on one session, beside pgbench calling the same function with the same parts.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, ensure};
use bex_proto::limits::TEE_BATCH_PARTS;
use bex_proto::transcript::Part;

use crate::RUNS;
use bex_tests::bench::database::{Database, append};
use bex_tests::bench::parts::{SMALL_LINES, parts};
use bex_tests::bench::report::{Figure, median};

const PARTS: u32 = 80_000;
/// The rate is compared between windows of this many parts.
const WINDOW: usize = 10_000 / TEE_BATCH_PARTS * TEE_BATCH_PARTS;

pub async fn run(database: &Database) -> anyhow::Result<Vec<Figure>> {
    let parts = parts(1, PARTS, SMALL_LINES);
    stage_batches(database, &parts).await?;
    let (mut ours, mut theirs, mut flat) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (rate, first, last) = through_append(database, &parts).await?;
        ours.push(rate);
        flat.push(last / first);
        theirs.push(through_pgbench(database).await?);
    }
    let (ours, theirs, flat) = (median(ours), median(theirs), median(flat));
    Ok(vec![
        Figure {
            name: "append, 32-part batches, one session",
            value: format!("{ours:.0} parts/s"),
            beside: format!(
                "pgbench calling the same function: {theirs:.0} parts/s ({:.0} %)",
                100.0 * ours / theirs
            ),
            floor: "≥ 10 000 parts/s and ≥ 50 % of pgbench",
            holds: ours >= 10_000.0 && ours >= 0.5 * theirs,
        },
        Figure {
            name: "append, last 10 000 of 80 000 parts",
            value: format!("{:.0} % of the rate of the first", 100.0 * flat),
            beside: "the first 10 000 of the same session".into(),
            floor: "100 % ± 20 %",
            holds: (0.8..=1.2).contains(&flat),
        },
    ])
}

/// Parts a second over all, in the first window, and in the last.
async fn through_append(database: &Database, parts: &[Part]) -> anyhow::Result<(f64, f64, f64)> {
    let session = database.session(1).await?;
    let begun = Instant::now();
    let mut windows = Vec::new();
    for window in parts.chunks(WINDOW) {
        let window_begun = Instant::now();
        for batch in window.chunks(TEE_BATCH_PARTS) {
            append(&database.db, &session, 1, batch).await?;
        }
        if window.len() == WINDOW {
            windows.push(window.len() as f64 / window_begun.elapsed().as_secs_f64());
        }
    }
    let rate = parts.len() as f64 / begun.elapsed().as_secs_f64();
    Ok((rate, windows[0], windows[windows.len() - 1]))
}

/// The batches as rows, so that pgbench needs no input of its own.
async fn stage_batches(database: &Database, parts: &[Part]) -> anyhow::Result<()> {
    database
        .sql
        .batch_execute("CREATE TABLE bench_batches (n integer PRIMARY KEY, idx integer[], kind text[], cid text[], part text[])")
        .await?;
    let insert = database
        .sql
        .prepare("INSERT INTO bench_batches VALUES ($1, $2, $3, $4, $5)")
        .await?;
    for (n, batch) in parts.chunks(TEE_BATCH_PARTS).enumerate() {
        let idx: Vec<i32> = batch.iter().map(|p| p.id.index.0 as i32).collect();
        let kind: Vec<&str> = batch.iter().map(|p| p.head.kind.as_str()).collect();
        let cid: Vec<Option<&str>> = batch.iter().map(|p| p.head.chunk_id.as_deref()).collect();
        let part: Vec<&str> = batch
            .iter()
            .map(|p| std::str::from_utf8(&p.bytes))
            .collect::<Result<_, _>>()?;
        database
            .sql
            .execute(&insert, &[&(n as i32), &idx, &kind, &cid, &part])
            .await?;
    }
    Ok(())
}

async fn through_pgbench(database: &Database) -> anyhow::Result<f64> {
    let session = database.session(1).await?;
    let batches = PARTS as usize / TEE_BATCH_PARTS;
    let script = format!(
        "SELECT stored FROM bench_batches b, bex_append('{session}', 1, 1, b.idx, b.kind, b.cid, b.part, \
         array_fill(NULL::timestamptz, ARRAY[cardinality(b.idx)]), false, NULL, NULL, NULL) WHERE b.n = :i\n\\set i :i + 1\n"
    );
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), script)?;
    let pgbench = bex_testpg::Binaries::find()?.program("pgbench");
    let begun = Instant::now();
    let output = tokio::process::Command::new(pgbench)
        .args([
            "-n",
            "-M",
            "prepared",
            "-c",
            "1",
            "-D",
            "i=0",
            "-t",
            &batches.to_string(),
            "-f",
        ])
        .arg(file.path())
        .arg(&database.url)
        .stdin(Stdio::null())
        .output()
        .await
        .context("cannot run pgbench")?;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(
        output.status.success(),
        "pgbench: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let stored: i64 = database
        .sql
        .query_one(
            "SELECT parts FROM transcript_heads WHERE session_id = $1",
            &[&session.as_str()],
        )
        .await?
        .get(0);
    ensure!(stored == i64::from(PARTS), "pgbench stored {stored} parts");
    Ok(f64::from(PARTS) / seconds)
}
