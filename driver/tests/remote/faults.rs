//! The network and the service fail.

use crate::double::{Double, Weather};
use crate::reporter::{Reporter, eventually};

#[tokio::test]
async fn what_is_printed_while_the_network_is_away_arrives_when_it_is_back() {
    let mut double = Double::start().await;
    let script = "echo before; while [ ! -e go ]; do sleep 0.02; done; seq 1 20000; touch printed; \
        while [ ! -e back ]; do sleep 0.02; done; echo after";
    let mut reporter = Reporter::shell(&double, script).started();
    eventually("it reports", || double.said("stdout") == "before\n").await;
    double.cut().await;
    std::fs::write(reporter.root.path().join("go"), "").expect("a file");
    eventually("it prints", || {
        reporter.root.path().join("printed").exists()
    })
    .await;
    eventually("it is noticed", || {
        reporter.log().contains("is asked again until it answers")
    })
    .await;
    assert_eq!(double.said("stdout"), "before\n");
    double.listen().await;
    eventually("all that was printed is there", || {
        double.said("stdout").ends_with("\n20000\n")
    })
    .await;
    std::fs::write(reporter.root.path().join("back"), "").expect("a file");
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
    let numbers: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    assert!(double.said("stdout") == format!("before\n{numbers}after\n"));
    double.lock().complete();
}

#[tokio::test]
async fn nothing_is_started_before_the_service_answered_and_a_proxys_page_is_no_answer() {
    let double = Double::start().await;
    double.lock().weather = Weather::Page(404);
    let mut reporter = Reporter::shell(&double, "echo begun").started();
    eventually("it asks again", || double.lock().calls.len() > 2).await;
    assert!(!reporter.state().join("child.json").exists());
    double.lock().weather = Weather::Away;
    let asked = double.lock().calls.len();
    eventually("it is away", || double.lock().calls.len() == asked).await;
    double.lock().weather = Weather::Fine;
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
    assert_eq!(double.said("stdout"), "begun\n");
}

#[tokio::test]
async fn a_refused_token_ends_the_reporter_and_not_the_command() {
    let double = Double::start().await;
    let mut reporter = Reporter::shell(&double, "echo begun; read line; echo $line");
    reporter.start();
    eventually("it has begun", || double.said("stdout") == "begun\n").await;
    double.lock().token.push_str("-rotated");
    // the next call: the poll that waits, or a heartbeat
    assert_eq!(reporter.code().await, 77, "{}", reporter.log());
    assert!(
        reporter.log().contains("refuses the token"),
        "{}",
        reporter.log()
    );
    assert!(reporter.command_state().is_some(), "the command goes on");
    std::fs::write(reporter.root.path().join("token"), &double.lock().token).expect("a file");
    reporter.start();
    eventually("it goes on", || {
        reporter.log().matches("session is reported").count() == 2
    })
    .await;
    std::fs::write(reporter.state().join("stdin"), "still there\n").expect("a pipe");
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
    assert_eq!(double.said("stdout"), "begun\nstill there\n");
    double.lock().complete();
}

#[tokio::test]
async fn a_rotated_token_is_read_again() {
    let double = Double::start().await;
    let mut reporter = Reporter::shell(&double, "echo begun; read line; echo $line");
    reporter.start();
    eventually("it has begun", || double.said("stdout") == "begun\n").await;
    let rotated = format!("{}-rotated", double.lock().token);
    let file = reporter.root.path().join("token");
    std::fs::write(file, format!("{rotated}\n")).expect("a file");
    double.lock().token = rotated;
    std::fs::write(reporter.state().join("stdin"), "on\n").expect("a pipe");
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
    assert_eq!(double.said("stdout"), "begun\non\n");
}

#[tokio::test]
async fn a_session_that_is_none_starts_nothing() {
    let double = Double::start().await;
    let mut reporter = Reporter::shell(&double, "touch ran");
    double.lock().id = bex_proto::RemoteSessionId::random();
    reporter.start();
    assert_eq!(reporter.code().await, 69, "{}", reporter.log());
    assert!(!reporter.root.path().join("ran").exists());
}

#[tokio::test]
async fn a_session_that_ended_stops_the_command() {
    let double = Double::start().await;
    let script =
        "trap 'touch stopped; exit 1' TERM; echo begun; while :; do sleep 0.05; echo more; done";
    let mut reporter = Reporter::shell(&double, script).started();
    eventually("it has begun", || {
        double.said("stdout").starts_with("begun\n")
    })
    .await;
    double.lock().ended = true;
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
    assert!(reporter.root.path().join("stopped").exists());
    assert_eq!(reporter.command_state(), None);
}

#[tokio::test]
async fn a_full_log_is_said_and_the_command_goes_on() {
    let double = Double::start().await;
    double.lock().full_after = Some(3);
    let script = "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done; head -c 3000000 /dev/zero; touch ended; exit 5";
    let mut reporter = Reporter::shell(&double, script).started();
    assert_eq!(reporter.code().await, 5, "{}", reporter.log());
    assert!(reporter.log().contains("log_full"), "{}", reporter.log());
    assert!(reporter.root.path().join("ended").exists());
    let session = double.lock();
    let status = session.status.clone().expect("told");
    assert_eq!(status["events"], session.events.len());
    let spool = reporter
        .state()
        .join("stdout.spool")
        .metadata()
        .expect("a file")
        .len();
    assert!(spool < 2_000_000, "{spool} bytes are kept for nothing");
}

#[tokio::test]
async fn another_event_under_an_index_is_told_and_ends_the_reporter() {
    let double = Double::start().await;
    let mut reporter = Reporter::shell(&double, "echo begun; read line; echo $line");
    reporter.start();
    eventually("it has begun", || double.said("stdout") == "begun\n").await;
    // somebody else reports
    let stranger = double.lock().events[&0].clone();
    let next = double.lock().events.len() as u64;
    let stranger = bex_proto::remote::OutputEvent {
        event_index: next,
        ..stranger
    };
    double.lock().events.insert(next, stranger);
    std::fs::write(reporter.state().join("stdin"), "x\n").expect("a pipe");
    assert_eq!(reporter.code().await, 65, "{}", reporter.log());
    assert!(
        reporter.log().contains("event_conflict"),
        "{}",
        reporter.log()
    );
}
