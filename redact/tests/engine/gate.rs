//! The gate refuses by itself and tells nothing of what it found.

use bex_redact::{Gate, Profile};

use crate::cases::{self, delta, record};
use crate::{gate, refusal};

#[test]
fn a_refusal_holds_ids_only() {
    let refused = gate()
        .check([format!("x {} y", cases::PAT).as_bytes()])
        .expect_err("a token");
    let shown = format!("{refused} {refused:?}");
    assert!(
        shown.contains("github-token") && !shown.contains(&cases::PAT[4..]),
        "{shown}"
    );
}

#[test]
fn joined_over_texts_and_runs_kept_apart() {
    let gate = gate();
    let (one, two) = (
        record(0, &delta(&cases::PAT[..14])),
        record(1, &delta(&cases::PAT[14..])),
    );
    assert!(gate.check([one.as_bytes(), two.as_bytes()]).is_err());
    let start = record(1, &serde_json::json!({"type": "text-start", "id": "t1"}));
    assert!(
        gate.check([one.as_bytes(), start.as_bytes(), two.as_bytes()])
            .is_ok()
    );
}

#[test]
fn profiles_differ_in_personal_data() {
    let secrets = Gate::new(Profile::Secrets).expect("serves");
    let national = Gate::new(Profile::WithNationalIds).expect("serves");
    assert_eq!(
        refusal(&secrets, "ada@acme.io or 536-22-8726"),
        Vec::<String>::new()
    );
    assert_eq!(refusal(gate(), "ada@acme.io or 536-22-8726"), ["email"]);
    assert_eq!(
        refusal(&national, "ada@acme.io or 536-22-8726"),
        ["email", "national-id"]
    );
}

/// A reader that gives few bytes at a time, and fails where it is told to.
struct Dripping<'t>(&'t [u8], Option<usize>);

impl std::io::Read for Dripping<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.1.is_some_and(|left| left >= self.0.len()) {
            return Err(std::io::Error::other("gone"));
        }
        let length = self.0.len().min(into.len()).min(7);
        into[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        Ok(length)
    }
}

#[test]
fn a_document_is_read_piece_by_piece() {
    let ids = |text: &str| match gate().check_document(Dripping(text.as_bytes(), None)) {
        Ok(()) => Vec::new(),
        Err(bex_redact::DocumentError::Refused(refused)) => refused.ids.into_iter().collect(),
        Err(other) => panic!("{other:?}"),
    };
    for (text, found) in [
        (
            r#"{"a":[{"name":"API_KEY","value":"hunter2hunter2"}]}"#.to_owned(),
            vec!["sensitive-key"],
        ),
        (
            format!(r#"["\u0067hp_{}"]"#, &cases::PAT[4..]),
            vec!["gate-shape", "github-token", "high-entropy"],
        ),
        (
            format!(r#""{}""#, cases::PAT),
            vec!["gate-shape", "github-token", "high-entropy"],
        ),
        ("4111111111111111".to_owned(), vec!["card"]),
        (
            r#"{"pin_password": 123456}"#.to_owned(),
            vec!["sensitive-key"],
        ),
        (
            r#"{"a":"\ud800 b","password":"<token>","n":1e5,"m":-4111111111111111}"#.to_owned(),
            vec![],
        ),
        // what is no JSON, or more than one
        ("{\"a\":1} {\"b\":2}".to_owned(), vec!["gate-form"]),
        ("{\"a\":".to_owned(), vec!["gate-form"]),
        (String::new(), vec!["gate-form"]),
    ] {
        assert_eq!(ids(&text), found, "{text}");
    }
    let long = format!("[\"{}\"]", "a b ".repeat(100_000));
    assert_eq!(ids(&long), Vec::<String>::new());
    let gone = gate().check_document(Dripping(long.as_bytes(), Some(1000)));
    assert!(
        matches!(gone, Err(bex_redact::DocumentError::Read(_))),
        "{gone:?}"
    );
}
