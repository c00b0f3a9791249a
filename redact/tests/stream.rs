//! What a reader of the redacted stream can put together never holds a credential.

use base64::Engine;
use bex_redact::{MARKER, Secrets, StreamRedactor};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

const KINDS: [(&str, &str, &str); 3] = [
    ("text-delta", "id", "delta"),
    ("reasoning-delta", "id", "delta"),
    ("tool-input-delta", "toolCallId", "inputTextDelta"),
];

fn run(secrets: &Secrets, parts: &[Value]) -> Vec<Value> {
    let (mut redactor, mut out) = (StreamRedactor::new(secrets.clone()), Vec::new());
    for part in parts {
        redactor.push(Bytes::from(part.to_string()), &mut out);
    }
    redactor.end(&mut out);
    out.iter()
        .map(|part| serde_json::from_slice(part).expect("redaction keeps JSON"))
        .collect()
}

/// The joined text of one run.
fn joined(parts: &[Value], kind: usize, id: &str) -> String {
    let (name, id_name, text_name) = KINDS[kind];
    parts
        .iter()
        .filter(|p| p["type"] == name && p[id_name] == id)
        .map(|p| p[text_name].as_str().expect("a text"))
        .collect()
}

/// Cuts a text at the given places (taken modulo its length, moved to character borders).
fn cut(text: &str, places: &[usize]) -> Vec<String> {
    let mut places: Vec<usize> = places
        .iter()
        .map(|p| {
            let mut place = p % (text.len() + 1);
            while !text.is_char_boundary(place) {
                place -= 1;
            }
            place
        })
        .collect();
    places.sort_unstable();
    let (mut pieces, mut at) = (Vec::new(), 0);
    for place in places {
        pieces.push(text[at..place].to_owned());
        at = place;
    }
    pieces.push(text[at..].to_owned());
    pieces
}

fn deltas(kind: usize, id: &str, pieces: &[String]) -> Vec<Value> {
    let (name, id_name, text_name) = KINDS[kind];
    pieces
        .iter()
        .map(|piece| json!({"type": name, id_name: id, text_name: piece}))
        .collect()
}

fn encodings(secret: &str) -> Vec<String> {
    let quoted = serde_json::to_string(secret).expect("JSON");
    let mut all = vec![secret.to_owned(), quoted[1..quoted.len() - 1].to_owned()];
    if secret.len() >= 16 {
        all.push(secret.bytes().map(|b| format!("{b:02x}")).collect());
        all.push(secret.bytes().map(|b| format!("%{b:02X}")).collect());
        all.push(base64::engine::general_purpose::STANDARD.encode(secret));
        all.push(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(format!("x{secret}yz")));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_planted_secret_never_comes_out(
        secret in "[ab/\"é😀]{6,40}",
        other in "[ab]{6,9}",
        text in proptest::collection::vec("[ab/ é]{0,12}", 1..5),
        which in any::<usize>(),
        places in proptest::collection::vec(any::<usize>(), 0..12),
        noise in proptest::collection::vec(any::<usize>(), 0..12),
        kind in 0usize..3,
    ) {
        let secrets = Secrets::new([secret.as_str(), other.as_str()]);
        let encodings = encodings(&secret);
        let planted = &encodings[which % encodings.len()];
        let said = text;
        let text = said.join(planted) + planted + &other;
        // deltas of another run stand between, which must not disturb the first
        let first = deltas(kind, "r", &cut(&text, &places));
        let second = deltas((kind + 1) % 3, "r", &cut(&text, &noise));
        let mut parts = Vec::new();
        let (mut a, mut b) = (first.into_iter(), second.into_iter());
        loop {
            match (a.next(), b.next()) {
                (None, None) => break,
                (x, y) => parts.extend(x.into_iter().chain(y)),
            }
        }
        let out = run(&secrets, &parts);
        for kind in [kind, (kind + 1) % 3] {
            let shown = joined(&out, kind, "r");
            prop_assert!(!shown.contains(&secret), "{shown}");
            prop_assert!(!shown.contains(&other), "{shown}");
            // of the encoded text the part that depends on the secret alone must be gone; what was said beside it may look like it
            let core: String = planted.chars().skip(4.min(planted.len() / 4)).collect();
            let is_said = core.len() < 6 || said.iter().any(|piece| piece.contains(&core));
            prop_assert!(is_said || !shown.contains(&core), "{shown}");
            prop_assert!(shown.contains(MARKER));
        }
    }

    #[test]
    fn text_without_secrets_passes(text in "[ab/\"é😀\\\\ ]{0,60}", places in proptest::collection::vec(any::<usize>(), 0..9), kind in 0usize..3) {
        let secrets = Secrets::new(["aaab!aab", "abab!éé", "ba\"é\\!0123456789"]);
        let out = run(&secrets, &deltas(kind, "r", &cut(&text, &places)));
        prop_assert_eq!(joined(&out, kind, "r"), text);
    }

    #[test]
    fn parts_that_hold_nothing_keep_their_bytes(text in "[x-z \"\u{1}é]{0,40}") {
        let secrets = Secrets::new(["abcdefgh"]);
        let part = Bytes::from(format!("{{ \"id\": \"1\",\"type\":\"text-delta\",\"delta\":{} }}", json!(text)));
        let (mut redactor, mut out) = (StreamRedactor::new(secrets), Vec::new());
        redactor.push(part.clone(), &mut out);
        prop_assert_eq!(out, [part]);
    }
}

fn delta(id: &str, text: &str) -> Value {
    json!({"type": "text-delta", "id": id, "delta": text})
}

#[test]
fn held_text_goes_out_with_the_next_delta_or_at_the_end_of_its_run() {
    let secrets = Secrets::new(["hunter2hunter2"]);
    let out = run(
        &secrets,
        &[
            json!({"type": "text-start", "id": "1"}),
            delta("1", "the hunt"),
            delta("2", "hunter2"),
            delta("1", " is on, hunter2"),
            json!({"type": "text-end", "id": "1"}),
            json!({"type": "finish"}),
        ],
    );
    assert_eq!(
        out,
        [
            json!({"type": "text-start", "id": "1"}),
            delta("1", "the "),
            delta("2", ""),
            delta("1", "hunt is on, "),
            delta("1", "hunter2"),
            json!({"type": "text-end", "id": "1"}),
            delta("2", "hunter2"),
            json!({"type": "finish"}),
        ]
    );
}

#[test]
fn a_secret_that_is_the_beginning_of_another_and_endless_overlaps_are_bounded() {
    let secrets = Secrets::new(["abcdef", "abcdefghij"]);
    let out = run(
        &secrets,
        &[
            delta("1", "abcdef"),
            delta("1", "ghij."),
            delta("1", "abcdef"),
        ],
    );
    assert_eq!(joined(&out, 0, "1"), format!("{MARKER}.{MARKER}"));

    let secrets = Secrets::new(["aaaaaa"]);
    let parts: Vec<Value> = (0..1000).map(|_| delta("1", "aaaa")).collect();
    let out = run(&secrets, &parts);
    assert_eq!(joined(&out, 0, "1"), MARKER);
}

#[test]
fn other_spellings_of_an_id_and_of_a_kind_are_the_same_run() {
    let secrets = Secrets::new(["hunter2hunter2"]);
    let (mut redactor, mut out) = (StreamRedactor::new(secrets), Vec::new());
    for part in [
        r#"{"type":"text-delta","id":"a","delta":"hunter2"}"#,
        r#"{"type":"text-\u0064elta","id":"\u0061","delta":"\u0068unter2"}"#,
        r#"{"type":"text-delta","id":"b","delta":"hunter2","delta":"x"}"#,
    ] {
        redactor.push(Bytes::from_static(part.as_bytes()), &mut out);
    }
    let shown: Vec<_> = out
        .iter()
        .map(|p| String::from_utf8_lossy(p).into_owned())
        .collect();
    assert_eq!(
        shown,
        [
            r#"{"type":"text-delta","id":"a","delta":""}"#,
            r#"{"type":"text-\u0064elta","id":"\u0061","delta":"[redacted:credential]"}"#,
            r#"{"type":"data-redacted"}"#,
        ]
    );
}

#[test]
fn a_surrogate_pair_split_over_deltas_stays_whole() {
    let (mut redactor, mut out) = (StreamRedactor::new(Secrets::new(["not-here"])), Vec::new());
    for part in [
        r#"{"type":"text-delta","id":"a","delta":"x\ud83d"}"#,
        r#"{"type":"text-delta","id":"a","delta":"\ude00y\ud800"}"#,
    ] {
        redactor.push(Bytes::from_static(part.as_bytes()), &mut out);
    }
    redactor.end(&mut out);
    let shown: Vec<_> = out
        .iter()
        .map(|p| String::from_utf8_lossy(p).into_owned())
        .collect();
    assert_eq!(
        shown,
        [
            r#"{"type":"text-delta","id":"a","delta":"x"}"#,
            r#"{"type":"text-delta","id":"a","delta":"😀y"}"#,
            r#"{"type":"text-delta","id":"a","delta":"\ud800"}"#,
        ]
    );
}
