//! What a hostile text costs the gate in memory. A file of its own: the high water is the whole process's.

#![allow(clippy::unwrap_used)]

use bex_redact::{Gate, Profile};

const MIB: usize = 1024 * 1024;
/// A tree of such a text takes twenty times its length.
const TEXT: usize = 16 * MIB;
const MOST: usize = 6 * TEXT;

/// The most memory that this process has had, in bytes.
fn high_water() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

#[test]
fn of_a_document_with_deltas_no_tree_is_made() {
    let gate = Gate::new(Profile::Package).unwrap();
    for filling in ["0,", "[],", "{},", "\"\",", "[{\"type\":\"text-start\"}],"] {
        let mut text = String::from(
            r#"[{"type":"text-delta","id":"a","delta":"one "},{"type":"text-delta","id":"a","delta":"two"},"#,
        );
        while text.len() < TEXT {
            text.push_str(filling);
        }
        text.push_str("0]");
        let before = high_water();
        gate.check([text.as_bytes()]).unwrap();
        let took = high_water() - before;
        assert!(took < MOST, "{filling}: {} MiB", took / MIB);
    }
}
