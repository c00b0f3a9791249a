//! What the gateway adds to a live part's way: the same part seen directly at the driver and through the gateway, tee on.

use bex_proto::ticket::ATTACH_HEADER;
use hdrhistogram::Histogram;
use tokio::sync::Notify;

use crate::RUNS;
use bex_tests::bench::database::Database;
use bex_tests::bench::fake_driver::{self, Paced, Script};
use bex_tests::bench::gateway::{Gateway, Tee, stream_path};
use bex_tests::bench::parts::{USUAL_LINES, parts};
use bex_tests::bench::report::{Figure, median};
use bex_tests::bench::sink;

/// At 1 000 a second.
const PARTS: u32 = 5_000;

pub async fn run(database: &Database) -> anyhow::Result<Vec<Figure>> {
    let gateway = Gateway::start(database, Tee::On).await?;
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let added = once(database, &gateway).await?;
        p50.push(added.value_at_quantile(0.5) as f64 / 1e6);
        p99.push(added.value_at_quantile(0.99) as f64 / 1e6);
    }
    let (p50, p99) = (median(p50), median(p99));
    Ok(vec![Figure {
        name: "live added latency at 1 000 parts/s, tee on",
        value: format!("p50 {p50:.2} ms, p99 {p99:.2} ms"),
        beside: "the same parts read at the driver".into(),
        floor: "p50 ≤ 0.5 ms, p99 ≤ 5 ms",
        holds: p50 <= 0.5 && p99 <= 5.0,
    }])
}

async fn once(database: &Database, gateway: &Gateway) -> anyhow::Result<Histogram<u64>> {
    let session = database.session(1).await?;
    let parts = parts(1, PARTS, USUAL_LINES);
    let paced = Paced::new(&parts);
    let driver = fake_driver::start(
        session.clone(),
        Gateway::driver_key(&session)?,
        Script::Paced(paced.clone()),
    )
    .await?;
    gateway.register(&session, driver)?;
    let ticket = Gateway::ticket(&session)?;
    let path = stream_path(&session);
    let headers = [(ATTACH_HEADER, ticket.as_str())];
    let go = Notify::new();
    let direct = sink::arrivals(driver, "/raw", &[], PARTS as usize);
    let through = sink::arrivals(gateway.attach, &path, &headers, PARTS as usize);
    go.notify_one();
    let (direct, through, ()) = tokio::join!(direct, through, paced.play(&go));
    let (direct, through) = (direct?, through?);
    let mut added = Histogram::<u64>::new(3)?;
    // the first second fills the connections
    for (direct, through) in direct.iter().zip(&through).skip(1000) {
        added.record(through.saturating_duration_since(*direct).as_nanos() as u64)?;
    }
    Ok(added)
}
