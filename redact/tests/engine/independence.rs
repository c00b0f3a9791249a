//! The gate is a second path: a mistake in the redactor is none of the gate's.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use crate::{clean, gate, properties, redactor, refusal};

/// What both may read: data, and the names of what can be switched off.
const SHARED: [&str; 4] = ["Profile", "bounds", "lists", "switch"];

fn src(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name)
}

fn gate_files() -> Vec<PathBuf> {
    let within = std::fs::read_dir(src("gate")).unwrap();
    let mut files: Vec<PathBuf> = within.map(|entry| entry.unwrap().path()).collect();
    files.push(src("gate.rs"));
    assert!(files.len() > 10, "{files:?}");
    files
}

/// The first names behind `crate::`, of a path or of each in braces.
fn imports(source: &str) -> Vec<String> {
    let mut out = Vec::new();
    for after in source.split("crate::").skip(1) {
        let name = |text: &str| {
            text.trim()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect::<String>()
        };
        match after.strip_prefix('{') {
            Some(list) => {
                let list = list.split(';').next().unwrap_or_default();
                let mut depth = 0;
                let mut item = String::new();
                for c in list.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 0 => out.push(name(&std::mem::take(&mut item))),
                        _ if depth == 0 => item.push(c),
                        _ => {}
                    }
                }
                out.push(name(&item));
            }
            None => out.push(name(after)),
        }
    }
    out.retain(|name| !name.is_empty());
    out
}

#[test]
fn the_gate_calls_nothing_of_the_redactor() {
    assert_eq!(
        imports("use crate::{a, b::{c, d}, e};\nx(crate::f::g);"),
        ["a", "b", "e", "f"]
    );
    for path in gate_files() {
        let source = std::fs::read_to_string(&path).unwrap();
        // a way to the same without the word
        let level = if path.ends_with("gate.rs") {
            "super::"
        } else {
            "super::super::"
        };
        let product = source.split("#[cfg(test)]").next().unwrap();
        assert!(!product.contains(level), "{}", path.display());
        for name in imports(&source) {
            assert!(
                SHARED.contains(&name.as_str()),
                "{} reads {name}",
                path.display()
            );
        }
    }
}

#[test]
fn what_they_share_is_data() {
    for name in ["bounds.rs", "lists.rs"] {
        let source = std::fs::read_to_string(src(name)).unwrap();
        let code = source
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let code: Vec<&str> = code.collect();
        let works = |line: &&&str| {
            ["fn ", "macro", "impl ", "use ", "static "]
                .iter()
                .any(|w| line.contains(w))
        };
        assert_eq!(code.iter().find(works), None, "{name}");
    }
}

#[test]
fn the_redactor_calls_nothing_of_the_gate() {
    let mut seen = 0;
    let mut dirs = vec![src("")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("gate")
                || path.ends_with("gate.rs")
                || path.ends_with("lib.rs")
                || path.ends_with("main.rs")
            {
                continue;
            }
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            seen += 1;
            let source = std::fs::read_to_string(&path).unwrap();
            assert!(!source.contains("crate::gate"), "{}", path.display());
        }
    }
    assert!(seen > 20, "{seen}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// What one takes out, the other refuses: neither knows less.
    #[test]
    fn whatever_is_taken_out_would_have_been_refused(text in properties::text()) {
        if clean(&redactor(), &text) != text {
            prop_assert_ne!(refusal(gate(), &text), Vec::<String>::new(), "{:?} {}", text, clean(&redactor(), &text));
        }
    }
}
