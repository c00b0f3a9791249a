//! Seeds by the hundred. `SIM_SEED=n` plays one and shows what happened; `SIM_SEEDS=n` plays so many, `SIM_FIRST=n` from there.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::scenario::{Outcome, play};

/// Seeds of every run of the tests.
const SEEDS: u64 = 200;
/// Failing seeds whose trace is shown.
const SHOWN: usize = 1;
/// Lines of it.
const LINES: usize = 250;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable)
        .ok()
        .filter(|text| !text.is_empty())?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number")),
    )
}

/// Plays seeds on all processors; each run has a thread of its own and knows of no other.
fn play_all(seeds: std::ops::Range<u64>) -> Vec<(u64, Outcome)> {
    let (next, played) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = play(seed);
                    played.lock().expect("no panic").push((seed, outcome));
                }
            });
        }
    });
    let mut played = played.into_inner().expect("no panic");
    played.sort_by_key(|(seed, _)| *seed);
    played
}

#[test]
fn every_seed_comes_to_a_true_end() {
    if let Some(seed) = number("SIM_SEED") {
        let outcome = play(seed);
        eprintln!(
            "{}\nseed {seed}, digest {:016x}",
            outcome.trace.join("\n"),
            outcome.digest
        );
        assert!(
            outcome.violations.is_empty(),
            "seed {seed}: {:#?}",
            outcome.violations
        );
        return;
    }
    let first = number("SIM_FIRST").unwrap_or(0);
    let count = number("SIM_SEEDS").unwrap_or(SEEDS);
    let played = play_all(first..first + count);
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    let mut failed = Vec::new();
    for (seed, outcome) in &played {
        for end in &outcome.ends {
            *ends.entry(end.clone()).or_default() += 1;
        }
        if !outcome.violations.is_empty() {
            if failed.len() < SHOWN {
                let skipped = outcome.trace.len().saturating_sub(LINES);
                eprintln!("{}\n", outcome.trace[skipped..].join("\n"));
            }
            failed.push(format!(
                "SIM_SEED={seed} make sim: {:?}",
                outcome.violations
            ));
        }
    }
    eprintln!("{count} seeds from {first}: {ends:#?}");
    assert!(
        failed.is_empty(),
        "{} of {count} seeds failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
    if count >= SEEDS {
        // a simulation that never meets a fault proves nothing
        for end in [
            "complete ",
            "complete  healed",
            "truncated sandbox_lost",
            "truncated log_truncated",
            "truncated log_unreadable",
            "truncated session_quota",
            "truncated store_failed",
        ] {
            assert!(ends.contains_key(end), "no turn ended {end:?}");
        }
    }
}

#[test]
fn a_seed_is_played_again_exactly() {
    let seeds = 1000..1016;
    let digests = |played: Vec<(u64, Outcome)>| -> Vec<u64> {
        played.iter().map(|(_, outcome)| outcome.digest).collect()
    };
    let (first, again) = (digests(play_all(seeds.clone())), digests(play_all(seeds)));
    assert_eq!(first, again);
    let mut distinct = first.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), first.len(), "another seed is another run");
}
