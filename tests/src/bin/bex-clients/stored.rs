//! Stored transcripts, whole and damaged, read by every installed version of the SDK.

use std::time::{Duration, Instant};

use anyhow::Context;
use bex_tests::{Stack, StackOptions};

use crate::cases;
use crate::damage;
use crate::node::{Clients, Verdict};
use crate::seed;
use crate::speech;
use crate::transcript::Transcript;

/// Faults shown of one transcript.
const FAULTS_SHOWN: usize = 4;
/// The longest that everything takes beside the transcripts, and each of them on average: ten times what it does.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(2));
/// Deltas of the transcript that is timed.
const BULK_DELTAS: u32 = 20_000;

/// Has every client read every transcript; `false` when one was at fault with any.
///
/// # Errors
/// When the stack or the clients do not start or end well.
pub async fn run() -> anyhow::Result<bool> {
    let Some(cases) = cases::shared()? else {
        return Ok(true);
    };
    let transcripts = chosen(&cases)?;
    let count = u32::try_from(transcripts.len())?;
    tokio::time::timeout(PATIENCE.0 + PATIENCE.1 * count, read(&transcripts))
        .await
        .context("the clients do not end")?
}

async fn read(transcripts: &[Transcript]) -> anyhow::Result<bool> {
    let began = Instant::now();
    let stack = Stack::start(StackOptions::default()).await?;
    let sessions = seed::store(&stack, transcripts).await?;
    let mut clients = Clients::start().await?;
    let (mut runs, mut faulty) = (0, 0);
    for (transcript, session) in transcripts.iter().zip(&sessions) {
        let verdict = clients.read(&stack, transcript, session).await?;
        runs += verdict.runs;
        faulty += usize::from(!verdict.faults.is_empty());
        print(transcript, &verdict);
    }
    clients.end().await?;
    stack.stop().await?;
    println!(
        "clients: {} transcripts, {runs} streams read in {} s, {faulty} transcripts at fault",
        transcripts.len(),
        began.elapsed().as_secs()
    );
    Ok(faulty == 0)
}

fn print(transcript: &Transcript, verdict: &Verdict) {
    let Transcript { name, .. } = transcript;
    for note in &verdict.notes {
        println!("{name}: {note}");
    }
    if !verdict.faults.is_empty() {
        println!("FAULT {name} ({} in all)", verdict.faults.len());
    }
    for fault in verdict.faults.iter().take(FAULTS_SHOWN) {
        println!("      {fault}");
    }
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
