//! Without a stage the planted secret comes through, the gate refuses what came out, and a gate without it does not serve.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bex_redact::{Class, Gate, GateError, Profile, Redactor, Rules, Stage, TokenKey};
use serde_json::json;

use crate::cases::{PAT, delta, gzip};
use crate::{clean, gate, refusal};

fn without(profile: Profile, stage: Stage) -> Redactor {
    Redactor::new(profile, TokenKey::new(b"test")).without(stage)
}

/// The secret survives without the stage and only then, and the gate sees it.
fn assert_needed(gate: &Gate, profile: Profile, stage: Stage, text: &str, secret: &str, id: &str) {
    let with = clean(&Redactor::new(profile, TokenKey::new(b"test")), text);
    assert!(!with.contains(secret), "{stage:?}: {with}");
    let out = clean(&without(profile, stage), text);
    assert!(out.contains(secret), "{stage:?}: {out}");
    assert!(
        refusal(gate, &out).contains(&id.to_owned()),
        "{stage:?}: {:?}",
        refusal(gate, &out)
    );
}

#[test]
fn every_decoder_is_needed() {
    let gate = gate();
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let packed = hex(&gzip(&format!("{} {PAT}", "so ".repeat(64))));
    let cases = [
        (
            Stage::Unescape,
            PAT.replace("ghp", r"\u0067hp"),
            PAT[4..].to_owned(),
        ),
        (
            Stage::Percent,
            format!("?t={}", PAT.replace('_', "%5F")),
            PAT[4..].to_owned(),
        ),
        (
            Stage::Entities,
            format!("<a>{}</a>", PAT.replace('_', "&#95;")),
            PAT[4..].to_owned(),
        ),
        (
            Stage::Bytes,
            json!({"data": PAT.as_bytes()}).to_string(),
            json!(PAT.as_bytes()[4..])
                .to_string()
                .replace(['[', ']'], ""),
        ),
        (Stage::Hex, hex(PAT.as_bytes()), hex(PAT.as_bytes())),
        (Stage::Base64, STANDARD.encode(PAT), STANDARD.encode(PAT)),
        (Stage::Gzip, packed.clone(), packed),
        (
            Stage::Ansi,
            format!("{}\x1b[0m{}", &PAT[..20], &PAT[20..]),
            PAT[..20].to_owned(),
        ),
        (
            Stage::Join,
            format!("{}\n{}\n", delta(&PAT[..14]), delta(&PAT[14..])),
            PAT[14..].to_owned(),
        ),
        (Stage::Load, PAT.to_owned(), PAT.to_owned()),
    ];
    for (stage, text, secret) in cases {
        assert_needed(
            gate,
            Profile::Secrets,
            stage,
            &text,
            &secret,
            "github-token",
        );
    }
    for (stage, text) in [
        (Stage::Keys, r#"{"password":"hunter"}"#),
        (Stage::Json, r#"{"passwords":["hunter"]}"#),
    ] {
        assert_needed(
            gate,
            Profile::Secrets,
            stage,
            text,
            "hunter",
            "sensitive-key",
        );
    }
}

#[test]
fn every_rule_is_needed() {
    let gate = gate();
    let mut failed = Vec::new();
    for rule in Rules::get().iter() {
        let profile = if rule.class == Class::Secret {
            Profile::Secrets
        } else {
            Profile::Package
        };
        let (stage, id) = (Stage::Rule(&rule.id), &rule.id);
        // the first sample that no other rule takes anything of
        let alone = rule
            .positive
            .iter()
            .find(|text| clean(&without(profile, stage), text) == **text);
        if !alone.is_some_and(|text| refusal(gate, text).contains(id)) {
            failed.push(format!("{id}: {alone:?}"));
        }
    }
    assert!(
        failed.is_empty(),
        "no sample that needs this rule alone: {failed:#?}"
    );
    for (id, text) in [
        ("high-entropy", "x Zk93hfQ8vLq2RtWm71kdT5xNe9YpAb3C"),
        ("card", "4111 1111 1111 1111"),
        ("iban", "DE89 3704 0044 0532 0130 00"),
        ("phone", "+49 30 901820"),
    ] {
        assert_needed(gate, Profile::Package, Stage::Rule(id), text, text, id);
    }
    let national = Gate::new(Profile::WithNationalIds).expect("it serves");
    let (stage, text) = (Stage::Rule("national-id"), "ssn 536-22-8726");
    assert_needed(
        &national,
        Profile::WithNationalIds,
        stage,
        text,
        "536-22-8726",
        "national-id",
    );
}

#[test]
fn a_gate_without_a_stage_does_not_serve() {
    let stages = [
        Stage::Keys,
        Stage::Json,
        Stage::Unescape,
        Stage::Percent,
        Stage::Entities,
        Stage::Bytes,
        Stage::Hex,
        Stage::Base64,
        Stage::Gzip,
        Stage::Ansi,
        Stage::Join,
        Stage::Load,
        Stage::Shapes,
    ];
    let rules = Rules::get().iter().map(|rule| Stage::Rule(&rule.id));
    let more = ["high-entropy", "card", "iban", "phone", "national-id"].map(Stage::Rule);
    for stage in stages.into_iter().chain(rules).chain(more) {
        match Gate::without(Profile::WithNationalIds, stage) {
            Err(GateError::SelfCheck(missed)) => assert!(!missed.is_empty()),
            other => panic!("{stage:?}: {other:?}"),
        }
    }
}

#[test]
fn a_stream_without_the_joiner_lets_a_split_secret_through() {
    let stream = |redactor: Redactor| {
        let (mut stream, mut out) = (
            bex_redact::StreamRedactor::new(bex_redact::Secrets::new([])).with_rules(redactor),
            Vec::new(),
        );
        for piece in [&PAT[..14], &PAT[14..]] {
            stream.push(
                json!({"type": "text-delta", "id": "1", "delta": piece})
                    .to_string()
                    .into(),
                &mut out,
            );
        }
        stream.end(&mut out);
        String::from_utf8(out.concat()).unwrap()
    };
    assert!(!stream(Redactor::new(Profile::Secrets, TokenKey::new(b"k"))).contains(&PAT[14..]));
    let out = stream(without(Profile::Secrets, Stage::Join)).replace("}{", "}\n{");
    assert!(out.contains(&PAT[14..]));
    assert!(refusal(gate(), &out).contains(&"github-token".to_owned()));
}
