//! `make crowd`: many viewers at once, each figure beside its floor, in one run.
//!
//! Arguments name sections (thousand, hundred, reconnect, idle, churn, edge); without any, all run. Exits 1 when a floor does not hold.

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
use nix::sys::resource::{Resource, getrlimit, setrlimit};

const SECTIONS: [&str; 6] = ["thousand", "hundred", "reconnect", "idle", "churn", "edge"];
/// Files of 5 000 viewers, with room for everything else.
const FILES: u64 = 8_000;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = asked.iter().find(|a| !SECTIONS.contains(&a.as_str())) {
        anyhow::bail!(
            "there is no section {unknown}; there are {}",
            SECTIONS.join(", ")
        );
    }
    raise_file_limit()?;
    let mut figures = Vec::new();
    for section in SECTIONS
        .into_iter()
        .filter(|s| asked.is_empty() || asked.iter().any(|a| a == s))
    {
        eprintln!("crowd: {section}");
        // a server of its own for each, so that none pays for another's garbage
        let database = Database::start().await?;
        figures.extend(match section {
            "thousand" => crowd::run(&database, &crowd::THOUSAND).await?,
            "hundred" => crowd::run(&database, &crowd::HUNDRED).await?,
            "reconnect" => reconnect::run(&database).await?,
            "idle" => idle::run(&database).await?,
            "churn" => churn::run(&database).await?,
            _ => edge::run(&database).await?,
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
