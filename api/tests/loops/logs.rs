//! What the loops log.

use std::io;
use std::sync::{Arc, Mutex};

use bex_proto::TurnNo;
use bex_proto::driver::TurnState;
use serde_json::Value;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

use crate::support::{Speaker, Stack, T1, keeps_speaking, status};
use crate::world::{ReadFault, Sandbox, eventually};

/// What this thread logs, for tests whose loops all run on it.
#[derive(Clone, Default)]
struct Logs(Arc<Mutex<Vec<u8>>>);

impl Logs {
    fn capture() -> (Self, DefaultGuard) {
        let logs = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_writer(logs.clone())
            .finish();
        (logs, tracing::subscriber::set_default(subscriber))
    }

    /// `LEVEL message` of every line, with the field where the line has it.
    fn lines(&self, field: &str) -> Vec<String> {
        let text = self.0.lock().expect("no test panics here").clone();
        let line = |line: &[u8]| {
            let line: Value = serde_json::from_slice(line).expect("a line is JSON");
            let (level, fields) = (&line["level"], &line["fields"]);
            let said = [level, &fields["message"], &fields[field]];
            let said: Vec<&str> = said.iter().filter_map(|word| word.as_str()).collect();
            said.join(" ")
        };
        text.split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .map(line)
            .collect()
    }
}

impl io::Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no test panics here").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Logs {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn a_gateway_that_refuses_needs_a_person_and_one_that_is_away_does_not() {
    let (logs, _guard) = Logs::capture();
    let stack = Stack::new().await;
    stack.world.on_turn(keeps_speaking(1));
    let session = stack.delivered("new").await;
    stack.world.sandbox(&session, 1, |sandbox| {
        sandbox.read_faults = vec![
            ReadFault::Unreachable,
            ReadFault::Refused(503),
            ReadFault::Refused(401),
        ];
    });
    let _completer = stack.completer("a");
    let expected = [
        "INFO the gateway can not be asked the gateway can not be reached",
        "WARN the gateway can not be asked the gateway refused the request with status 503",
        "ERROR the gateway refuses to be asked the gateway refused the request with status 401",
    ];
    eventually("all three are logged", async || {
        let lines = logs.lines("failure");
        expected.iter().all(|line| lines.iter().any(|l| l == line))
    })
    .await;
    assert!(stack.turn(&session, T1).await.settled_at.is_none());
}

#[tokio::test]
async fn a_line_says_why_the_store_failed() {
    let (logs, _guard) = Logs::capture();
    let stack = Stack::new().await;
    stack.sql("ALTER TABLE leases RENAME TO leases_elsewhere");
    let _completer = stack.completer("a");
    eventually("the server's words are logged", async || {
        logs.lines("error").iter().any(|line| {
            line.starts_with("WARN no sessions could be claimed")
                && line.contains(r#"relation "leases" does not exist"#)
        })
    })
    .await;
}

#[tokio::test]
async fn a_session_that_can_not_be_run_is_one_line() {
    let (logs, _guard) = Logs::capture();
    let stack = Stack::new().await;
    let session = stack.create("nobody-s").await;
    let _dispatcher = stack.dispatcher();
    stack.until_settled(&session, T1).await;
    let warnings: Vec<String> = logs
        .lines("code")
        .into_iter()
        .filter(|line| line.starts_with("WARN"))
        .collect();
    assert_eq!(warnings, ["WARN no sandbox could be made profile_unknown"]);
}

#[tokio::test]
async fn a_session_that_fails_is_one_line() {
    let (logs, _guard) = Logs::capture();
    let stack = Stack::new().await;
    stack.world.on_turn(fails());
    stack.delivered("new").await;
    let _completer = stack.completer("a");
    eventually("the end is logged", async || {
        logs.lines("failure")
            .iter()
            .any(|line| line == "INFO turn settled agent_failed")
    })
    .await;
    let ends = logs.lines("phase");
    let ends = ends.iter().filter(|line| line.contains("failed"));
    assert_eq!(ends.count(), 1);
}

fn fails() -> impl Fn(&mut Sandbox, TurnNo) + Send + 'static {
    |sandbox, turn| {
        let mut speaker = Speaker::new(sandbox.generation, turn);
        speaker.end(TurnState::Failed, None);
        sandbox.logs.insert(turn, speaker.log);
        sandbox.status = status("idle", sandbox.generation, turn);
    }
}
