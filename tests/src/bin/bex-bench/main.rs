//! `make bench`: the product's figures, each beside its floor, in one run.
//!
//! Arguments name sections; without any, all run. Exits 1 when a floor does not hold.

mod append;
mod harvest;
mod idle;
mod live;
mod parse;
mod remote;
mod replay;
mod splice;

use std::process::ExitCode;

use bex_tests::bench::database::Database;
use bex_tests::bench::report;
use clap::{Parser, ValueEnum};

/// Of each measurement; the median is reported.
const RUNS: usize = 5;

/// Figures that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Section {
    Append,
    Harvest,
    Idle,
    Replay,
    Live,
    Splice,
    Remote,
}

#[derive(Debug, Parser)]
struct Args {
    /// In their order; without any, all.
    sections: Vec<Section>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Args { sections: asked } = Args::parse();
    let mut figures = Vec::new();
    let wanted = |section: &&Section| asked.is_empty() || asked.contains(section);
    for section in Section::value_variants().iter().filter(wanted) {
        eprintln!("bench: {section:?}");
        // a server of its own for each, so that none pays for another's garbage
        let database = Database::start().await?;
        figures.extend(match section {
            Section::Append => append::run(&database).await?,
            Section::Harvest => harvest::run(&database).await?,
            Section::Idle => idle::run(&database).await?,
            Section::Replay => replay::run(&database).await?,
            Section::Live => live::run(&database).await?,
            Section::Splice => splice::run(&database).await?,
            Section::Remote => remote::run(&database).await?,
        });
    }
    Ok(
        if report::print(&figures, &format!("medians of {RUNS} runs")) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        },
    )
}
