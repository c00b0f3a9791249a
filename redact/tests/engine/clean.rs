//! Nothing is found where nothing is.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::planted::shared;
use crate::{clean, gate, redactor, refusal};

#[test]
fn recorded_streams() {
    let Some(dir) = shared("data/ui-streams") else {
        return;
    };
    let gate = gate();
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        // the one address of a person in the recordings is not there by mistake
        let text = std::fs::read_to_string(&path)
            .unwrap()
            .replace("mickey@disney.com", "mickey");
        let parts: String = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|part| format!("{part}\n"))
            .collect();
        if parts.is_empty() {
            continue;
        }
        seen += 1;
        let out = clean(&redactor(), &parts);
        let changed = parts
            .lines()
            .zip(out.lines())
            .find(|(a, b)| a != b)
            .map(|(_, after)| around_token(after));
        assert!(changed.is_none(), "{}: {changed:?}", path.display());
        assert_eq!(
            refusal(gate, &parts),
            Vec::<String>::new(),
            "{}",
            path.display()
        );
    }
    assert!(seen >= 16, "{seen}");
}

/// A token and what stands around it.
fn around_token(text: &str) -> &str {
    let at = text.find("[redacted:").unwrap_or(0);
    &text[text.floor_char_boundary(at.saturating_sub(80))
        ..text.floor_char_boundary((at + 80).min(text.len()))]
}

#[test]
fn a_made_up_driver_log() {
    let Some(script) = shared("cases/driver_log.py") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let made = Command::new("python3")
        .arg(script)
        .arg(&log)
        .arg("1500000")
        .status()
        .expect("python3 runs");
    assert!(made.success());
    let text = std::fs::read_to_string(log).unwrap();
    assert!(clean(&redactor(), &text) == text);
    assert_eq!(refusal(gate(), &text), Vec::<String>::new());
}

/// Secrets that tests of this repository make up on purpose, one a line.
const MADE_UP: &str = include_str!("../fixtures/made-up.txt");

#[test]
fn the_source_of_this_repository() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let mut found = Vec::new();
    let mut files = Vec::new();
    sources(root, &mut files);
    assert!(files.len() > 200);
    for path in files {
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let is_made_up = |line: &&str| MADE_UP.lines().any(|secret| line.contains(secret));
        let text: String = text
            .split_inclusive('\n')
            .filter(|line| !is_made_up(line))
            .collect();
        let out = clean(&redactor(), &text);
        for (at, (before, after)) in text.lines().zip(out.lines()).enumerate() {
            if before != after {
                found.push(format!("{name}:{}: {before}\n    {after}", at + 1));
            }
        }
        let refused = refusal(gate(), &text);
        if !refused.is_empty() {
            found.push(format!("{name}: the gate: {refused:?}"));
        }
    }
    assert!(
        found.is_empty(),
        "{}\n(what is made up belongs into redact/tests/fixtures/made-up.txt)",
        found.join("\n")
    );
}

/// Everything but this crate, whose samples are secrets, and what is built.
fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.')
                && !["target", "node_modules", "redact", "dist"].contains(&&*name)
            {
                sources(&path, out);
            }
        } else if [
            "rs", "toml", "yaml", "yml", "md", "json", "py", "sh", "ts", "js", "mjs", "lock",
            "sql", "tpl",
        ]
        .iter()
        .any(|e| name.ends_with(&format!(".{e}")))
        {
            out.push(path);
        }
    }
}
