//! Every form of a secret in every place: as a key, cut at every position, over the borders of texts, in every string of a package's
//! schema.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bex_redact::Conversation;
use serde_json::{Value, json};

use crate::cases::{PAT, delta, gzip, jwt, output, pem, record};
use crate::planted::assert_gone;
use crate::{clean, gate, redactor, refusal};

/// A text that holds a secret, and what must be gone of it.
fn forms() -> Vec<(&'static str, String, String)> {
    let assigned = format!("GITHUB_TOKEN={PAT}");
    let hex: String = assigned.bytes().map(|b| format!("{b:02x}")).collect();
    let whole = |name, text: String| (name, text.clone(), text);
    vec![
        ("plain", format!("export {assigned}"), PAT.to_owned()),
        whole("base64", STANDARD.encode(&assigned)),
        whole("gzip", STANDARD.encode(gzip(&assigned))),
        whole("hex", hex),
        (
            "percent",
            format!("?t={}", PAT.replace('_', "%5F")),
            PAT[4..].to_owned(),
        ),
        (
            "unicode",
            PAT.replace("ghp_", r"\u0067\u0068p_"),
            PAT[4..].to_owned(),
        ),
        (
            "colours",
            format!("{}\x1b[0m{}", &PAT[..20], &PAT[20..]),
            PAT[20..].to_owned(),
        ),
        ("json", json!({"token": PAT}).to_string(), PAT.to_owned()),
        (
            "json in json",
            json!({"a": json!({"token": PAT}).to_string()}).to_string(),
            PAT.to_owned(),
        ),
        ("jwt", format!("Bearer {}", jwt()), jwt()),
        (
            "url",
            "postgres://svc:Zk93hfQ8vLq2Rt@db-7:5432/x".to_owned(),
            "Zk93hfQ8vLq2Rt".to_owned(),
        ),
    ]
}

/// The longest piece of a secret that is left in a text, of eight characters at least.
fn left(secret: &str, text: &str) -> Option<String> {
    let window = 8.min(secret.len());
    let pieces = secret.as_bytes().windows(window);
    pieces
        .map(|piece| String::from_utf8_lossy(piece).into_owned())
        .find(|piece| text.contains(piece))
}

#[test]
fn every_form_as_a_key() {
    for (name, text, gone) in forms() {
        for document in [
            json!({ &text: 1 }),
            json!({"part": {"type": "x", &text: "v"}}),
            output(&json!({ &text: {"in": []} }).to_string()),
        ] {
            assert_gone(
                gate(),
                name,
                std::slice::from_ref(&gone),
                &document.to_string(),
            );
        }
    }
}

/// Redacts deltas, in one text or each in a text of its own, and joins what comes out.
fn deltas(pieces: &[&str], apart: bool) -> (String, Vec<Vec<u8>>) {
    let redactor = redactor();
    let mut conversation = Conversation::new(&redactor);
    let lines: Vec<String> = pieces
        .iter()
        .enumerate()
        .map(|(at, piece)| record(at, &delta(piece)))
        .collect();
    if apart {
        lines
            .into_iter()
            .for_each(|line| conversation.push(line.into_bytes()));
    } else {
        conversation.push(lines.concat().into_bytes());
    }
    let (texts, _) = conversation.finish();
    let all = String::from_utf8(texts.concat()).unwrap();
    let joined = all.lines().map(|line| {
        let record: Value = serde_json::from_str(line).expect("JSON stays JSON");
        record["part"]["delta"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    });
    (joined.collect(), texts)
}

#[test]
fn every_form_cut_at_every_position_over_two_and_three_deltas() {
    let mut rounds = 0usize;
    for (name, text, gone) in forms() {
        let text = format!("it is {text} ok");
        let places: Vec<usize> = (1..text.len()).collect();
        for first in &places {
            // every second cut of the plain form, of the others those near and one far
            let seconds: Vec<usize> = if name == "plain" {
                (*first..text.len()).collect()
            } else {
                vec![*first, first + 1, first + 9, text.len() - 2]
            };
            for second in seconds
                .into_iter()
                .filter(|second| second >= first && *second < text.len())
            {
                let pieces = [&text[..*first], &text[*first..second], &text[second..]];
                rounds += 1;
                let (joined, texts) = deltas(&pieces, rounds.is_multiple_of(2));
                assert_eq!(
                    left(&gone, &joined),
                    None,
                    "{name} {first} {second}: {joined}"
                );
                assert!(
                    joined.contains("[redacted:"),
                    "{name} {first} {second}: {joined}"
                );
                if rounds.is_multiple_of(16) {
                    let passed = gate().check(texts.iter().map(Vec::as_slice));
                    assert_eq!(passed, Ok(()), "{name} {first} {second}: {joined}");
                }
            }
        }
    }
    assert!(rounds > 2000, "{rounds}");
}

#[test]
fn a_private_key_cut_at_every_position() {
    let pem: String = pem()
        .lines()
        .enumerate()
        .filter(|(at, _)| *at < 4 || *at > 24)
        .map(|(_, l)| format!("{l}\n"))
        .collect();
    let text = format!("key:\n{pem}done");
    let body = pem.lines().nth(2).expect("a body").to_owned();
    for first in 1..text.len() {
        let second = (first + 70).min(text.len());
        let (joined, _) = deltas(
            &[&text[..first], &text[first..second], &text[second..]],
            first.is_multiple_of(2),
        );
        assert_eq!(left(&body, &joined), None, "{first}: {joined}");
        assert!(
            joined.starts_with("key:\n[redacted:private-key:") && joined.ends_with("]\ndone"),
            "{first}: {joined}"
        );
    }
}

#[test]
fn over_the_borders_of_batches_and_pages() {
    // lines of one conversation, cut into texts at every line
    let (filler, pieces) = (
        record(0, &output("nothing")),
        [&PAT[..9], &PAT[9..20], &PAT[20..]],
    );
    let lines: Vec<String> = pieces
        .iter()
        .enumerate()
        .flat_map(|(at, piece)| [record(at, &delta(piece)), filler.clone()])
        .collect();
    for border in 0..=lines.len() {
        for other in border..=lines.len() {
            let redactor = redactor();
            let mut conversation = Conversation::new(&redactor);
            for page in [&lines[..border], &lines[border..other], &lines[other..]] {
                conversation.push(page.concat().into_bytes());
            }
            let (texts, counts) = conversation.finish();
            let all = String::from_utf8(texts.concat()).unwrap();
            assert_eq!(left(PAT, &all), None, "{border} {other}: {all}");
            assert_eq!(counts.values().sum::<usize>(), 1, "{counts:?}");
            assert_eq!(all.lines().count(), lines.len());
            // and the gate, over the same borders, before and after
            assert!(
                gate()
                    .check(
                        [&lines[..border], &lines[border..other], &lines[other..]]
                            .map(|page| page.concat().into_bytes())
                            .iter()
                            .map(Vec::as_slice)
                    )
                    .is_err()
            );
            assert_eq!(gate().check(texts.iter().map(Vec::as_slice)), Ok(()));
        }
    }
}

/// A value that a schema describes, with everything that it names, down to where it only says "object".
fn example(schema: &Value, root: &Value, depth: usize) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root
            .pointer(reference.trim_start_matches('#'))
            .expect("a definition");
        return example(target, root, depth);
    }
    if let Some(value) = schema.get("const") {
        return value.clone();
    }
    if let Some(first) = schema["enum"].as_array().and_then(|all| all.first()) {
        return first.clone();
    }
    for choice in ["anyOf", "oneOf", "allOf"] {
        if let Some(first) = schema[choice].as_array().and_then(|all| all.first()) {
            return example(first, root, depth);
        }
    }
    let kind = schema["type"]
        .as_str()
        .or_else(|| schema["type"][0].as_str());
    match kind {
        Some("string") => match schema["format"].as_str() {
            Some("date-time") => json!("2026-08-18T10:00:00.000Z"),
            _ => json!("text"),
        },
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([example(&schema["items"], root, depth + 1)]),
        _ if depth > 12 => Value::Null,
        _ => match schema["properties"].as_object() {
            Some(fields) => fields
                .iter()
                .map(|(name, field)| (name.clone(), example(field, root, depth + 1)))
                .collect(),
            // anything
            None => json!({"any": ["text", {"more": "text"}]}),
        },
    }
}

fn strings(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::String(_) => out.push(at.to_owned()),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(n, item)| strings(item, &format!("{at}/{n}"), out)),
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, field)| strings(field, &format!("{at}/{name}"), out)),
        _ => {}
    }
}

#[test]
fn every_string_of_every_schema_of_packages() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/schemas");
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("replay-package-") {
            continue;
        }
        seen += 1;
        let schema: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let envelope = example(&schema, &schema, 0);
        assert_eq!(
            clean(&redactor(), &envelope.to_string()),
            envelope.to_string()
        );
        assert_eq!(refusal(gate(), &envelope.to_string()), Vec::<String>::new());
        let mut pointers = Vec::new();
        strings(&envelope, "", &mut pointers);
        assert!(pointers.len() > 30, "{name}: {}", pointers.len());
        for pointer in pointers {
            for secret in [PAT, "ada.lovelace@acme.io", "4111 1111 1111 1111"] {
                let mut planted = envelope.clone();
                *planted.pointer_mut(&pointer).expect("it is there") =
                    format!("so {secret} it is").into();
                let planted = planted.to_string();
                assert_gone(gate(), &pointer, &[secret.to_owned()], &planted);
                // and by itself the gate refuses it, in memory and from a file
                assert_ne!(
                    refusal(gate(), &planted),
                    Vec::<String>::new(),
                    "{name} {pointer}"
                );
                assert!(
                    gate().check_document(planted.as_bytes()).is_err(),
                    "{name} {pointer}"
                );
            }
        }
    }
    assert!(seen > 0);
}
