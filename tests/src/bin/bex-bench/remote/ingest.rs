//! Reports of a thousand events over one connection, turns built from them meanwhile, beside COPY of the same rows in the same batches.

use std::fmt::Write;
use std::time::Instant;

use anyhow::ensure;
use bex_proto::remote::OutputAccepted;
use bex_tests::bench::api::Api;
use bex_tests::bench::database::Database;
use bex_tests::bench::remote::{TOKEN, datas, output_path, report};
use bex_tests::bench::report::{Figure, median};
use bytes::Bytes;
use futures::SinkExt;

use crate::RUNS;

const EVENTS: u64 = 100_000;
const BATCH: usize = 1_000;
/// A table like the events' own, with the same indexes.
const TABLE: &str = "bench_events";

pub async fn run(database: &Database, api: &Api) -> anyhow::Result<Figure> {
    let table = format!("CREATE TABLE {TABLE} (LIKE remote_events INCLUDING ALL)");
    database.sql.batch_execute(&table).await?;
    let datas = datas(EVENTS);
    let bytes: usize = datas.iter().map(String::len).sum();
    let reports: Vec<Bytes> = datas
        .chunks(BATCH)
        .zip((0u64..).step_by(BATCH))
        .map(|(datas, from)| report(from, datas))
        .collect();
    let (mut ours, mut read, mut copies, mut whole) = (vec![], vec![], vec![], vec![]);
    for run in 0..RUNS {
        let (rate, and_read) = through_http(database, api, &reports).await?;
        ours.push(rate);
        read.push(and_read);
        copies.push(copy(database, &format!("a{run}"), datas.chunks(BATCH)).await?);
        whole.push(copy(database, &format!("b{run}"), std::iter::once(&datas[..])).await?);
    }
    let (ours, read) = (median(ours), median(read));
    let (copies, whole) = (median(copies), median(whole));
    Ok(Figure {
        name: "remote ingest, 1 000-event reports, one session",
        value: format!(
            "{ours:.0} events/s of {} bytes ({read:.0} with the last turn built)",
            bytes / EVENTS as usize
        ),
        beside: format!(
            "COPY of these rows, a commit a batch: {copies:.0} rows/s ({:.0} %); in one: {whole:.0} ({:.0} %)",
            100.0 * ours / copies,
            100.0 * ours / whole
        ),
        floor: "≥ 20 000 events/s and ≥ 45 % of COPY by batches",
        holds: ours >= 20_000.0 && ours >= 0.45 * copies,
    })
}

/// Events a second until the last was acknowledged, and until the last turn was built.
async fn through_http(
    database: &Database,
    api: &Api,
    reports: &[Bytes],
) -> anyhow::Result<(f64, f64)> {
    let session = database.remote().await?;
    let path = output_path(&session);
    let mut machine = api.connect(TOKEN).await?;
    let begun = Instant::now();
    let mut next = 0;
    for report in reports {
        let answer = machine.call("POST", &path, report.clone()).await?;
        next = serde_json::from_slice::<OutputAccepted>(&answer)?.next_event_index;
    }
    let stored = begun.elapsed().as_secs_f64();
    ensure!(next == EVENTS, "{next} of {EVENTS} events were stored");
    database.remote_is_read(&session).await?;
    let read = begun.elapsed().as_secs_f64();
    Ok((EVENTS as f64 / stored, EVENTS as f64 / read))
}

/// Rows a second, each batch a COPY of its own.
async fn copy(
    database: &Database,
    session: &str,
    batches: impl Iterator<Item = &[String]>,
) -> anyhow::Result<f64> {
    let mut index = 0;
    let batches: Vec<Bytes> = batches
        .map(|batch| {
            let mut rows = String::new();
            for data in batch {
                let data = data.replace('\\', "\\\\").replace('\n', "\\n");
                let _ = writeln!(
                    rows,
                    "{session}\t{index}\tstdout\t{data}\tf\t\\N\t2026-12-01"
                );
                index += 1;
            }
            Bytes::from(rows)
        })
        .collect();
    let statement = format!(
        "COPY {TABLE} (session_id, event_index, stream, data, complete, spoken_at, created_at) FROM STDIN"
    );
    let begun = Instant::now();
    for batch in batches {
        let sink = database.sql.copy_in(&statement).await?;
        let mut sink = std::pin::pin!(sink);
        for at in (0..batch.len()).step_by(64 * 1024) {
            sink.send(batch.slice(at..batch.len().min(at + 64 * 1024)))
                .await?;
        }
        sink.finish().await?;
    }
    Ok(EVENTS as f64 / begun.elapsed().as_secs_f64())
}
