//! From before an event is posted until a viewer has read it, through api, store and gateway.

use std::time::{Duration, Instant};

use bex_proto::ticket::ATTACH_HEADER;
use bex_tests::bench::api::Api;
use bex_tests::bench::database::Database;
use bex_tests::bench::gateway::{Gateway, remote_stream_path};
use bex_tests::bench::remote::{TOKEN, datas, output_path, report};
use bex_tests::bench::report::{Figure, median};
use bex_tests::bench::sink;
use hdrhistogram::Histogram;
use tokio::time::{MissedTickBehavior, interval};

use crate::RUNS;

/// At 1 000 a second.
const EVENTS: usize = 5_000;
/// Posted at once, every [`PACE`].
const BATCH: usize = 10;
const PACE: Duration = Duration::from_millis(10);
/// The first second fills the connections.
const WARM: usize = 1_000;

pub async fn run(database: &Database, api: &Api, gateway: &Gateway) -> anyhow::Result<Figure> {
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let took = once(database, api, gateway).await?;
        p50.push(took.value_at_quantile(0.5) as f64 / 1e6);
        p99.push(took.value_at_quantile(0.99) as f64 / 1e6);
    }
    let (p50, p99) = (median(p50), median(p99));
    Ok(Figure {
        name: "remote event to viewer at 1 000 events/s",
        value: format!("p50 {p50:.1} ms, p99 {p99:.1} ms"),
        beside: "the moment before its report is sent, ten events each".into(),
        floor: "p99 ≤ 20 ms",
        holds: p99 <= 20.0,
    })
}

async fn once(database: &Database, api: &Api, gateway: &Gateway) -> anyhow::Result<Histogram<u64>> {
    let session = database.remote().await?;
    let mut machine = api.connect(TOKEN).await?;
    let (posts, datas) = (output_path(&session), datas(EVENTS as u64));
    let posting = async {
        let mut every = interval(PACE);
        every.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut sent = Vec::with_capacity(EVENTS);
        for datas in datas.chunks(BATCH) {
            every.tick().await;
            let report = report(sent.len() as u64, datas);
            sent.extend(std::iter::repeat_n(Instant::now(), BATCH));
            machine.call("POST", &posts, report).await?;
        }
        anyhow::Ok(sent)
    };
    let ticket = Gateway::remote_ticket(&session)?;
    let path = remote_stream_path(&session);
    let headers = [(ATTACH_HEADER, ticket.as_str())];
    let reading = sink::event_arrivals(gateway.attach, &path, &headers, EVENTS);
    let (sent, seen) = tokio::join!(posting, reading);
    let mut took = Histogram::<u64>::new(3)?;
    for (sent, seen) in sent?.iter().zip(&seen?).skip(WARM) {
        took.record(seen.saturating_duration_since(*sent).as_nanos() as u64)?;
    }
    Ok(took)
}
