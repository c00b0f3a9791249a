//! `make crowd`: many viewers at once, each figure beside its floor, in one run.
//!
//! Arguments name sections; without any, all run. Exits 1 when a floor does not hold.

mod churn;
mod crowd;
mod edge;
mod idle;
mod nchan;
mod process;
mod reader;
mod reconnect;
mod stage;

use std::process::ExitCode;

use anyhow::Context;
use bex_tests::bench::database::Database;
use bex_tests::bench::report;
use clap::{Parser, ValueEnum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Files of 5 000 viewers, with room for everything else.
const FILES: u64 = 8_000;

/// Figures that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Section {
    Thousand,
    Hundred,
    Reconnect,
    Idle,
    Churn,
    Edge,
}

#[derive(Debug, Parser)]
struct Args {
    /// In their order; without any, all.
    sections: Vec<Section>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Args { sections: asked } = Args::parse();
    raise_file_limit()?;
    let mut figures = Vec::new();
    let wanted = |section: &&Section| asked.is_empty() || asked.contains(section);
    for section in Section::value_variants().iter().filter(wanted) {
        eprintln!("crowd: {section:?}");
        // a server of its own for each, so that none pays for another's garbage
        let database = Database::start().await?;
        figures.extend(match section {
            Section::Thousand => crowd::run(&database, &crowd::THOUSAND).await?,
            Section::Hundred => crowd::run(&database, &crowd::HUNDRED).await?,
            Section::Reconnect => reconnect::run(&database).await?,
            Section::Idle => idle::run(&database).await?,
            Section::Churn => churn::run(&database).await?,
            Section::Edge => edge::run(&database).await?,
        });
    }
    let note = "viewers, drivers, gateway and PostgreSQL share it; one run each";
    Ok(if report::print(&figures, note) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn raise_file_limit() -> anyhow::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    anyhow::ensure!(
        hard >= FILES,
        "{hard} open files are allowed; {FILES} are needed"
    );
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the file limit")
}
