//! `make demo`: its last line, and that the line can say no.

use std::path::Path;
use std::process::{Command, Output};

use bex_tests::recording::shared_dir;

fn demo(stream: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bex-demo"))
        .env("STREAM", stream)
        .env_remove("KEEP")
        .output()
        .unwrap()
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().unwrap_or_default().to_owned()
}

fn is_ok(output: &Output) {
    let line = last_line(output);
    let fields: Vec<&str> = line.split(' ').collect();
    let [_, "ok", parts, live, replayed, rest @ ..] = fields.as_slice() else {
        panic!("{line}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let count = parts.strip_prefix("parts=").unwrap();
    assert!(count.parse::<u32>().unwrap() > 0, "{line}");
    assert_eq!(live.strip_prefix("live="), Some(count), "{line}");
    assert_eq!(replayed.strip_prefix("replayed="), Some(count), "{line}");
    let wanted = [
        "lost=0",
        "duplicated=0",
        "order=ok",
        "verdict=complete",
        "done=ok",
    ];
    assert_eq!(rest, wanted, "{line}");
    assert!(output.status.success());
}

#[test]
fn the_demo_agent_is_watched_and_replayed() {
    let output = demo(Path::new(""));
    is_ok(&output);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Line 1 of "), "the stream is on the terminal");
    assert!(text.contains(" parts, "), "and its progress");
}

#[test]
fn a_recording_is_played_instead() {
    let Some(dir) = shared_dir() else {
        assert!(
            !std::env::var("CI").is_ok_and(|v| v == "true"),
            "in CI nothing is skipped"
        );
        return;
    };
    is_ok(&demo(&dir.join("openai__chat__openai-text.sse")));
}

#[test]
fn what_is_no_recording_fails() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("empty.sse");
    std::fs::write(&file, "no event\n").unwrap();
    let output = demo(&file);
    assert_eq!(output.status.code(), Some(1));
    assert!(!last_line(&output).starts_with("demo: ok"));
}
