//! Deltas join wherever they stand: in lines, in events, in arrays of a document, in texts within texts.

use serde_json::{Value, json};

use crate::cases::PAT;
use crate::{clean, gate, redactor, refusal};

fn piece(text: &str) -> Value {
    json!({"type": "text-delta", "id": "t1", "delta": text})
}

fn event(part: &Value) -> String {
    format!("data: {part}\n\n")
}

/// Every form in which recorded parts are kept, with the secret over two or three of them.
fn forms(pieces: &[&str]) -> Vec<(&'static str, String)> {
    let parts: Vec<Value> = pieces.iter().map(|text| piece(text)).collect();
    let records = |part: &Value| json!({"session": "ags-1", "turn": 1, "part": part});
    let lines: String = parts.iter().map(|part| format!("{part}\n")).collect();
    let events: String = parts.iter().map(event).collect();
    let named: String = parts
        .iter()
        .enumerate()
        .map(|(at, part)| format!("id: 1.{at}\nretry: 1000\ndata:{part}\n\n"))
        .collect();
    let array = Value::from(parts.clone());
    let wrapped = json!({"parts": parts.iter().map(records).collect::<Vec<_>>()});
    let messages =
        json!({"messages": [{"role": "user", "parts": []}, {"role": "assistant", "parts": parts}]});
    let pretty = serde_json::to_string_pretty(&messages).expect("JSON");
    let output = |text: &str| json!({"type": "tool-output-available", "output": text}).to_string();
    vec![
        ("an array", array.to_string()),
        ("an array over lines", pretty),
        ("arrays in a line", format!("{messages}\n{{\"a\":1}}\n")),
        ("records in an array", wrapped.to_string()),
        (
            "events",
            format!(": stream-open\n\n{events}data: [DONE]\n\n"),
        ),
        ("events with names", named),
        ("lines in a text", output(&lines)),
        ("events in a text", output(&events)),
        ("an array in a text", output(&array.to_string())),
        (
            "a document in a text in a text",
            output(&output(&wrapped.to_string())),
        ),
    ]
}

#[test]
fn what_is_cut_over_deltas_is_found_in_every_form() {
    for cut in [1, 9, 20, PAT.len() - 1] {
        let (head, tail) = PAT.split_at(cut);
        let (first, last) = (format!("it is {head}"), format!("{tail} I think"));
        let middle = tail.len() / 2;
        for pieces in [
            vec![&first[..], &last],
            vec![&first, &tail[..middle], &last[middle..]],
        ] {
            for (form, text) in forms(&pieces) {
                let out = clean(&redactor(), &text);
                let longest = if head.len() > tail.len() { head } else { tail };
                assert!(out.contains("[redacted:github-token:"), "{form}: {out}");
                assert!(
                    !out.contains(&longest[..longest.len() / 2]),
                    "{form}: {out}"
                );
                assert!(
                    out.contains("it is ") && out.contains(" I think"),
                    "{form}: {out}"
                );
                assert_eq!(refusal(gate(), &out), Vec::<String>::new(), "{form}: {out}");
                assert_eq!(clean(&redactor(), &out), out, "{form}");
                assert!(
                    refusal(gate(), &text).contains(&"github-token".to_owned()),
                    "{form}: the gate"
                );
            }
        }
    }
}

#[test]
fn documents_stay_documents() {
    let (head, tail) = PAT.split_at(20);
    let numbers = format!(
        r#"{{ "n" : 12345678901234567890123, "parts" : [ {}, {} ], "z":1.50 }}"#,
        piece(head),
        piece(tail)
    );
    let out = clean(&redactor(), &numbers);
    serde_json::from_str::<Value>(&out).expect("JSON");
    assert!(
        out.starts_with(r#"{ "n" : 12345678901234567890123, "parts" : [ {"#),
        "{out}"
    );
    assert!(out.ends_with(r#" ], "z":1.50 }"#), "{out}");
}

/// Two arrays are two texts: nothing is found that neither says.
#[test]
fn arrays_have_nothing_to_do_with_each_other() {
    let card = ["4111 1111 ", "1111 1111"];
    let apart =
        json!([{"parts": [piece("n "), piece(card[0])]}, {"parts": [piece(card[1]), piece(" m")]}]);
    let apart = apart.to_string();
    assert_eq!(clean(&redactor(), &apart), apart);
    assert_eq!(refusal(gate(), &apart), Vec::<String>::new());
    let together = json!([{"parts": [piece(card[0]), piece(card[1])]}]).to_string();
    assert!(clean(&redactor(), &together).contains("[redacted:card:"));
    assert_eq!(refusal(gate(), &together), ["card"]);
}

/// A hostile document costs time in proportion to its length, whatever it nests.
#[test]
fn nests_of_deltas_are_bounded() {
    let mut text = format!("{}\n{}\n", piece("a"), piece("b"));
    while text.len() < 256 * 1024 {
        text = format!("{}\n{}\n", piece(&text), piece(&text));
    }
    let begun = std::time::Instant::now();
    let out = clean(&redactor(), &text);
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    for line in out.lines() {
        serde_json::from_str::<Value>(line).expect("JSON");
    }
}
