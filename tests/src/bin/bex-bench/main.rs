//! `make bench`: the product's figures, each beside its floor, in one run.
//!
//! Arguments name sections (append, harvest, idle, replay, live, splice); without any, all run. Exits 1 when a floor does not hold.

mod append;
mod harvest;
mod idle;
mod live;
mod parse;
mod replay;
mod splice;

use std::process::ExitCode;

use bex_tests::bench::database::Database;
use bex_tests::bench::report;

/// Of each measurement; the median is reported.
const RUNS: usize = 5;

const SECTIONS: [&str; 6] = ["append", "harvest", "idle", "replay", "live", "splice"];

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = asked.iter().find(|a| !SECTIONS.contains(&a.as_str())) {
        anyhow::bail!(
            "there is no section {unknown}; there are {}",
            SECTIONS.join(", ")
        );
    }
    let mut figures = Vec::new();
    for section in SECTIONS
        .into_iter()
        .filter(|s| asked.is_empty() || asked.iter().any(|a| a == s))
    {
        eprintln!("bench: {section}");
        // a server of its own for each, so that none pays for another's garbage
        let database = Database::start().await?;
        figures.extend(match section {
            "append" => append::run(&database).await?,
            "harvest" => harvest::run(&database).await?,
            "idle" => idle::run(&database).await?,
            "replay" => replay::run(&database).await?,
            "live" => live::run(&database).await?,
            _ => splice::run(&database).await?,
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
