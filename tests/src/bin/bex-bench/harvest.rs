//! Harvest of a full turn log the way the Completer does it (exec RPC, gateway, the driver's binary, parse, append), beside a
//! COPY of the same rows into the same indexed table.

use std::io::Write;
use std::time::Instant;

use anyhow::ensure;
use bex_api::completer::harvest::Source;
use bex_api::completer::log::{Expected, Form};
use bex_api::exec_client::{ExecClient, ExecTarget, Windows};
use bex_proto::driver::{
    TurnDigest, TurnEnd, TurnState, log_file, log_record, turn_end_record, write_part_record,
};
use bex_proto::launch::{CONTAINER, DRIVER_DIR, namespace_of, pod_of};
use bex_proto::ticket::KeyRing;
use bex_proto::transcript::Part;
use bex_proto::{SessionId, TurnNo};
use bytes::Bytes;
use futures::SinkExt;
use jiff::Timestamp;

use crate::{RUNS, parse};
use bex_tests::bench::database::{Database, GENERATION, WORKSPACE};
use bex_tests::bench::gateway::{EXEC_KEYS, Gateway, Tee};
use bex_tests::bench::parts::{USUAL_LINES, parts_of_bytes, size};
use bex_tests::bench::report::{Figure, median};

/// Parts of a log that is just not full: records add about 90 bytes to each.
const BYTES: usize = 13_500_000;
const MIB: f64 = 1024.0 * 1024.0;

pub async fn run(database: &Database) -> anyhow::Result<Vec<Figure>> {
    let parts = parts_of_bytes(1, BYTES, USUAL_LINES);
    let gateway = Gateway::start(database, Tee::On).await?;
    let (mut ours, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        ours.push(size(&parts) as f64 / MIB / harvest(database, &gateway, &parts).await?);
        copies.push(size(&parts) as f64 / MIB / copy_in(database, &parts).await?);
    }
    let (ours, copies) = (median(ours), median(copies));
    let end_to_end = Figure {
        name: "harvest of a 16 MiB log, end to end",
        value: format!("{ours:.0} MiB/s"),
        beside: format!(
            "COPY into the same indexed table: {copies:.0} MiB/s ({:.0} %)",
            100.0 * ours / copies
        ),
        floor: "≥ 45 % of COPY",
        holds: ours >= 0.45 * copies,
    };
    Ok(vec![parse::run(&parts)?, end_to_end])
}

/// Seconds of one harvest.
async fn harvest(database: &Database, gateway: &Gateway, parts: &[Part]) -> anyhow::Result<f64> {
    let session = database.session(1).await?;
    // only the registry is asked where the driver is; its files are read through its binary
    gateway.register(&session, "127.0.0.1:9".parse()?)?;
    let dir = gateway.sandbox_dir(&session).join(DRIVER_DIR);
    std::fs::create_dir_all(&dir)?;
    std::fs::File::create(dir.join(log_file(TurnNo(1))))?.write_all(&log(parts))?;
    let target = ExecTarget {
        workspace: WORKSPACE.parse()?,
        namespace: namespace_of(&WORKSPACE.parse()?),
        pod: pod_of(&session, GENERATION),
        session,
        generation: GENERATION,
        pod_uid: "uid".into(),
        container: CONTAINER.into(),
    };
    let rpc = ExecClient::new(
        &format!("http://{}", gateway.exec).parse()?,
        KeyRing::parse(EXEC_KEYS)?,
    );
    let windows = Windows::new(Default::default());
    let expected = Expected {
        turn: TurnNo(1),
        generation: GENERATION,
        form: Form::Current,
    };
    let source = Source {
        db: &database.db,
        rpc: &rpc,
        windows: &windows,
        target: &target,
        expected,
    };
    let begun = Instant::now();
    let harvest = source.harvest().await?;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(
        harvest.stored as usize == parts.len(),
        "{} of {} parts were stored",
        harvest.stored,
        parts.len()
    );
    Ok(seconds)
}

/// A whole turn's log, as the driver writes it.
pub fn log(parts: &[Part]) -> Vec<u8> {
    let (at, mut digest) = (Timestamp::now(), TurnDigest::default());
    let mut log = log_record(GENERATION, "bench", TurnNo(1)).into_bytes();
    for part in parts {
        write_part_record(&mut log, at, TurnNo(1), part.id.index, &part.bytes);
        digest.add(&part.bytes);
    }
    let end = TurnEnd {
        turn: TurnNo(1),
        parts: parts.len() as u32,
        bytes: size(parts) as u64,
        sha256: digest.hex(),
        state: TurnState::Succeeded,
        dropped: None,
    };
    log.extend_from_slice(turn_end_record(at, &end).as_bytes());
    log
}

/// Seconds of one COPY.
async fn copy_in(database: &Database, parts: &[Part]) -> anyhow::Result<f64> {
    let session = SessionId::random();
    let mut rows = Vec::new();
    for (seq, part) in parts.iter().enumerate() {
        let text = std::str::from_utf8(&part.bytes)?
            .replace('\\', "\\\\")
            .replace('\t', "\\t");
        let id = part.head.chunk_id.as_deref().unwrap_or("\\N");
        writeln!(
            rows,
            "{session}\t1\t{}\t{seq}\t{}\t{id}\t{text}\t2026-01-01\t2026-01-01",
            part.id.index,
            part.head.kind_column()
        )?;
    }
    let rows = Bytes::from(rows);
    let begun = Instant::now();
    let sink = database
        .sql
        .copy_in("COPY transcript_parts (session_id, turn, part_index, seq, kind, chunk_id, part, spoken_at, created_at) FROM STDIN")
        .await?;
    let mut sink = std::pin::pin!(sink);
    for at in (0..rows.len()).step_by(64 * 1024) {
        sink.send(rows.slice(at..rows.len().min(at + 64 * 1024)))
            .await?;
    }
    ensure!(
        sink.finish().await? == parts.len() as u64,
        "COPY stored another number of rows"
    );
    Ok(begun.elapsed().as_secs_f64())
}
