//! Remote sessions over real HTTP and a real store: machines, reports, turns, messages, commands.

mod access;
mod any_order;
mod hostile;
mod policy;
mod states;
mod words;

use std::time::Duration;

use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::*;

/// A machine with its token, and sessions on it.
pub struct Machine {
    pub id: String,
    pub token: String,
}

impl World {
    pub async fn machine(&self) -> Machine {
        let body = json!({"workspaceId": "demo", "name": "builder"});
        let made = self.post(ADMIN, "/v1/machines", &body).await.ok(201);
        Machine {
            id: made["machine"]["id"].as_str().unwrap().to_owned(),
            token: made["token"].as_str().unwrap().to_owned(),
        }
    }

    /// A session on the machine: `interactive` or `autonomous`.
    pub async fn remote(&self, machine: &Machine, kind: &str) -> String {
        let mut body = json!({"machineId": machine.id, "kind": kind});
        if kind == "autonomous" {
            body["workflowId"] = json!("nightly");
        }
        let made = self.post(OPERATOR, "/v1/remote-sessions", &body).await;
        let made = made.ok(201);
        made["id"].as_str().unwrap().to_owned()
    }

    pub async fn report(&self, machine: &Machine, session: &str, lines: String) -> Answer {
        let path = format!("/v1/remote-sessions/{session}/output");
        let request = self.request(&machine.token, "POST", &path);
        self.send(request.body(Full::new(lines.into())).unwrap())
            .await
    }

    pub async fn say(&self, machine: &Machine, session: &str, events: &[Value]) -> Value {
        let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
        self.report(machine, session, lines).await.ok(200)
    }

    pub async fn remote_session(&self, session: &str) -> Value {
        let path = format!("/v1/remote-sessions/{session}");
        self.get(VIEWER, &path).await.ok(200)
    }

    pub async fn messages(&self, session: &str) -> Vec<Value> {
        let path = format!("/v1/remote-sessions/{session}/messages?limit=200");
        let page = self.get(VIEWER, &path).await.ok(200);
        page["messages"].as_array().unwrap().clone()
    }

    pub async fn turns(&self, session: &str) -> Vec<Value> {
        let path = format!("/v1/remote-sessions/{session}/turns?limit=200");
        let page = self.get(VIEWER, &path).await.ok(200);
        page["turns"].as_array().unwrap().clone()
    }

    /// Waits until everything that was reported was read.
    pub async fn read(&self, session: &str) {
        let read = || {
            self.sql(&format!(
                "SELECT seen_index = next_index AND imports_waiting = 0 FROM remote_heads WHERE session_id = '{session}'"
            ))
        };
        for _ in 0..1000 {
            if read() == "t" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{session} was not read");
    }
}

/// A line of a program's output as one event.
pub fn line(index: usize, line: &Value) -> Value {
    json!({"eventIndex": index, "stream": "stdout", "data": format!("{line}\n")})
}

/// Lines as events from 0.
pub fn lines(lines: &[Value]) -> Vec<Value> {
    let numbered = lines.iter().enumerate();
    numbered.map(|(index, one)| line(index, one)).collect()
}

pub fn assistant(id: &str, block: Value) -> Value {
    json!({"type": "assistant", "uuid": format!("u-{id}"),
           "message": {"id": format!("msg_{id}"), "role": "assistant", "content": [block]}})
}

pub fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub fn result() -> Value {
    json!({"type": "result", "subtype": "success", "is_error": false})
}
