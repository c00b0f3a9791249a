//! `make clients`: stored transcripts, whole and damaged, read by the AI SDK's own clients through the real gateway.
//!
//! Environment: `BEX_CLIENTS_RANDOM` random transcripts (100), `BEX_CLIENTS_SEED` their seed (1), `BEX_CLIENTS_ONLY` a text
//! that the names of the transcripts to run must hold. Exits 1 when any client is at fault with any transcript.

mod cases;
mod damage;
mod node;
mod numbers;
mod seed;
mod speech;
mod transcript;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use bex_tests::{Stack, StackOptions};
use node::Clients;
use transcript::Transcript;

/// Faults shown of one transcript.
const FAULTS_SHOWN: usize = 4;
/// Deltas of the transcript that is timed.
const BULK_DELTAS: u32 = 20_000;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Some(cases) = cases::shared()? else {
        return Ok(ExitCode::SUCCESS);
    };
    let transcripts = chosen(&cases)?;
    let began = Instant::now();
    let stack = Stack::start(StackOptions::default()).await?;
    let sessions = seed::store(&stack, &transcripts).await?;
    let mut clients = Clients::start().await?;
    let (mut runs, mut faulty) = (0, 0);
    for (transcript, session) in transcripts.iter().zip(&sessions) {
        let verdict = clients.read(&stack, transcript, session).await?;
        runs += verdict.runs;
        for note in &verdict.notes {
            println!("{}: {note}", transcript.name);
        }
        if !verdict.faults.is_empty() {
            faulty += 1;
            println!(
                "FAULT {} ({} in all)",
                transcript.name,
                verdict.faults.len()
            );
            for fault in verdict.faults.iter().take(FAULTS_SHOWN) {
                println!("      {fault}");
            }
        }
    }
    clients.end().await?;
    stack.stop().await?;
    println!(
        "clients: {} transcripts, {runs} streams read in {} s, {faulty} transcripts at fault",
        transcripts.len(),
        began.elapsed().as_secs()
    );
    Ok(if faulty == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The case files as they are, one long answer, then random ones.
fn chosen(cases: &[Transcript]) -> anyhow::Result<Vec<Transcript>> {
    let random = number("BEX_CLIENTS_RANDOM", 100)?;
    let seed = number("BEX_CLIENTS_SEED", 1)?;
    let only = std::env::var("BEX_CLIENTS_ONLY").unwrap_or_default();
    let mut all = cases.to_vec();
    all.push(speech::bulk(BULK_DELTAS));
    all.extend((0..random).map(|n| damage::random(cases, seed, n)));
    all.retain(|transcript| transcript.name.contains(&only));
    Ok(all)
}

fn number(name: &str, default: u64) -> anyhow::Result<u64> {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .with_context(|| format!("{name} must be a number, not {text}")),
        Err(_) => Ok(default),
    }
}
