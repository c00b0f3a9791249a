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
