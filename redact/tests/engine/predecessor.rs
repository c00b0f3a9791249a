//! What the sanitiser before this one got wrong, by the number under which it was found: leaks (C1 to C8), refusals without a reason (C9),
//! over-redaction (C10), forms of text (C24, C25).

use bex_redact::{Gate, Profile, Redactor, Stage, TokenKey};
use serde_json::{Value, json};

use crate::cases::{PAT, pem};
use crate::{clean, gate, redactor, refusal};

/// The secret is taken out, the gate refuses it as it stands and lets through what comes out.
fn assert_handled(text: &str, secret: &str, id: &str) {
    let out = clean(&redactor(), text);
    assert!(
        !out.contains(secret) && out.contains(&format!("[redacted:{id}:")),
        "{text}\n{out}"
    );
    assert_ne!(refusal(gate(), text), Vec::<String>::new(), "{text}");
    assert_eq!(refusal(gate(), &out), Vec::<String>::new(), "{out}");
}

fn assert_untouched(text: &str) {
    assert_eq!(clean(&redactor(), text), text);
    assert_eq!(refusal(gate(), text), Vec::<String>::new(), "{text}");
}

#[test]
fn c1_the_key_makes_the_value_a_secret() {
    assert_handled(
        r#"{"password":"hunter2hunter2"}"#,
        "hunter2",
        "sensitive-key",
    );
    assert_handled(
        r#"{"db":{"pass_phrase":"all small words"}}"#,
        "small",
        "sensitive-key",
    );
    assert_handled(
        r#"{"client_secret" : ["abcdefgh"]}"#,
        "abcdefgh",
        "sensitive-key",
    );
}

#[test]
fn c2_names_in_any_spelling_and_values_with_signs() {
    for (text, value) in [
        ("DB_PASSWORD=hunter2hunter2", "hunter2"),
        ("client_secret=hunter2hunter2", "hunter2"),
        ("AWS_KEY=Zk93hfQ8vLq2RtWm71kd", "Zk93hfQ8"),
        ("password='a!b$c.d@e9#x'", "a!b$c.d@e9#x"),
        (
            "export MY_APP_TOKEN=\"t0k.en!with$signs\"",
            "t0k.en!with$signs",
        ),
    ] {
        assert_handled(text, value, "assignment");
    }
}

#[test]
fn c3_keys_that_are_cut_encrypted_or_pgp() {
    let whole = pem();
    let (cut, _) = whole.split_at(whole.len() / 2);
    let line = whole.lines().nth(3).expect("a body");
    assert_handled(cut, line, "private-key");
    for kind in [
        "ENCRYPTED PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
        "OPENSSH PRIVATE KEY",
        "DSA PRIVATE KEY",
    ] {
        assert_handled(&cut.replace("RSA PRIVATE KEY", kind), line, "private-key");
    }
    let (_, rest) = whole.split_at(whole.len() / 2);
    let (_, rest) = rest.split_once('\n').expect("lines");
    let line = rest.lines().next().expect("a body");
    assert_handled(rest, line, "private-key-rest");
}

#[test]
fn c4_kinds_that_were_unknown() {
    let r = "Zk93hfQ8vLq2RtWm71kdT5xNe9Yp1aB3cDZk93hfQ8vLq2Rt";
    for (text, id) in [
        (format!("sk-proj-{}", &r[..40]), "openai-key"),
        (format!("sk-ant-api03-{}", &r[..40]), "anthropic-key"),
        (format!("glpat-{}", &r[..20]), "gitlab-token"),
        (format!("npm_{}", &r[..36]), "npm-token"),
        (format!("SG.{}.{}", &r[..22], &r[..43]), "sendgrid-key"),
        (format!("xapp-1-A0123456789-{}", &r[..20]), "slack-token"),
        (
            format!(
                "https://hooks.slack.com/services/T0AB12CD3/B0AB12CD3/{}",
                &r[..24]
            ),
            "slack-webhook",
        ),
        (format!("whsec_{}", &r[..32]), "stripe-key"),
        (format!("ya29.{}", &r[..40]), "gcp-token"),
        (format!("abc8Q~{}", &r[..34]), "azure-secret"),
        (format!("AccountKey={r}{r};"), "azure-account-key"),
        (
            "Authorization: Basic dXNlcjpodW50ZXIy".to_owned(),
            "authorization",
        ),
        ("Cookie: sid=Zk93hfQ8vLq2Rt".to_owned(), "cookie"),
        (
            format!("?X-Amz-Signature={}", "0123456789abcdef".repeat(4)),
            "url-signature",
        ),
        (format!("BEARER {}", &r[..24]), "bearer-token"),
    ] {
        let tail = &text[text.len() - 5..text.len() - 1];
        assert_handled(&format!("so {text} now"), tail, id);
    }
    let account = json!({"type": "service_account", "private_key_id": "0123456789abcdef0123456789abcdef01234567", "private_key": pem()}).to_string();
    assert_handled(&account, &pem()[40..80], "private-key");
}

#[test]
fn c5_urls_without_a_user_and_passwords_with_any_sign() {
    for url in [
        "redis://:Zk93hfQ8@cache:6379",
        "postgres://u:Zk93hfQ8/x:y@db/x",
        "amqp://svc:Zk93hfQ8@mq.prod.acme.io/v",
    ] {
        assert_handled(url, "Zk93hfQ8", "url-password");
        // the host behind a password is no e-mail address
        assert!(
            !clean(&redactor(), url).contains("[redacted:email"),
            "{url}"
        );
    }
}

#[test]
fn c6_long_runs_and_encoded_secrets() {
    let long = "Zk93hfQ8vLq2RtWm71kdT5xNe9Yp1aB3".repeat(3);
    assert_handled(&format!("x {long} y"), &long[..40], "high-entropy");
    let dashed = "Zk93-hfQ8_vLq2RtWm71kdT5xNe9Yp1aB3cD";
    assert_handled(&format!("x {dashed} y"), &dashed[6..], "high-entropy");
    let hex: String = PAT.bytes().map(|b| format!("{b:02X}")).collect();
    assert_handled(&hex, &hex[..40], "github-token");
    let url: String = PAT.bytes().map(|b| format!("%{b:02x}")).collect();
    assert_handled(&url, &url[..40], "github-token");
}

#[test]
fn c7_the_gate_knows_personal_data_numbers_and_keys() {
    for text in [
        "mail ada@acme.io",
        r#"{"n":4111111111111111}"#,
        r#"{"ada@acme.io":1}"#,
        "pay 4111 1111 1111 1111",
        "call +49 30 901820 now",
    ] {
        assert_ne!(refusal(gate(), text), Vec::<String>::new(), "{text}");
        assert_ne!(clean(&redactor(), text), text);
        assert_eq!(
            refusal(gate(), &clean(&redactor(), text)),
            Vec::<String>::new()
        );
    }
}

#[test]
fn c8_what_no_list_knows_is_unknown_to_one_only() {
    // with no rules at all in either of them, the shapes of the gate are left
    let blind = Redactor::new(Profile::Secrets, TokenKey::new(b"k")).without(Stage::Load);
    let gate = Gate::unchecked(Profile::Package, Stage::Load).expect("it reads its rules");
    for secret in [PAT.to_owned(), pem(), "AKIAZ5QWERTYUIOPASDF".to_owned()] {
        let out = clean(&blind, &format!("see {secret}"));
        assert!(
            refusal(&gate, &out).contains(&"gate-shape".to_owned()),
            "{out}"
        );
    }
}

#[test]
fn c9_what_the_gate_refuses_the_redactor_takes_out() {
    for text in [
        json!({ PAT: 1 }).to_string(),
        json!({"SecretAccessKey": "abcdefghij0123456789abcdefghij0123456789"}).to_string(),
        json!({"a": {"api_key=Zk93hfQ8vLq2RtWm71kd": true}}).to_string(),
        json!({"note": "\"SecretAccessKey\":\"abcdefghij0123456789abcdefghij0123456789\""})
            .to_string(),
    ] {
        assert_ne!(refusal(gate(), &text), Vec::<String>::new(), "{text}");
        let out = clean(&redactor(), &text);
        assert_eq!(refusal(gate(), &out), Vec::<String>::new(), "{out}");
        assert!(serde_json::from_str::<Value>(&out).is_ok(), "{out}");
    }
}

#[test]
fn c10_what_is_no_secret_stays() {
    for text in [
        "commit 2f7c1d5b9a3e4f60718293a4b5c6d7e8f9012345",
        "trace 4bf92f3577b34da6a3ce929d0e0e4736",
        "3f2504e0-4f89-11d3-9a0c-446655440000",
        "at 1716239022000",
        r#"{"ms":1716239022000,"text":"1716239022000"}"#,
        "Bearer authentication is used",
        "key: undefined, so it fails",
        r#"{"correlationId":"exec-01J9ZC3V5WQ8K7","orgId":"org-7f3a","runId":"run-3f2504e0-4f89-41d3-9a0c-446655440000","producerCommit":"2f7c1d5b9a3e4f60718293a4b5c6d7e8f9012345"}"#,
    ] {
        assert_untouched(text);
    }
}

#[test]
fn c10_a_name_that_says_id_hides_no_text() {
    for text in [
        r#"{"content":"card 4111 1111 1111 1111"}"#,
        r#"{"content":"4111111111111111"}"#,
        r#"{"paid":"4111111111111111"}"#,
        r#"{"data":"call +49 30 901820"}"#,
        r#"{"commit":"by 4111 1111 1111 1111"}"#,
    ] {
        assert_ne!(clean(&redactor(), text), text);
        assert_ne!(refusal(gate(), text), Vec::<String>::new(), "{text}");
    }
    assert_untouched(r#"{"itemId":"4111111111111111"}"#);
}

#[test]
fn c24_depth_lines_and_bytes() {
    // as deep as it likes, seen by its keys, in the redactor and in the gate, in memory and from a file
    let deep = |value: &str| format!("{}{value}{}", r#"{"a":"#.repeat(5000), "}".repeat(5000));
    let planted = deep(r#"{"password":"all small words"}"#);
    assert_handled(&planted, "small", "sensitive-key");
    assert!(gate().check_document(planted.as_bytes()).is_err());
    assert!(
        gate()
            .check_document(clean(&redactor(), &planted).as_bytes())
            .is_ok()
    );
    // JSON within prose, and lines of it
    assert_handled(
        "it said:\n{\"password\":\"all small words\"}\nand ended",
        "small",
        "sensitive-key",
    );
    assert_handled(
        "see {\"password\": \"hunter2 hunter2\"}!",
        "hunter2",
        "assignment",
    );
    // numbers, repeated keys, order and spaces are as they were
    let text =
        r#"{ "b":12345678901234567890123, "a" : 1e400,"a":1.50, "password":"x9", "é":"\u00e9\/" }"#;
    let out = clean(&redactor(), text);
    let (before, after) = text.split_once(r#""x9""#).expect("planted");
    assert!(out.starts_with(before) && out.ends_with(after), "{out}");
}

#[test]
fn c25_the_same_in_escaped_text() {
    // quotes and line ends as JSON has them, once and twice
    let text = format!(
        "password = \"Zk93 hfQ8 x9\"\nexport TOKEN='{PAT}'\n{}",
        pem()
    );
    let mut wrapped = text;
    for _ in 0..3 {
        wrapped = json!({ "out": wrapped }).to_string();
        for secret in [PAT, &pem()[40..80]] {
            let out = clean(&redactor(), &wrapped);
            assert!(!out.contains(secret), "{out}");
            assert_eq!(refusal(gate(), &out), Vec::<String>::new(), "{out}");
        }
        let ids = refusal(gate(), &wrapped);
        assert!(
            ["github-token", "private-key"]
                .iter()
                .all(|id| ids.contains(&(*id).to_owned())),
            "{ids:?}"
        );
    }
}
