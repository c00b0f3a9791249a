//! Deltas as the text they join to: every case of a split, in a recorded conversation.

use bex_redact::Conversation;
use serde_json::json;

use crate::cases::{PAT, delta, jwt, record};
use crate::{clean, gate, redactor, refusal};

fn pieces(text: &str, cuts: &[usize]) -> Vec<String> {
    let mut out = Vec::new();
    let mut at = 0;
    for cut in cuts {
        out.push(text[at..*cut].to_owned());
        at = *cut;
    }
    out.push(text[at..].to_owned());
    out
}

#[test]
fn a_token_split_at_every_position_over_two_and_three_deltas() {
    let text = format!("it is {PAT} ok");
    let gate = gate();
    let mut rounds = 0;
    for first in 6..6 + PAT.len() {
        for second in (first..6 + PAT.len()).step_by(7) {
            let pieces = pieces(&text, &[first, second]);
            let lines: String = pieces
                .iter()
                .enumerate()
                .map(|(at, p)| record(at, &delta(p)))
                .collect();
            let out = clean(&redactor(), &lines);
            let joined = joined(&out);
            assert!(
                joined.starts_with("it is [redacted:github-token:") && joined.ends_with("] ok"),
                "{first} {second}: {joined}"
            );
            assert_eq!(out.lines().count(), 3);
            rounds += 1;
            if rounds % 16 == 0 {
                assert_eq!(refusal(gate, &out), Vec::<String>::new());
            }
        }
    }
}

fn joined(lines: &str) -> String {
    let delta = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).expect("JSON stays JSON");
        record["part"]["delta"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    lines.lines().map(delta).collect()
}

#[test]
fn over_the_borders_of_texts_and_between_other_parts() {
    let redactor = redactor();
    let mut conversation = Conversation::new(&redactor);
    let jwt = jwt();
    for (at, piece) in pieces(&format!("Bearer {jwt}."), &[20, 60, 90])
        .iter()
        .enumerate()
    {
        conversation.push(
            (record(at, &delta(piece)) + &record(at, &json!({"type": "data-x", "data": 1})))
                .into_bytes(),
        );
    }
    let (texts, counts) = conversation.finish();
    let out = String::from_utf8(texts.concat()).unwrap();
    let joined = joined(&out);
    assert!(
        joined.starts_with("Bearer [redacted:jwt:") && joined.ends_with("]."),
        "{joined}"
    );
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [("jwt", 1)]);
}

#[test]
fn runs_of_other_turns_kinds_and_ids_are_not_joined() {
    let lines = record(0, &delta(&PAT[..14]))
        + &record(
            1,
            &json!({"type": "reasoning-delta", "id": "t1", "delta": &PAT[14..20]}),
        )
        + &record(
            1,
            &json!({"type": "text-delta", "id": "t2", "delta": &PAT[14..20]}),
        )
        + &record(1, &delta(&PAT[14..20])).replace(r#""turn":1"#, r#""turn":2"#);
    assert_eq!(clean(&redactor(), &lines), lines);
}

#[test]
fn tool_input_and_escaped_names_are_joined() {
    let input =
        |text: &str| json!({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": text});
    let lines = record(0, &input(r#"{"command":"x","password":"hun"#))
        + &record(1, &input(r#"ter2hunter2"}"#)).replace("delta", r"d\u0065lta");
    let out = clean(&redactor(), &lines);
    assert!(
        !out.contains("hun") && !out.contains("ter2hunter2"),
        "{out}"
    );
}
