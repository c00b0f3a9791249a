//! The command.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::cases::{self, PAT};

fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_bex-redact"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes())
        .expect("it reads");
    child.wait_with_output().expect("it ends")
}

#[test]
fn cleans_standard_input_and_files_and_reports_counts() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("key"), "k").unwrap();
    let out = run(
        &["--key", &path("key"), "--report", &path("report")],
        &format!("export X={PAT}\n"),
    );
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(
        text.starts_with("export X=[redacted:github-token:"),
        "{text}"
    );
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path("report")).unwrap()).unwrap();
    assert_eq!(
        (&report["redacted"]["github-token"], &report["gate"]),
        (&1.into(), &"passed".into()),
        "{report}"
    );

    // one key, one token; two files are one conversation
    std::fs::write(path("a"), cases::record(0, &cases::delta(&PAT[..9]))).unwrap();
    std::fs::write(path("b"), cases::record(1, &cases::delta(&PAT[9..]))).unwrap();
    let out = run(&["--key", &path("key"), &path("a"), &path("b")], "");
    let both = String::from_utf8(out.stdout).unwrap();
    assert!(
        both.contains(text.trim_start_matches("export X=").trim_end()) && !both.contains(&PAT[9..]),
        "{both}"
    );
}

#[test]
fn says_what_it_cannot_read() {
    let out = run(&["no-such-file"], "");
    assert_eq!(out.status.code(), Some(1));
    assert!(out.stdout.is_empty() && String::from_utf8_lossy(&out.stderr).contains("no-such-file"));
}

#[test]
fn what_the_gate_refuses_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    // deeper than the gate follows
    let depth = bex_redact::bounds::MAX_GATE_OPEN + 1;
    std::fs::write(
        path("deep"),
        format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
    )
    .unwrap();
    let out = run(&["--report", &path("report"), &path("deep")], "");
    assert_eq!(out.status.code(), Some(3), "{out:?}");
    assert!(out.stdout.is_empty());
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path("report")).unwrap()).unwrap();
    assert_eq!(
        (&report["gate"], &report["gateIds"]),
        (&"refused".into(), &serde_json::json!(["gate-depth"])),
        "{report}"
    );
}
