//! Every case is found wherever it stands, and nothing of it is left.

use std::path::{Path, PathBuf};
use std::process::Command;

use bex_redact::Gate;

use crate::cases::{self, Case};
use crate::{clean, gate, redactor, refusal};

/// Where else a secret may begin than at the start: around the sizes of buffers.
const OFFSETS: [usize; 5] = [
    10 * 1024 - 1,
    64 * 1024 - 40,
    64 * 1024 + 40,
    1024 * 1024 - 40,
    1024 * 1024 + 40,
];

pub fn assert_gone(gate: &Gate, name: &str, gone: &[String], text: &str) {
    let out = clean(&redactor(), text);
    let left = gone.iter().find(|gone| out.contains(*gone));
    assert!(
        left.is_none(),
        "{name}: {left:?} is left in {}",
        &out[..out.len().min(4000)]
    );
    assert!(out.contains("[redacted:"), "{name}: {out}");
    assert_eq!(
        refusal(gate, &out),
        Vec::<String>::new(),
        "{name}: {}",
        &out[..out.len().min(4000)]
    );
    let same_lines = text.lines().count() == out.lines().count();
    for (before, after) in text.lines().zip(out.lines()).filter(|_| same_lines) {
        let is_json = |t: &str| serde_json::from_str::<serde::de::IgnoredAny>(t).is_ok();
        assert_eq!(is_json(before), is_json(after), "{name}: {after}");
    }
    assert_eq!(clean(&redactor(), &out), out, "{name}: not the same again");
}

#[test]
fn every_case_alone() {
    let gate = gate();
    for Case { name, text, gone } in cases::all() {
        assert_gone(gate, name, &gone, &text);
        // the gate finds it by itself
        assert_ne!(refusal(gate, &text), Vec::<String>::new(), "{name}");
    }
    assert_eq!(clean(&redactor(), &cases::control()), cases::control());
    assert_eq!(refusal(gate, &cases::control()), Vec::<String>::new());
}

#[test]
fn every_case_at_offsets() {
    let gate = gate();
    let filler = cases::record(9, &cases::output("the quick brown fox jumps over it"));
    for Case { name, text, gone } in cases::all() {
        for offset in OFFSETS {
            // lines before it, then one that fills up to the offset
            let mut before = filler.repeat(offset / filler.len() - 1);
            let rest = offset - before.len() - cases::record(9, &cases::output("")).len();
            before += &cases::record(9, &cases::output(&"a b ".repeat(rest)[..rest]));
            assert_eq!(before.len(), offset);
            let text = format!("{before}{text}{filler}");
            if offset < 1024 * 1024 {
                assert_gone(gate, name, &gone, &text);
                continue;
            }
            // what comes out the same again is seen above; these are long
            let out = clean(&redactor(), &text);
            assert_eq!(gone.iter().find(|gone| out.contains(*gone)), None, "{name}");
            assert!(out.contains("[redacted:"), "{name}");
            assert_eq!(refusal(gate, &out), Vec::<String>::new(), "{name}");
        }
    }
}

#[test]
fn secrets_within_one_long_text() {
    let gate = gate();
    for filler in ["x", "x y ", "ab\n"] {
        for offset in [
            0,
            10 * 1024 - 1,
            64 * 1024 - 40,
            64 * 1024 + 40,
            1024 * 1024 - 40,
            1024 * 1024 + 40,
        ] {
            let ahead = filler.repeat(offset / filler.len() + 1);
            let text = format!("{}{} rest", &ahead[..offset], cases::PAT);
            assert_gone(gate, "long text", &[cases::PAT.to_owned()], &text);
            if offset < 1024 * 1024 {
                assert_gone(
                    gate,
                    "long part",
                    &[cases::PAT.to_owned()],
                    &cases::record(0, &cases::output(&text)),
                );
            }
        }
    }
}

#[test]
fn every_string_of_an_envelope() {
    let gate = gate();
    let envelope: serde_json::Value =
        serde_json::from_str(include_str!("../fixtures/envelope.json")).unwrap();
    assert_eq!(
        clean(&redactor(), &envelope.to_string()),
        envelope.to_string()
    );
    assert_eq!(refusal(gate, &envelope.to_string()), Vec::<String>::new());
    let mut pointers = Vec::new();
    strings(&envelope, String::new(), &mut pointers);
    assert!(pointers.len() > 50);
    for pointer in pointers {
        for secret in [cases::PAT, "ada.lovelace@acme.io"] {
            let mut planted = envelope.clone();
            *planted.pointer_mut(&pointer).unwrap() = format!("so {secret} it is").into();
            assert_gone(gate, &pointer, &[secret.to_owned()], &planted.to_string());
        }
    }
}

fn strings(value: &serde_json::Value, at: String, out: &mut Vec<String>) {
    match value {
        serde_json::Value::String(_) => out.push(at),
        serde_json::Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(n, item)| strings(item, format!("{at}/{n}"), out)),
        serde_json::Value::Object(fields) => fields
            .iter()
            .for_each(|(name, field)| strings(field, format!("{at}/{name}"), out)),
        _ => {}
    }
}

/// A shared file, in any parent of this crate.
pub fn shared(name: &str) -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|dir| dir.join("shared").join(name))
        .find(|path| path.exists());
    let in_ci = std::env::var("CI").is_ok_and(|v| v == "true");
    assert!(
        found.is_some() || !in_ci,
        "shared/{name} is missing, and in CI nothing is skipped"
    );
    if found.is_none() {
        eprintln!("skipped: there is no shared/{name} beside this repository");
    }
    found
}

#[test]
fn the_shared_cases() {
    let Some(script) = shared("cases/secrets/generate.py") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new("python3")
        .arg(script)
        .arg(dir.path())
        .status()
        .expect("python3 runs");
    assert!(made.success());
    let gate = gate();
    let mut cases = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        if name.starts_with('c') {
            assert_eq!(clean(&redactor(), &text), text);
            assert_eq!(refusal(gate, &text), Vec::<String>::new());
            continue;
        }
        cases += 1;
        assert_ne!(refusal(gate, &text), Vec::<String>::new(), "{name}");
        let planted = pieces(&text);
        assert!(!planted.is_empty(), "{name}");
        assert_gone(gate, &name, &planted, &text);
    }
    assert_eq!(cases, 21);
}

/// Every so many characters of what is planted, as it is written: whatever a case is, its secret is its longest runs, and the names
/// around it are shorter.
fn pieces(text: &str) -> Vec<String> {
    const PIECE: usize = 14;
    let is_run = |c: char| c.is_ascii_alphanumeric() || "+/_-".contains(c);
    let runs = text.split(|c| !is_run(c)).map(str::as_bytes);
    let pieces = runs.flat_map(|run| run.windows(PIECE));
    pieces
        .map(|piece| String::from_utf8(piece.to_vec()).unwrap())
        .collect()
}
