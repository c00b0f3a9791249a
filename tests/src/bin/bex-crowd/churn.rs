//! Viewers that come and go: nothing of them stays.

use std::time::Duration;

use anyhow::ensure;
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
const PAST: usize = 256 * 1024;
const SLACK: f64 = 0.05;

/// What a process holds.
struct Held {
    memory: f64,
    files: f64,
    threads: f64,
    tasks: Option<f64>,
    connections: f64,
}

pub async fn run(database: &Database) -> anyhow::Result<Vec<Figure>> {
    let gateway = Gateway::start(database, Tee::On).await?;
    let stage = Stage::set(database, &gateway, PAST, 8).await?;
    cycles(&stage, WARM, WARM_AT_ONCE).await?;
    let before = Held::by(database, &gateway).await?;
    cycles(&stage, CYCLES, AT_ONCE).await?;
    let after = Held::by(database, &gateway).await?;
    ensure!(stage.sources() == 1, "{} sources", stage.sources());
    let row = |name, before: f64, after: f64, unit: f64, suffix: &str| Figure {
        name,
        value: format!("{:.1}{suffix}", after / unit),
        beside: format!("before: {:.1}{suffix}", before / unit),
        floor: "≤ + 5 %",
        // the pool gives idle connections back, so that there may be fewer
        holds: after <= before * (1.0 + SLACK),
    };
    let mut figures = vec![
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
    ];
    figures.push(match (before.tasks, after.tasks) {
        (Some(before), Some(after)) => row("… tasks", before, after, 1.0, ""),
        _ => Figure {
            name: "… tasks",
            value: "unknown".into(),
            beside: "the gateway has no metric bex_gateway_tasks".into(),
            floor: "≤ + 5 %",
            holds: false,
        },
    });
    Ok(figures)
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
    async fn by(database: &Database, gateway: &Gateway) -> anyhow::Result<Self> {
        streams(gateway, 0).await?;
        tokio::time::sleep(REST).await;
        let memory = settled_memory(gateway).await? as f64;
        let count = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
        let connections: i64 = database.sql.query_one(count, &[]).await?.get(0);
        Ok(Self {
            memory,
            files: files(gateway.pid())? as f64,
            threads: threads(gateway.pid())? as f64,
            tasks: metric(gateway.admin, "bex_gateway_tasks").await?,
            connections: connections as f64,
        })
    }
}
