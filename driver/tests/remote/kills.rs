//! Reporters are killed; what they reported does not show it.

use std::hash::{BuildHasher, RandomState};

use nix::sys::signal::Signal;

use crate::double::{Double, Weather};
use crate::reporter::{Reporter, eventually};

/// A number below `bound`, another one each time.
fn random(bound: u64) -> u64 {
    RandomState::new().hash_one(0u8) % bound
}

fn numbers(count: u64) -> String {
    (1..=count).map(|n| format!("line {n}\n")).collect()
}

/// Prints 20 000 lines, some at once and some alone, for some seconds.
const SPEAKER: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line $i; \
    [ $((i % 250)) -ne 0 ] || sleep 0.02; done; echo end >&2";

async fn killed_again_and_again(weather: Weather) {
    let double = Double::start().await;
    double.lock().weather = weather;
    let mut reporter = Reporter::shell(&double, SPEAKER);
    reporter.start();
    let mut kills = Vec::new();
    // after random numbers of events, and sometimes before it did anything
    for _ in 0..15 {
        let now = double.lock().events.len() as u64;
        let until = now + random(12);
        eventually("events arrive, or all are there", || {
            let session = double.lock();
            session.events.len() as u64 >= until || session.status.is_some()
        })
        .await;
        reporter.kill().await;
        kills.push(until);
        reporter.start();
    }
    assert_eq!(reporter.code().await, 0, "{kills:?} {}", reporter.log());
    assert!(double.said("stdout") == numbers(20_000), "{kills:?}");
    assert_eq!(double.said("stderr"), "end\n", "{kills:?}");
    let session = double.lock();
    let events = session.complete();
    let status = session.status.as_ref().expect("told");
    assert_eq!(
        status["state"], "completed",
        "known though its first reporter is gone"
    );
    assert_eq!(status["events"], events);
    if weather != Weather::Fine {
        assert!(session.duplicates > 0, "nothing was sent twice");
    }
}

#[tokio::test]
async fn kill_9_at_random_moments_loses_and_doubles_nothing() {
    killed_again_and_again(Weather::Fine).await;
}

#[tokio::test]
async fn nor_does_it_while_the_service_fails_and_answers_are_lost() {
    killed_again_and_again(Weather::Mixed).await;
}

#[tokio::test]
async fn a_command_that_ends_while_nobody_reports_is_reported_with_its_exit_code() {
    let double = Double::start().await;
    let mut reporter = Reporter::shell(&double, "echo begun; read line; echo $line; exit 9");
    reporter.start();
    eventually("it has begun", || double.said("stdout") == "begun\n").await;
    reporter.kill().await;
    std::fs::write(reporter.state().join("stdin"), "alone\n").expect("a pipe");
    eventually("it has ended", || {
        reporter.state().join("exit.json").exists()
    })
    .await;
    reporter.start();
    assert_eq!(reporter.code().await, 9, "{}", reporter.log());
    assert_eq!(double.said("stdout"), "begun\nalone\n");
    double.lock().complete();
}

#[tokio::test]
async fn an_end_that_nobody_saw_is_told_as_such() {
    let double = Double::start().await;
    let mut reporter = Reporter::shell(&double, "echo $PPID; read line");
    reporter.start();
    eventually("it has begun", || double.said("stdout").ends_with('\n')).await;
    let runner: i32 = double.said("stdout").trim().parse().expect("a pid");
    let runner = nix::unistd::Pid::from_raw(runner);
    nix::sys::signal::kill(runner, Signal::SIGKILL).expect("killed");
    std::fs::write(reporter.state().join("stdin"), "go\n").expect("a pipe");
    assert_eq!(reporter.code().await, 70, "{}", reporter.log());
    let status = double.lock().status.clone().expect("told");
    assert_eq!(status["state"], "error", "{status}");
    double.lock().complete();
}

#[tokio::test]
async fn one_directory_has_one_reporter_and_one_session() {
    let double = Double::start().await;
    let mut reporter = Reporter::shell(&double, "echo begun; read line");
    reporter.start();
    eventually("it has begun", || double.said("stdout") == "begun\n").await;
    let (state, token) = (reporter.state(), reporter.root.path().join("token"));
    let second = |session: String| {
        tokio::process::Command::new(crate::reporter::DRIVER)
            .args(["remote", "--url", &double.url(), "--session", &session])
            .arg("--state")
            .arg(&state)
            .arg("--token-file")
            .arg(&token)
            .args(["--", "true"])
            .status()
    };
    let own = double.lock().id.to_string();
    let busy = second(own).await.expect("it runs");
    assert_eq!(busy.code(), Some(75));
    reporter.kill().await;
    let other = bex_proto::RemoteSessionId::random().to_string();
    let other = second(other).await.expect("it runs");
    assert_eq!(other.code(), Some(64));
    reporter.start();
    std::fs::write(reporter.state().join("stdin"), "go\n").expect("a pipe");
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
}

#[tokio::test]
async fn a_signal_is_the_commands_and_its_end_is_reported() {
    let double = Double::start().await;
    let script = "trap 'echo asked to end; exit 4' INT; echo begun; while :; do read -r line; done";
    let mut reporter = Reporter::shell(&double, script);
    reporter.start();
    eventually("it has begun", || double.said("stdout") == "begun\n").await;
    reporter.signal(Signal::SIGINT);
    assert_eq!(reporter.code().await, 4, "{}", reporter.log());
    assert_eq!(double.said("stdout"), "begun\nasked to end\n");
    double.lock().complete();
}
