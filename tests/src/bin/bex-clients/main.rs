//! `make clients`: the AI SDK's own clients against the real gateway.
//!
//! Arguments name what to run, everything without one: `stored` (transcripts, whole and damaged, read by the clients of six
//! versions), `jsdom` and `chromium` (pages with `useChat` that watch living sessions). Exits 1 when anything is at fault.
//!
//! Environment of `stored`: `BEX_CLIENTS_RANDOM` random transcripts (100), `BEX_CLIENTS_SEED` their seed (1), `BEX_CLIENTS_ONLY` a
//! text that the names of the transcripts to run must hold.

mod cases;
mod damage;
mod node;
mod numbers;
mod pages;
mod seed;
mod speech;
mod stored;
mod transcript;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use pages::Place;

/// The AI SDK's clients against the real gateway.
#[derive(Parser)]
struct Args {
    /// What to run; everything without one.
    suites: Vec<Suite>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Suite {
    /// Stored transcripts.
    Stored,
    /// Pages in jsdom.
    Jsdom,
    /// Pages in Chromium.
    Chromium,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Args { suites } = Args::parse();
    let suites = if suites.is_empty() {
        Suite::value_variants()
    } else {
        &suites
    };
    let mut code = ExitCode::SUCCESS;
    for suite in suites {
        let went_well = match suite {
            Suite::Stored => stored::run().await?,
            Suite::Jsdom => pages::run(Place::Jsdom).await?,
            Suite::Chromium => pages::run(Place::Chromium).await?,
        };
        if !went_well {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}
