//! What a command prints arrives as it was printed.

use serde_json::json;

use crate::double::{Double, TOKEN};
use crate::reporter::{Reporter, eventually};

#[tokio::test]
async fn a_command_is_reported_to_its_end() {
    let double = Double::start().await;
    let script = "echo one; echo two; echo wrong >&2; exit 3";
    let mut reporter = Reporter::shell(&double, script)
        .flags(&["--echo", "always"])
        .started();
    assert_eq!(reporter.code().await, 3, "{}", reporter.log());
    assert_eq!(double.said("stdout"), "one\ntwo\n");
    assert_eq!(double.said("stderr"), "wrong\n");
    let events = double.lock().complete();
    let status =
        json!({"state": "error", "events": events, "error": "the command ended with exit code 3"});
    assert_eq!(double.lock().status, Some(status));
    assert!(double.lock().heartbeats > 0);
    assert_eq!(reporter.file("echo"), "one\ntwo\n");
    assert!(reporter.log().contains("wrong\n"));

    // once more: nothing is run or told again
    let before = double.lock().calls.len();
    reporter.start();
    assert_eq!(reporter.code().await, 3);
    assert_eq!(double.lock().calls.len(), before);
}

#[tokio::test]
async fn odd_output_arrives_whole() {
    let double = Double::start().await;
    // a line far over a piece and a batch, of characters that a cut could fall into; no newline at the end
    let script = "yes € | head -n 800000 | tr -d '\\n'; printf '\\nNUL\\000 bad\\377\\342\\202 cut\\n'; printf 'no newline'";
    let mut reporter = Reporter::shell(&double, script).started();
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
    let expected = format!(
        "{}\nNUL\u{fffd} bad\u{fffd}\u{fffd} cut\nno newline",
        "€".repeat(800_000)
    );
    let said = double.said("stdout");
    assert!(
        said == expected,
        "{} bytes instead of {}",
        said.len(),
        expected.len()
    );
    let session = double.lock();
    session.complete();
    assert!(
        session
            .events
            .values()
            .all(|event| event.data.len() <= 64 * 1024)
    );
    assert!(session.largest <= 1024 * 1024, "{}", session.largest);
    assert_eq!(session.status.as_ref().expect("told")["state"], "completed");
}

#[tokio::test]
async fn lines_go_together_and_an_unfinished_one_is_shown_before_its_end() {
    let double = Double::start().await;
    let script = "printf 'Go on? [y] '; read answer; echo \"$answer.\"; exec seq 1 50000";
    let mut reporter = Reporter::shell(&double, script).started();
    eventually("the question is there", || {
        double.said("stdout") == "Go on? [y] "
    })
    .await;
    double.tell("chat", &json!({"content": "yes"}));
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
    let numbers: String = (1..=50_000).map(|n| format!("{n}\n")).collect();
    assert!(double.said("stdout") == format!("Go on? [y] yes.\n{numbers}"));
    assert!(double.lock().complete() < 1000, "lines go together");
}

#[tokio::test]
async fn the_command_does_not_see_the_token_and_no_log_has_it() {
    let double = Double::start().await;
    let mut reporter =
        Reporter::shell(&double, "env; tr '\\000' ' ' < /proc/$PPID/cmdline").started();
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
    assert!(double.said("stdout").contains("remote-run"));
    // as a variable too
    let dir = tempfile::tempdir().expect("a directory");
    let other = Double::start().await;
    let session = other.lock().id.to_string();
    let out = tokio::process::Command::new(crate::reporter::DRIVER)
        .args([
            "remote",
            "--url",
            &other.url(),
            "--session",
            &session,
            "--state",
        ])
        .arg(dir.path().join("state"))
        .args(["--", "sh", "-c", "env"])
        .env("BEX_MACHINE_TOKEN", TOKEN)
        .env("RUST_LOG", "trace")
        .output()
        .await
        .expect("it runs");
    assert!(out.status.success());
    let log = String::from_utf8_lossy(&out.stderr).into_owned();
    for text in [
        double.said("stdout"),
        other.said("stdout"),
        reporter.log(),
        log,
    ] {
        assert!(text.len() > 20, "{text}");
        assert!(!text.contains(TOKEN), "{text}");
    }
}

#[tokio::test]
async fn a_command_that_is_none_is_an_error_of_the_session() {
    let double = Double::start().await;
    let mut reporter = Reporter::command(&double, &["/no/such/program"]).started();
    assert_eq!(reporter.code().await, 127);
    let status = double.lock().status.clone().expect("told");
    assert_eq!(status["state"], "error");
    assert!(
        status["error"]
            .as_str()
            .expect("a text")
            .contains("could not be started"),
        "{status}"
    );
    double.lock().complete();
}
