//! Whatever the text: JSON stays JSON, twice is once, and the gate lets through what comes out.

use bex_redact::{Profile, Redactor, TokenKey};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cases::PAT;
use crate::{clean, gate, redactor, refusal};

/// Pieces that rules are interested in.
fn piece() -> impl Strategy<Value = String> {
    let known = prop_oneof![
        Just(PAT),
        Just("password"),
        Just("="),
        Just(": "),
        Just("hunter2x"),
        Just("\""),
        Just("\\"),
        Just("\\\""),
        Just(" "),
        Just("\n"),
        Just("@acme.io"),
        Just("ada"),
        Just("-----BEGIN PRIVATE KEY-----"),
        Just("MIIEow"),
        Just("-----END PRIVATE KEY-----"),
        Just("://u:"),
        Just("%41"),
        Just("%"),
        Just("\x1b[1m"),
        Just("\\u0041"),
        Just("eyJhbGciOiJIUzI1NiJ9"),
        Just("."),
        Just("Bearer "),
        Just("4111 1111 1111 1111"),
        Just("[redacted:jwt:12ab]"),
        Just("[redacted:"),
        Just("{"),
        Just("}"),
        Just("é"),
        Just("Z2hwX2I3Wms5M2hmUTh2THEyUnRXbTcxa2RUNXhOZTlZcDFhQjNjRA=="),
        Just("token"),
        Just("'"),
        Just("secret_key"),
        Just("Zk93hfQ8vLq2RtWm71kdT5xNe9YpAb3C"),
    ];
    prop_oneof![4 => known.prop_map(str::to_owned), 1 => "[ -~]{0,12}"]
}

pub fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(piece(), 0..14).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((text(), inner.clone()), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            inner.prop_map(|v| json!(v.to_string())),
        ]
    })
}

/// The same shape: everything but strings is as it was.
fn same_shape(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_shape(a, b))
        }
        (Value::Object(a), Value::Object(b)) => a.len() >= b.len(),
        (Value::String(_) | Value::Number(_), Value::String(_)) => true,
        (a, b) => a == b,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn texts(text in text()) {
        let gate = gate();
        let out = clean(&redactor(), &text);
        prop_assert_eq!(refusal(gate, &out), Vec::<String>::new(), "{:?}", out);
        prop_assert_eq!(&clean(&redactor(), &out), &out);
    }

    #[test]
    fn documents(value in value()) {
        let gate = gate();
        let text = json!([value]).to_string();
        let out = clean(&redactor(), &text);
        let parsed: Value = serde_json::from_str(&out).expect("JSON stays JSON");
        prop_assert!(same_shape(&json!([value]), &parsed), "{}", out);
        prop_assert_eq!(refusal(gate, &out), Vec::<String>::new(), "{}", out);
        prop_assert_eq!(&clean(&redactor(), &out), &out);
    }

    #[test]
    fn a_token_anywhere_in_a_document_is_gone(value in value(), depth in 0usize..4, before in "[a-z ,.=-]{0,9}", after in "[ ,.\"\n]{1}[a-z]{0,9}") {
        let mut planted = json!({"a": format!("{before}{PAT}{after}")});
        for _ in 0..depth {
            planted = json!({"in": planted.to_string(), "other": value});
        }
        let out = Redactor::new(Profile::Secrets, TokenKey::new(b"k")).redact_str(&planted.to_string()).into_owned();
        prop_assert!(!out.contains(PAT), "{}", out);
        prop_assert!(serde_json::from_str::<Value>(&out).is_ok());
    }
}
