//! What a gate must find before it may serve.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Gate, shapes};
use crate::Profile;

/// Made up; without capital letters, so that nothing calls it random.
const CANARY: &str = "ghp_canary0123456789abcdefghijklmnopqrst";
const ID: &str = "github-token";
/// What must come through.
const CLEAN: &str = "hello, sha 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 id 3f2504e0-4f89-11d3-9a0c-0305e82c3301 [redacted:github-token:7f3a]";

/// The names of what this gate misses.
pub(super) fn missed(gate: &Gate) -> Vec<String> {
    let mut missed = Vec::new();
    let mut plant = |name: &str, id: &str, texts: &[&str]| {
        let found = gate.check(texts.iter().map(|t| t.as_bytes()));
        if !found.is_err_and(|refused| refused.ids.contains(id)) {
            missed.push(name.to_owned());
        }
    };
    let line = |text: &str| format!("export GITHUB_TOKEN={text} now");
    let json =
        serde_json::json!({ "out": serde_json::json!({ "x": CANARY }).to_string() }).to_string();
    plant("plain", ID, &[&line(CANARY)]);
    plant("json", ID, &[&json]);
    plant(
        "json-key",
        ID,
        &[&serde_json::json!({ CANARY: 1 }).to_string()],
    );
    plant(
        "json-lines",
        "sensitive-key",
        &["log:\n{\"password\": \"hunter\"}\n"],
    );
    plant(
        "unescape",
        ID,
        &[&line(&CANARY.replace("ghp", r"\u0067\u0068p"))],
    );
    plant("entities", ID, &[&line(&CANARY.replace('_', "&#95;"))]);
    let bytes = serde_json::to_string(CANARY.as_bytes()).unwrap_or_default();
    plant("bytes", ID, &[&bytes]);
    plant("percent", ID, &[&line(&CANARY.replace('_', "%5F"))]);
    plant(
        "ansi",
        ID,
        &[&line(&CANARY.replace("0123", "01\x1b[31m23\x1b[0m"))],
    );
    plant("base64", ID, &[&STANDARD.encode(CANARY)]);
    plant("hex", ID, &[&hex::encode(CANARY)]);
    // a text that does not shrink stands in a compressed one as it is
    let shrinks = format!("{} {CANARY}", "so ".repeat(64));
    plant("gzip", ID, &[&hex::encode(gzip(&shrinks))]);
    let (one, two) = CANARY.split_at(17);
    let delta = |text: &str| {
        serde_json::json!({"type": "text-delta", "id": "1", "delta": text}).to_string()
    };
    plant("join", ID, &[&delta(one), &delta(two)]);
    plant("keys", "sensitive-key", &[r#"{"password":"hunter"}"#]);
    plant("numbers", "sensitive-key", &[r#"{"password":123456}"#]);
    plant("shapes", shapes::ID, &[&line(CANARY)]);
    for rule in &gate.rules.rules {
        if !(rule.personal && gate.profile == Profile::Secrets) {
            plant(&rule.id, &rule.id, &[&rule.canary]);
        }
    }
    if gate.profile != Profile::Secrets {
        plant(
            "high-entropy",
            "high-entropy",
            &["x Zk93hfQ8vLq2RtWm71kdT5xNe9YpAb3C"],
        );
        plant("card", "card", &["pay 4111 1111 1111 1111"]);
        plant("card-number", "card", &[r#"{"n":4111111111111111}"#]);
        plant("iban", "iban", &["to DE89 3704 0044 0532 0130 00"]);
        plant("phone", "phone", &["call +49 30 901820 now"]);
    }
    if gate.profile == Profile::WithNationalIds {
        plant("national-id", "national-id", &["ssn 536-22-8726"]);
    }
    if gate.check([CLEAN.as_bytes()]).is_err() {
        missed.push("clean text".to_owned());
    }
    missed
}

fn gzip(text: &str) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let written = out.write_all(text.as_bytes()).and_then(|()| out.finish());
    // memory takes every byte; an empty one would be missed, and the gate refuse to serve
    written.unwrap_or_default()
}
