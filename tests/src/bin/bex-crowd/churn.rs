//! Viewers that come and go: nothing of them stays.

use std::time::Duration;

use anyhow::{Context, ensure};
use bex_tests::bench::database::Database;
use bex_tests::bench::gateway::{Gateway, Tee};
use bex_tests::bench::report::Figure;
use futures::{StreamExt, TryStreamExt, stream};

use crate::process::{MIB, files, metric, threads};
use crate::stage::{Group, Stage, settled_memory, streams};

const CYCLES: usize = 2000;
/// Before the measuring, as any process has served some.
const WARM: usize = 1000;
const AT_ONCE: usize = 20;
/// In the warming: more than the pool has connections, so that it has all it may have.
const WARM_AT_ONCE: usize = 100;
/// Longer than the runtime keeps threads that have nothing to do.
const REST: Duration = Duration::from_secs(12);
/// What a process holds is looked at so many times, with cycles between: its allocator keeps
/// now more, now less of what is free (by 3 % of the whole), even when it is told to give it back at
/// once, and its pool a connection more or less.
const LOOKS: usize = 8;
const BETWEEN: usize = 400;
const PAST: usize = 256 * 1024;
const SLACK: f64 = 0.05;

/// What a process holds, in the mean of [`LOOKS`].
#[derive(Default)]
struct Held {
    memory: f64,
    files: f64,
    threads: f64,
    tasks: f64,
    connections: f64,
}

pub async fn run(database: &Database) -> anyhow::Result<Vec<Figure>> {
    // what is free is given back at once, so that what is seen is what is in use
    let give_back = [("MIMALLOC_PURGE_DELAY", "0")];
    let gateway = Gateway::start_with(database, Tee::On, &give_back).await?;
    let stage = Stage::set(database, &gateway, PAST, 8).await?;
    cycles(&stage, WARM, WARM_AT_ONCE).await?;
    let before = Held::by(database, &gateway, &stage).await?;
    cycles(&stage, CYCLES, AT_ONCE).await?;
    let after = Held::by(database, &gateway, &stage).await?;
    ensure!(stage.sources() == 1, "{} sources", stage.sources());
    let row = |name, before: f64, after: f64, unit: f64, suffix: &str| Figure {
        name,
        value: format!("{:.1}{suffix}", after / unit),
        beside: format!("before: {:.1}{suffix}", before / unit),
        floor: "≤ + 5 %",
        // the pool gives idle connections back, so that there may be fewer
        holds: after <= before * (1.0 + SLACK),
    };
    Ok(vec![
        row(
            "2 000 comings and goings: memory",
            before.memory,
            after.memory,
            MIB,
            " MiB",
        ),
        row("… open files", before.files, after.files, 1.0, ""),
        row("… threads", before.threads, after.threads, 1.0, ""),
        row(
            "… database connections",
            before.connections,
            after.connections,
            1.0,
            "",
        ),
        row("… tasks", before.tasks, after.tasks, 1.0, ""),
    ])
}

/// Each viewer reads what is there, and leaves in the middle of its stream.
async fn cycles(stage: &Stage<'_>, count: usize, at_once: usize) -> anyhow::Result<()> {
    let cycle = async |n: usize| {
        let mut viewer = stage.viewer(n, Group::default()).await?;
        // some leave before they have read anything, some with bytes unread, some after all of it
        match n % 3 {
            0 => {}
            1 => drop(viewer.read(4096).await?),
            _ => viewer.until(|reader| reader.is_live).await?,
        }
        anyhow::Ok(())
    };
    stream::iter((0..count).map(cycle))
        .buffer_unordered(at_once)
        .try_collect()
        .await
}

impl Held {
    async fn by(database: &Database, gateway: &Gateway, stage: &Stage<'_>) -> anyhow::Result<Self> {
        let mut held = Self::default();
        for _ in 0..LOOKS {
            cycles(stage, BETWEEN, AT_ONCE).await?;
            streams(gateway, 0).await?;
            tokio::time::sleep(REST).await;
            let tasks = metric(gateway.admin, "bex_gateway_tasks").await?;
            let tasks = tasks.context("the gateway has no metric bex_gateway_tasks")?;
            let share = |value: f64| value / LOOKS as f64;
            held.memory += share(settled_memory(gateway).await? as f64);
            held.files += share(files(gateway.pid())? as f64);
            held.threads += share(threads(gateway.pid())? as f64);
            held.tasks += share(tasks);
            held.connections += share(connections(database).await?);
        }
        Ok(held)
    }
}

/// Clients of the database.
async fn connections(database: &Database) -> anyhow::Result<f64> {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    let connections: i64 = database.sql.query_one(count, &[]).await?.get(0);
    Ok(connections as f64)
}
