//! A scripted agent for the driver's tests: speaks the Agent Client Protocol by hand, so that nothing of the driver's own library
//! stands on both sides. The prompt's last text says what to do.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

fn main() -> ExitCode {
    let mut agent = Agent::default();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let message: Value = serde_json::from_str(&line).expect("a message");
        agent.handle(&message);
        if agent.has_fallen {
            return ExitCode::from(9);
        }
    }
    ExitCode::SUCCESS
}

#[derive(Default)]
struct Agent {
    has_fallen: bool,
    loads: bool,
    next_id: u64,
    /// The prompt request that is not answered yet.
    prompt: Option<Value>,
}

impl Agent {
    fn handle(&mut self, message: &Value) {
        let id = message["id"].clone();
        let params = &message["params"];
        match message["method"].as_str() {
            Some("initialize") => {
                self.loads = std::env::var("AGENT_LOADS").is_ok();
                answer(
                    &id,
                    json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": self.loads}}),
                );
            }
            Some("session/new") => {
                // more than any queue holds, before the answer
                for _ in 0..200 {
                    update(
                        json!({"sessionUpdate": "available_commands_update", "availableCommands": []}),
                    );
                }
                answer(
                    &id,
                    json!({"sessionId": format!("s-{}", std::process::id())}),
                );
            }
            Some("session/load") if std::env::var("AGENT_LOST").is_ok() => send(
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32002, "message": "no such session"}}),
            ),
            Some("session/load") => {
                // an agent shows what it loads, before it answers
                if std::env::var("AGENT_FORGETS").is_err() {
                    update(
                        json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "one"}}),
                    );
                    say("heard it");
                }
                answer(&id, json!({}));
            }
            Some("session/prompt") => {
                self.prompt = Some(id);
                let texts: Vec<_> = params["prompt"]
                    .as_array()
                    .expect("blocks")
                    .iter()
                    .map(|block| block["text"].as_str().expect("text").to_owned())
                    .collect();
                self.act(&texts, params["sessionId"].as_str().expect("a session"));
            }
            Some("session/cancel") => {
                if std::env::var("AGENT_DEAF").is_err() {
                    say("canceled");
                    self.finish("cancelled");
                }
            }
            Some(_) => {}
            // an answer to a request of ours
            None => {
                say(&format!(
                    "answer: {}",
                    message.get("result").unwrap_or(&message["error"])
                ));
                self.finish("end_turn");
            }
        }
    }

    fn act(&mut self, texts: &[String], session: &str) {
        match texts.last().map(String::as_str).unwrap_or_default() {
            "crash" => {
                say("about to fall");
                eprintln!("assertion failed");
                self.has_fallen = true;
            }
            "wait" => say("waiting"),
            "ask" => {
                let options = json!([
                    {"optionId": "no", "name": "No", "kind": "reject_once"},
                    {"optionId": "always", "name": "Always", "kind": "allow_always"},
                    {"optionId": "once", "name": "Once", "kind": "allow_once"},
                ]);
                let call = json!({"toolCallId": "c1", "title": "Delete it"});
                self.request(
                    "session/request_permission",
                    json!({"sessionId": session, "toolCall": call, "options": options}),
                );
            }
            "write" => {
                let path = std::env::current_dir()
                    .expect("a directory")
                    .join("made/by-agent.txt");
                self.request(
                    "fs/write_text_file",
                    json!({"sessionId": session, "path": path, "content": "hello"}),
                );
            }
            "terminal" => self.request(
                "terminal/create",
                json!({"sessionId": session, "command": "ls"}),
            ),
            "work" => {
                update(
                    json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "work"}}),
                );
                update(
                    json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}}),
                );
                update(
                    json!({"sessionUpdate": "plan", "entries": [{"content": "a", "priority": "high", "status": "pending"}]}),
                );
                update(
                    json!({"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Edit a", "kind": "edit", "rawInput": {"path": "a"}}),
                );
                update(
                    json!({"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed",
                    "content": [{"type": "diff", "path": "/a", "oldText": "x", "newText": "y"}], "rawOutput": {"ok": true}}),
                );
                say("done");
                self.finish("end_turn");
            }
            _ => {
                say(&format!("{session} heard {texts:?}"));
                self.finish("end_turn");
            }
        }
    }

    fn request(&mut self, method: &str, params: Value) {
        self.next_id += 1;
        send(&json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params}));
    }

    fn finish(&mut self, reason: &str) {
        if let Some(id) = self.prompt.take() {
            answer(&id, json!({"stopReason": reason}));
        }
    }
}

fn say(text: &str) {
    update(
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}),
    );
}

fn update(update: Value) {
    send(
        &json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}),
    );
}

fn answer(id: &Value, result: Value) {
    send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn send(message: &Value) {
    let mut out = std::io::stdout().lock();
    // a driver that is gone reads nothing
    let _ = writeln!(out, "{message}").and_then(|()| out.flush());
}
