//! Executions over real HTTP and a real store: recorded by operators, read by viewers, kept apart by workspace.

mod batches;
mod bounds;
mod keeping;
mod recording;
mod runs;
mod strangers;

use bex_proto::ExecutionId;
use bytes::Bytes;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::*;

impl World {
    pub async fn put_text(&self, token: &str, path: &str, body: &str) -> Answer {
        let body = Bytes::from(body.to_owned());
        let request = self.request(token, "PUT", path);
        self.send(request.body(Full::new(body)).unwrap()).await
    }

    pub async fn put(&self, token: &str, path: &str, body: &Value) -> Answer {
        self.put_text(token, path, &body.to_string()).await
    }

    /// A fresh execution that is at work.
    pub async fn execution(&self) -> ExecutionId {
        let id = ExecutionId::random();
        let running = json!({"status": "running"});
        self.put(OPERATOR, &execution(&id, ""), &running)
            .await
            .ok(201);
        id
    }

    /// Every item of a list, read page by page; and how many pages there were.
    pub async fn pages(&self, path: &str) -> (Vec<Value>, usize) {
        let mut items = Vec::new();
        let mut pages = 0;
        let mut cursor = String::new();
        loop {
            let page = self.get(VIEWER, &format!("{path}{cursor}")).await.ok(200);
            items.extend(page["items"].as_array().unwrap().clone());
            pages += 1;
            assert!(pages < 100, "a list ends");
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return (items, pages),
            }
        }
    }
}

pub fn execution(id: &ExecutionId, rest: &str) -> String {
    format!("/v1/executions/{id}{rest}")
}

pub fn finding(id: &str) -> Value {
    json!({"findingId": id, "decision": "allow", "body": {"rule": "r1"}, "at": "2026-11-30T12:00:00.000Z"})
}

pub fn entry(id: &str) -> Value {
    json!({"entryId": id, "inputTokens": 10, "outputTokens": 5, "calls": 1, "at": "2026-11-30T12:00:00.000Z"})
}

pub fn names(items: &[Value], field: &str) -> Vec<String> {
    items
        .iter()
        .map(|item| item[field].as_str().unwrap().to_owned())
        .collect()
}
