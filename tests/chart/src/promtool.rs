//! Prometheus' own judgement of queries and alerts.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use serde_json::{Value, json};

use crate::helm::variable;

/// Looks at every query: its syntax, the types of what is put together, and what annotations are made from.
///
/// # Errors
/// Prometheus' words.
pub fn check(rules: &[Value]) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let file = groups(dir.path(), rules)?;
    run(&["check", "rules", &file])
}

/// Plays series to the rules and compares what fires. `tests` are as `promtool test rules` takes them; a step is a minute.
///
/// # Errors
/// Prometheus' words, with what fired and what should have.
pub fn play(rules: &[Value], tests: &[Value]) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let rules = groups(dir.path(), rules)?;
    let file = dir.path().join("tests.json");
    let tests = json!({"rule_files": [rules], "evaluation_interval": "1m", "tests": tests});
    // a document of YAML, of which JSON is a part
    std::fs::write(&file, tests.to_string())?;
    run(&["test", "rules", &file.to_string_lossy()])
}

fn groups(dir: &Path, rules: &[Value]) -> anyhow::Result<String> {
    let file = dir.join("rules.json");
    let groups = json!({"groups": [{"name": "bex", "rules": rules}]});
    std::fs::write(&file, groups.to_string())?;
    Ok(file.to_string_lossy().into_owned())
}

fn run(args: &[&str]) -> anyhow::Result<()> {
    let done = Command::new(variable("BEX_PROMTOOL")?)
        .args(args)
        .output()?;
    let said =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{said}");
    Ok(())
}
