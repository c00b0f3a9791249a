//! The stream redactor with rules.

use bex_redact::{Profile, Redactor, Secrets, StreamRedactor, TokenKey};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::cases::{PAT, jwt, pem};
use crate::planted::shared;

fn stream() -> StreamRedactor {
    StreamRedactor::new(Secrets::new(["known-value-1234"]))
        .with_rules(Redactor::new(Profile::Secrets, TokenKey::new(b"session")))
}

fn run(parts: &[Value]) -> Vec<Value> {
    let (mut stream, mut out) = (stream(), Vec::new());
    for part in parts {
        stream.push(Bytes::from(part.to_string()), &mut out);
    }
    stream.end(&mut out);
    out.iter()
        .map(|part| serde_json::from_slice(part).expect("JSON stays JSON"))
        .collect()
}

fn delta(text: &str) -> Value {
    json!({"type": "text-delta", "id": "1", "delta": text})
}

fn joined(parts: &[Value]) -> String {
    parts
        .iter()
        .filter(|p| p["id"] == "1")
        .filter_map(|p| p["delta"].as_str())
        .collect()
}

/// What comes out of a text cut at these places.
fn cut(text: &str, places: &[usize]) -> String {
    let mut parts = Vec::new();
    let mut at = 0;
    for place in places.iter().copied().chain([text.len()]) {
        parts.push(delta(&text[at..place]));
        at = place;
    }
    joined(&run(&parts))
}

#[test]
fn secrets_split_at_every_position() {
    let jwt = jwt();
    for (ahead, secret, behind) in [
        ("see ", PAT, " ok"),
        ("Bearer ", &jwt[..], "\n"),
        ("password=", "hunter2hunter2", " now"),
        ("{\"password\": \"", "correct horse 7", "\"}"),
        ("postgres://svc:", "Zk93hfQ8vLq2Rt", "@db:5432/x"),
        ("x=", "known-value-1234", "."),
        ("key sk-ant-", "api03-Zk93hfQ8vLq2RtZk93", "!"),
        ("Authorization: Basic ", "YWRhOmxvdmVsYWNlMTIz", "\n"),
    ] {
        let text = format!("so {ahead}{secret}{behind}");
        let whole = cut(&text, &[]);
        assert!(whole.contains("[redacted:"), "{whole}");
        for first in 1..text.len() {
            for places in [
                vec![first],
                vec![first, (first + 5).min(text.len())],
                vec![first / 2, first],
            ] {
                let out = cut(&text, &places);
                let window = secret.len().min(8);
                let left =
                    (0..=secret.len() - window).find(|at| out.contains(&secret[*at..at + window]));
                assert!(left.is_none(), "{places:?} of {text}: {out}");
                assert!(
                    out.starts_with("so ") && out.ends_with(behind),
                    "{places:?} of {text}: {out}"
                );
            }
        }
    }
}

#[test]
fn keys_line_by_line_and_byte_by_byte() {
    let pem = pem();
    let by_line: Vec<Value> = format!("key:\n{pem}done.")
        .split_inclusive('\n')
        .map(delta)
        .collect();
    let out = joined(&run(&by_line));
    assert!(
        out.starts_with("key:\n[redacted:private-key:") && out.ends_with("]\ndone."),
        "{out}"
    );
    let places: Vec<usize> = (1..pem.len()).collect();
    let out = cut(&pem, &places);
    assert!(!pem.lines().any(|line| out.contains(line)), "{out}");
    let base64 = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        format!("GITHUB_TOKEN={PAT}"),
    );
    let out = cut(&base64, &(1..base64.len()).collect::<Vec<_>>());
    assert!(!out.contains(&base64[12..]), "{out}");
}

#[test]
fn an_undecided_run_of_4_kib_is_taken_out() {
    let mut parts = vec![delta("a "), delta("ghp_")];
    parts.extend((0..6000).map(|_| delta("Ab1")));
    parts.push(delta(" end"));
    let out = joined(&run(&parts));
    assert_eq!(out, "a [redacted:unresolved] end");
    // a key that never ends
    let mut parts = vec![delta("-----BEGIN PRIVATE KEY-----\n")];
    parts.extend((0..200).map(|_| delta("MIIEowIBAAKCAQEAtn5vcm1hbAMIIEowIBAAKCAQEAtn5vcm1hbA\n")));
    parts.push(delta("-----END PRIVATE KEY-----\n"));
    parts.push(delta("(end)"));
    let out = joined(&run(&parts));
    assert_eq!(out, "[redacted:unresolved](end)");
}

#[test]
fn what_is_held_goes_out_at_the_end_of_its_run() {
    let out = run(&[
        delta("the ghp_"),
        json!({"type": "text-end", "id": "1"}),
        json!({"type": "finish"}),
    ]);
    assert_eq!(
        out,
        [
            delta("the "),
            delta("ghp_"),
            json!({"type": "text-end", "id": "1"}),
            json!({"type": "finish"})
        ]
    );
}

#[test]
fn the_whole_part_is_cleaned_and_personal_data_stays() {
    let out = run(&[
        json!({"type": "tool-output-available", "toolCallId": "c", "output": {"password": "hunter2", "mail": "ada@acme.io", "log": format!("a {PAT} b")}}),
    ]);
    let output = &out[0]["output"];
    assert!(
        output["password"]
            .as_str()
            .unwrap()
            .starts_with("[redacted:sensitive-key:"),
        "{output}"
    );
    assert_eq!(output["mail"], "ada@acme.io");
    assert!(!output.to_string().contains(PAT));
}

#[test]
fn of_recorded_streams_few_deltas_are_held_and_nothing_is_lost() {
    let Some(dir) = shared("data/ui-streams") else {
        return;
    };
    let (mut deltas, mut held, mut samples) = (0, 0, Vec::new());
    for entry in std::fs::read_dir(dir).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let parts: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|part| *part != "[DONE]")
            .collect();
        // without known credentials: a beginning of those may be one letter
        let rules = Redactor::new(Profile::Secrets, TokenKey::new(b"session"));
        let (mut stream, mut all) = (
            StreamRedactor::new(Secrets::new([])).with_rules(rules),
            Vec::new(),
        );
        for part in &parts {
            let mut out = Vec::new();
            stream.push(Bytes::from((*part).to_owned()), &mut out);
            if part.contains("-delta\"") {
                deltas += 1;
                let same = out.last().is_some_and(|last| last == part.as_bytes());
                held += usize::from(!same);
                if !same {
                    samples.push(format!(
                        "{part} -> {}",
                        String::from_utf8_lossy(&out.concat())
                    ));
                }
            }
            all.append(&mut out);
        }
        stream.end(&mut all);
        let texts = |parts: &mut dyn Iterator<Item = &[u8]>| {
            let mut joined = std::collections::BTreeMap::<String, String>::new();
            for part in parts {
                let part: Value = serde_json::from_slice(part).unwrap();
                let text = part["delta"]
                    .as_str()
                    .or(part["inputTextDelta"].as_str())
                    .unwrap_or_default();
                *joined
                    .entry(format!(
                        "{} {} {}",
                        part["type"], part["id"], part["toolCallId"]
                    ))
                    .or_default() += text;
            }
            joined
        };
        assert_eq!(
            texts(&mut all.iter().map(|p| &p[..])),
            texts(&mut parts.iter().map(|p| p.as_bytes()))
        );
    }
    assert!(
        deltas > 500 && held * 20 < deltas,
        "{held} of {deltas}: {:#?}",
        samples.iter().step_by(1 + held / 60).collect::<Vec<_>>()
    );
}
