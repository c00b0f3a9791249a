//! Remote sessions: reports in, events out to a viewer, and a session of a million events.

mod ingest;
mod large;
mod viewer;

use bex_tests::bench::api::Api;
use bex_tests::bench::database::Database;
use bex_tests::bench::gateway::{Gateway, Tee};
use bex_tests::bench::report::Figure;

pub async fn run(database: &Database) -> anyhow::Result<Vec<Figure>> {
    let api = Api::start(database).await?;
    let gateway = Gateway::start(database, Tee::On).await?;
    let mut figures = vec![ingest::run(database, &api).await?];
    figures.push(viewer::run(database, &api, &gateway).await?);
    figures.extend(large::run(database, &api, &gateway).await?);
    Ok(figures)
}
