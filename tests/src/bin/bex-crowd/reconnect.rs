//! A thousand viewers that reconnect in one moment, each without a cursor.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use bex_proto::limits;
use bex_tests::bench::database::Database;
use bex_tests::bench::gateway::{Gateway, Tee};
use bex_tests::bench::report::Figure;
use futures::future::try_join_all;
use tokio::task::AbortHandle;

use crate::process::{KIB, MIB, metric};
use crate::stage::{Group, Stage, settled_memory, streams};

const VIEWERS: usize = 1000;
const PAST: usize = 2 * 1024 * 1024;
/// Each viewer's own beside the shared budget.
const LIMIT: f64 = limits::REPLAY_BUDGET_BYTES as f64 + VIEWERS as f64 * 64.0 * KIB;

pub async fn run(database: &Database) -> anyhow::Result<Vec<Figure>> {
    let gateway = Gateway::start(database, Tee::On).await?;
    let stage = Stage::set(database, &gateway, PAST, 1).await?;
    let mut first = stage.viewer(0, Group::default()).await?;
    first.until(|reader| reader.due().turn.0 > 1).await?;
    drop(first);
    streams(&gateway, 0).await?;
    let idle = settled_memory(&gateway).await? as f64;
    gateway.forget_peak()?;

    let budget = Budget::watch(gateway.admin);
    let begun = Instant::now();
    let storm = try_join_all((0..VIEWERS).map(async |n| {
        let mut viewer = stage.viewer(n, Group::default()).await?;
        viewer.until(|reader| reader.due().turn.0 > 1).await?;
        ensure!(
            viewer.due().turn.0 > 1,
            "{:?} at {}",
            viewer.ended,
            viewer.due()
        );
        anyhow::Ok(viewer)
    }));
    let viewers = storm.await?;
    let took = begun.elapsed();
    let grown = gateway.memory()?.1 as f64 - idle;
    let most = budget.most();
    drop(viewers);
    Ok(vec![Figure {
        name: "1 000 viewers reconnect at once: peak memory",
        value: format!("{:.0} MiB above idle", grown / MIB),
        beside: format!(
            "replay budget in use {:.0} MiB at most; all had {} MiB each after {:.1} s",
            most / MIB,
            PAST / 1024 / 1024,
            took.as_secs_f64()
        ),
        floor: "≤ 64 MiB budget + 64 KiB a viewer",
        holds: grown <= LIMIT && most <= limits::REPLAY_BUDGET_BYTES as f64,
    }])
}

/// Bytes of the replay budget in use, looked at all the time.
struct Budget {
    most: Arc<AtomicU64>,
    looking: AbortHandle,
}

impl Budget {
    /// Begins to look.
    fn watch(admin: SocketAddr) -> Self {
        const LOOK: Duration = Duration::from_millis(50);
        let most = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&most);
        let looking = tokio::spawn(async move {
            let mut beat = tokio::time::interval(LOOK);
            loop {
                beat.tick().await;
                let free = metric(admin, "bex_gateway_replay_free_bytes").await;
                if let Ok(Some(free)) = free {
                    let used = limits::REPLAY_BUDGET_BYTES as f64 - free;
                    seen.fetch_max(used as u64, Ordering::Relaxed);
                }
            }
        });
        Self {
            most,
            looking: looking.abort_handle(),
        }
    }

    /// The most that was seen.
    fn most(&self) -> f64 {
        self.most.load(Ordering::Relaxed) as f64
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.looking.abort();
    }
}
