//! Five thousand viewers of sessions that say nothing, beside as many subscribers of nchan.

use bex_tests::bench::database::Database;
use bex_tests::bench::gateway::{Gateway, Tee};
use bex_tests::bench::report::Figure;

use crate::nchan::Nchan;
use crate::process::{KIB, MIB, sockets};
use crate::stage::{Group, Stage, settled_memory, streams};

pub const VIEWERS: usize = 5000;
/// As many as a page with many tabs, or a team, has each.
pub const SESSIONS: usize = 100;
const LIMIT: f64 = 16.0 * KIB;

pub async fn run(database: &Database) -> anyhow::Result<Vec<Figure>> {
    let gateway = Gateway::start(database, Tee::On).await?;
    let mut stages = Vec::new();
    for _ in 0..SESSIONS {
        stages.push(Stage::set(database, &gateway, 0, 1).await?);
    }
    // the sources are the sessions', not the viewers'
    let mut viewers = Vec::new();
    for (n, stage) in stages.iter().enumerate() {
        viewers.push(stage.viewer(VIEWERS + n, Group::default()).await?);
    }
    streams(&gateway, SESSIONS).await?;
    let (before, kernel) = (settled_memory(&gateway).await?, sockets()?);
    let each = VIEWERS / SESSIONS;
    for (n, stage) in stages.iter().enumerate() {
        viewers.extend(stage.viewers(n * each, each, Group::default()).await?);
    }
    streams(&gateway, SESSIONS + VIEWERS).await?;
    let after = settled_memory(&gateway).await?;
    let kernel = sockets()?.saturating_sub(kernel);
    let ours = after.saturating_sub(before) as f64 / VIEWERS as f64;
    drop(viewers);
    streams(&gateway, 0).await?;
    drop(gateway);
    let theirs = match Nchan::start().await? {
        Some(nchan) => format!(
            "nchan: {:.1} KiB",
            nchan.measure(VIEWERS, SESSIONS).await? / KIB
        ),
        None => "nchan is not installed: libnginx-mod-nchan".into(),
    };
    Ok(vec![Figure {
        name: "5 000 idle viewers: memory of one",
        value: format!("{:.1} KiB", ours / KIB),
        beside: format!(
            "{theirs}; the kernel's socket buffers {:.0} MiB in all",
            kernel as f64 / MIB
        ),
        floor: "≤ 16 KiB",
        holds: ours <= LIMIT,
    }])
}
