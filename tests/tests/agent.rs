//! The demo agent's own promises, over its standard input and output.

#![allow(clippy::unwrap_used, reason = "a test's unwrap is its assertion")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// The longest any one message of the agent takes.
const PATIENCE: Duration = Duration::from_secs(20);

struct Client {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<Value>,
}

impl Client {
    fn start(dir: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bex-demo-agent"))
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap();
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let mut client = Self {
            stdin: child.stdin.take().unwrap(),
            child,
            lines,
        };
        client.send(json!({"id": 1, "method": "initialize", "params": {"protocolVersion": 1, "clientCapabilities": {}}}));
        assert_eq!(client.next()["result"]["protocolVersion"], 1);
        client.send(
            json!({"id": 2, "method": "session/new", "params": {"cwd": dir, "mcpServers": []}}),
        );
        assert_eq!(client.next()["result"]["sessionId"], "demo-1");
        client
    }

    fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        writeln!(self.stdin, "{message}").unwrap();
    }

    fn next(&mut self) -> Value {
        self.lines
            .recv_timeout(PATIENCE)
            .expect("the agent goes on talking")
    }

    fn prompt(&mut self, text: &str) {
        self.send(json!({"id": 3, "method": "session/prompt",
            "params": {"sessionId": "demo-1", "prompt": [{"type": "text", "text": text}]}}));
    }

    /// All updates up to the prompt's answer, and that answer; permissions are answered with `option`.
    fn listen(&mut self, option: &str) -> (Vec<Value>, Value) {
        let mut updates = Vec::new();
        loop {
            let message = self.next();
            match message["method"].as_str() {
                Some("session/update") => updates.push(message["params"]["update"].clone()),
                Some("session/request_permission") => {
                    self.send(json!({"id": message["id"],
                        "result": {"outcome": {"outcome": "selected", "optionId": option}}}));
                }
                _ => return (updates, message),
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kinds(updates: &[Value], kind: &str) -> usize {
    updates
        .iter()
        .filter(|u| u["sessionUpdate"] == kind)
        .count()
}

#[test]
fn the_same_prompt_in_a_fresh_directory_gives_the_same_updates() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let mut client = Client::start(dir.path());
        client.prompt("tidy the notes parts=500");
        let (updates, answer) = client.listen("allow");
        assert_eq!(answer["result"]["stopReason"], "end_turn");
        let notes = std::fs::read_to_string(dir.path().join("notes.md")).unwrap();
        assert!(notes.ends_with("- tidy the notes parts=500\n"), "{notes}");
        runs.push(updates);
    }
    assert_eq!(runs[0], runs[1]);
    assert_eq!(kinds(&runs[0], "agent_message_chunk"), 500);
    assert_eq!(kinds(&runs[0], "tool_call"), 4);
    assert!(kinds(&runs[0], "agent_thought_chunk") > 5);
    assert_eq!(kinds(&runs[0], "plan"), 5);
    let text = serde_json::to_string(&runs[0]).unwrap();
    assert!(
        text.contains("hello from the sample"),
        "the command really ran"
    );
    assert!(
        text.contains(r#""type":"diff""#),
        "the edit is shown as a diff"
    );
}

#[test]
fn a_refused_permission_is_a_failed_tool_and_no_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = Client::start(dir.path());
    client.prompt("go");
    let (updates, answer) = client.listen("reject");
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    let failed = updates.iter().filter(|u| u["status"] == "failed").count();
    assert_eq!(failed, 1);
    assert!(
        !serde_json::to_string(&updates)
            .unwrap()
            .contains("hello from the sample")
    );
}

#[test]
fn a_cancellation_ends_what_would_hang() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = Client::start(dir.path());
    client.prompt("hang parts=10");
    let mut said = 0;
    while said < 5 {
        let message = client.next();
        if message["method"] == "session/request_permission" {
            client.send(json!({"id": message["id"],
                "result": {"outcome": {"outcome": "selected", "optionId": "allow"}}}));
        }
        said += usize::from(message["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    }
    client.send(json!({"method": "session/cancel", "params": {"sessionId": "demo-1"}}));
    let (rest, answer) = client.listen("allow");
    assert_eq!(answer["result"]["stopReason"], "cancelled");
    assert_eq!(kinds(&rest, "agent_message_chunk"), 0);
    // and the next turn works
    client.prompt("again parts=3");
    let (updates, answer) = client.listen("allow");
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert_eq!(kinds(&updates, "agent_message_chunk"), 3);
}

#[test]
fn a_crash_comes_after_what_was_said() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = Client::start(dir.path());
    client.prompt("crash parts=10");
    let mut said = 0;
    while let Ok(message) = client.lines.recv_timeout(PATIENCE) {
        if message["method"] == "session/request_permission" {
            client.send(json!({"id": message["id"],
                "result": {"outcome": {"outcome": "selected", "optionId": "allow"}}}));
        }
        said += usize::from(message["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    }
    assert_eq!(said, 5);
    assert_eq!(client.child.wait().unwrap().code(), Some(70));
}
