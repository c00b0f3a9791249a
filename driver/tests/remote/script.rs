//! The reporter in Python, run as the documentation says.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::double::{Double, TOKEN, Weather};
use crate::reporter::eventually;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/report.py");

fn speaker(dir: &Path, script: &str) -> (Child, PathBuf) {
    let log = dir.join("out.log");
    let file = std::fs::File::create(&log).expect("a file");
    let child = Command::new("/bin/sh")
        .args(["-c", script])
        .current_dir(dir)
        .stdout(file)
        .kill_on_drop(true)
        .spawn()
        .expect("a shell");
    (child, log)
}

fn report(double: &Double, pid: u32, log: &Path) -> Child {
    Command::new("python3")
        .args([
            SCRIPT,
            "--url",
            &double.url(),
            "--session",
            double.lock().id.as_str(),
        ])
        .args(["--follow-pid", &pid.to_string()])
        .arg(log)
        .env("BEX_MACHINE_TOKEN", TOKEN)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("python3 is there")
}

#[tokio::test]
async fn the_script_is_killed_and_goes_on_while_the_service_fails() {
    let double = Double::start().await;
    double.lock().weather = Weather::Mixed;
    let dir = tempfile::tempdir().expect("a directory");
    let script = "i=0; while [ $i -lt 1500 ]; do i=$((i+1)); echo line $i; [ $((i % 500)) -ne 0 ] || sleep 0.1; done; \
        printf 'bad\\377 NUL\\000\\nno newline'";
    let (child, log) = speaker(dir.path(), script);
    let pid = child.id().expect("it runs");
    for until in [1, 300, 900] {
        let mut reporter = report(&double, pid, &log);
        eventually("events arrive", || double.lock().events.len() >= until).await;
        reporter.kill().await.expect("killed");
    }
    let out = report(&double, pid, &log)
        .wait_with_output()
        .await
        .expect("it ends");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let lines: String = (1..=1500).map(|n| format!("line {n}\n")).collect();
    assert!(double.said("stdout") == format!("{lines}bad\u{fffd} NUL\u{fffd}\nno newline"));
    let session = double.lock();
    assert_eq!(session.complete(), 1503, "one line, one event, and the end");
    let status = session.status.as_ref().expect("told");
    assert_eq!(
        (&status["state"], &status["events"]),
        (&"completed".into(), &1503.into())
    );
}

#[tokio::test]
async fn the_script_ends_when_it_is_refused() {
    let double = Double::start().await;
    double.lock().token.push_str("-rotated");
    let dir = tempfile::tempdir().expect("a directory");
    let (child, log) = speaker(dir.path(), "read line");
    let out = report(&double, child.id().expect("it runs"), &log)
        .wait_with_output()
        .await
        .expect("it ends");
    assert!(!out.status.success());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("401") && !said.contains(TOKEN), "{said}");
}
