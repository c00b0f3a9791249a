//! The first event through Debian's nginx with its default configuration, whatever the browser says it can unpack.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use bex_tests::bench::database::Database;
use bex_tests::bench::gateway::{Gateway, Tee, stream_path};
use bex_tests::bench::report::Figure;
use bex_tests::edge::{Edge, is_installed};

use crate::reader::{Reader, Request};
use crate::stage::Stage;

const ENCODINGS: [&str; 4] = ["identity", "gzip", "br", "zstd"];
const ROUNDS: usize = 5;
const LIMIT: Duration = Duration::from_millis(200);

pub async fn run(database: &Database) -> anyhow::Result<Vec<Figure>> {
    let name = "first event through Debian's nginx";
    if !is_installed() {
        return Ok(vec![Figure {
            name,
            value: "nginx is not installed".into(),
            beside: String::new(),
            floor: "≤ 200 ms",
            holds: false,
        }]);
    }
    let gateway = Gateway::start(database, Tee::On).await?;
    let logs = tempfile::tempdir()?;
    let edge = Edge::start(gateway.attach, logs.path()).await?;
    // one stream before the measuring, as any process has served one
    once(database, &gateway, &edge, "identity").await?;
    let mut worst: Vec<(&str, Duration)> = Vec::new();
    for encoding in ENCODINGS {
        let mut longest = Duration::ZERO;
        for _ in 0..ROUNDS {
            longest = longest.max(once(database, &gateway, &edge, encoding).await?);
        }
        worst.push((encoding, longest));
    }
    let longest = worst.iter().map(|(_, took)| *took).max();
    let each = worst
        .iter()
        .map(|(encoding, took)| format!("{encoding} {:.1} ms", took.as_secs_f64() * 1000.0));
    Ok(vec![Figure {
        name,
        value: each.collect::<Vec<_>>().join(", "),
        beside: format!("the longest of {ROUNDS} each, from the moment the driver has it"),
        floor: "≤ 200 ms",
        holds: longest.is_some_and(|longest| longest <= LIMIT),
    }])
}

/// From the driver's first word to its arrival; the second one is not spoken before.
async fn once(
    database: &Database,
    gateway: &Gateway,
    edge: &Edge,
    encoding: &str,
) -> anyhow::Result<Duration> {
    let stage = Stage::set(database, gateway, 0, 2).await?;
    let ticket = Gateway::ticket_of(&stage.session, "edge")?;
    let request = Request {
        to: edge.address,
        path: &stream_path(&stage.session),
        ticket: &ticket,
        cursor: None,
        encoding,
        window: None,
    };
    let mut reader = Reader::open(request, Arc::clone(&stage.expected)).await?;
    reader.until(|reader| reader.is_live).await?;
    stage.speak(1, 1000).await;
    reader.until(|reader| !reader.lateness.is_empty()).await?;
    let took = *reader.lateness.first().context("nothing came")?;
    stage.speak(1, 1000).await;
    reader.until(Reader::is_whole).await?;
    ensure!(reader.is_whole(), "it ends at {}", reader.due());
    Ok(took)
}
