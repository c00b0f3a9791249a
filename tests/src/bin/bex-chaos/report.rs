//! What the run was, in one table; and what is wrong with whom.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::schedule::Kind;
use crate::verdict::Case;
use crate::witness;

/// Failed sessions that are told in full.
const TOLD: usize = 20;

/// Prints the table.
pub fn table(cases: &[Case], counts: &BTreeMap<Kind, u32>, own_ends: &[(String, i32)]) {
    let turns = cases.iter().flat_map(|case| &case.turns);
    let mut verdicts: BTreeMap<String, u32> = BTreeMap::new();
    let mut ended: BTreeMap<&str, u32> = BTreeMap::new();
    for turn in turns.clone() {
        let reason = turn.reason.map_or("", |reason| reason.as_str());
        *verdicts
            .entry(format!("{} {reason}", turn.verdict).trim().to_owned())
            .or_default() += 1;
        *ended
            .entry(turn.ended_by.map_or("nobody", |by| by.as_str()))
            .or_default() += 1;
    }
    let spoken = turns.clone().flat_map(|turn| &turn.spoken);
    let spoken: usize = spoken
        .map(|spoken| {
            spoken
                .end
                .as_ref()
                .map_or(spoken.parts.len(), |end| end.parts as usize)
        })
        .sum();
    let stored: usize = cases.iter().map(|case| case.stored.len()).sum();
    let healed = turns.clone().filter(|turn| turn.statements.len() > 1);
    let views: Vec<_> = cases.iter().flat_map(|case| &case.views).collect();
    let attaches: u32 = views.iter().map(|view| view.attaches).sum();
    let shown: usize = views.iter().map(|view| view.parts.len()).sum();
    println!("\n| what | how many |\n|---|---|");
    let row = |what: &str, n: usize| println!("| {what} | {n} |");
    row("sessions", cases.len());
    row("turns", turns.clone().count());
    for (verdict, n) in &verdicts {
        row(&format!("turns {verdict}"), *n as usize);
    }
    for (by, n) in &ended {
        row(&format!("turns ended by {by}"), *n as usize);
    }
    row("turns stated more than once", healed.count());
    row("parts spoken", spoken);
    row("parts stored", stored);
    row("viewers", views.len());
    row("streams they opened", attaches as usize);
    row("parts shown to them", shown);
    row("sandboxes", cases.iter().map(|case| case.lives.len()).sum());
    row("faults", counts.values().sum::<u32>() as usize);
    for (kind, n) in counts {
        row(&format!("fault: {}", kind.word()), *n as usize);
    }
    row("members that ended by themselves", own_ends.len());
}

/// Names the sessions that failed, and keeps the logs' lines about each beside the logs.
pub fn failures(
    failed: &[(&Case, Vec<String>)],
    logs: &[PathBuf],
    to: &Path,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for (n, (case, faults)) in failed.iter().enumerate() {
        let id = case.session.to_string();
        let mut kept = std::fs::File::create(to.join(format!("{id}.log")))?;
        for fault in faults {
            writeln!(kept, "{fault}")?;
        }
        writeln!(kept, "\n{case:#?}\n")?;
        for log in logs {
            let text = std::fs::read(log).unwrap_or_default();
            let name = log.file_name().unwrap_or_default().to_string_lossy();
            let in_its_sandbox = log.to_string_lossy().contains(&id);
            for line in String::from_utf8_lossy(&text).lines() {
                if in_its_sandbox || line.contains(&id) {
                    writeln!(kept, "{name}: {line}")?;
                }
            }
        }
        if n < TOLD {
            println!("{id} FAILED");
            faults.iter().for_each(|fault| println!("    {fault}"));
            let hits: Vec<_> = case.hits.iter().map(|hit| hit.kind.word()).collect();
            println!(
                "    hit by: {hits:?}; lines: {}",
                to.join(format!("{id}.log")).display()
            );
        }
    }
    Ok(())
}

/// Drivers are gone with their sandboxes; their words are not.
pub fn panics(logs: &[PathBuf]) -> Vec<String> {
    let mut found = Vec::new();
    for log in logs {
        let text = std::fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let panics = text.lines().filter(|line| line.contains("panicked at"));
        found.extend(panics.map(|line| format!("{}: {line}", log.display())));
    }
    found
}

/// All logs of a run.
pub fn logs(members: &Path, witness: &witness::Witness) -> Vec<PathBuf> {
    let mut logs = witness::list(members);
    logs.sort();
    logs.extend(witness.driver_logs());
    logs
}
