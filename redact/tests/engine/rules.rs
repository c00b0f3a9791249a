//! Each rule's own samples.

use bex_redact::{Profile, Redactor, Rules, TokenKey};

use crate::{clean, gate, refusal};

#[test]
fn every_rule_finds_its_samples_and_leaves_the_others() {
    let redactor = Redactor::new(Profile::WithNationalIds, TokenKey::new(b"test"));
    let mut failed = Vec::new();
    for rule in Rules::get().iter() {
        assert!(
            !rule.positive.is_empty() && !rule.negative.is_empty() && rule.version > 0,
            "{}",
            rule.id
        );
        let token = format!("[redacted:{}:", rule.id);
        for text in &rule.positive {
            // another rule may take more than this one, but something is taken
            let out = redactor.redact_str(text);
            if !out.contains("[redacted:")
                || (Some(text) == rule.positive.first() && !out.contains(&token))
            {
                failed.push(format!("{} should be in {text:?}: {out:?}", rule.id));
            }
        }
        for text in &rule.negative {
            let out = redactor.redact_str(text);
            if out.contains(&token) {
                failed.push(format!("{} should not be in {text:?}: {out:?}", rule.id));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn what_was_redacted_is_not_redacted_again_and_passes_the_gate() {
    for rule in Rules::get().iter() {
        for sample in &rule.positive {
            for text in [
                sample.clone(),
                format!("so {sample} now"),
                format!("({sample})"),
                format!("[{sample}]"),
                serde_json::json!({"a": sample, "b": [sample]}).to_string(),
            ] {
                assert_ne!(refusal(gate(), &text), Vec::<String>::new(), "{text}");
                let out = clean(&crate::redactor(), &text);
                assert_eq!(refusal(gate(), &out), Vec::<String>::new(), "{out}");
                assert_eq!(clean(&crate::redactor(), &out), out, "{text}");
                assert!(!out.contains("]]]"), "{out}");
            }
        }
    }
}

#[test]
fn ids_are_unique() {
    let mut ids: Vec<&str> = Rules::get().iter().map(|r| r.id.as_str()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

/// What stands near secrets and is none.
#[test]
fn what_is_not_touched() {
    let redactor = Redactor::new(Profile::WithNationalIds, TokenKey::new(b"test"));
    for text in [
        "commit 2f7c1d5b9a3e4f60718293a4b5c6d7e8f9012345",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "3f2504e0-4f89-11d3-9a0c-446655440000",
        "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        r#"{"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","at":"2026-08-18T10:00:00.000Z","ms":1716239022000,"us":1716239022000000,"ns":1716239022000000000}"#,
        "2026-08-18T10:00:00.000+02:00 1716239022000 1716239022.123456",
        "ags-01J9ZC3V5WQ8K7 run-3f2504e0-4f89-41d3-9a0c-446655440000 pkg-abcdefghijklmnopqrst exec-01J9ZC3V5W 3.91",
        r#"{"toolCallId":"toolu_01XFDUDYJgAACzvnptvVoYEL","id":"msg_01XFDUDYJgAACzvnptvVoYEL","totalTokens":123456,"maxTokens":4096}"#,
        r#"{"type":"reasoning-end","providerMetadata":{"anthropic":{"signature":"EqoBCkgIARABGAIiQL8Zk93hfQ8vLq2RtWm71kdT5xNe9Yp1aB3cDZk93hfQ8vLq2Rt"}}}"#,
        "sha512-Zk93hfQ8vLq2RtWm71kdT5xNe9YpAb3CZk93hfQ8vLq2RtWm71kdT5xZk93hfQ8vLq2RtWm71kdT5xw==",
        "Bearer authentication, key: undefined, a private key, the password is wrong, token expired, secret sauce",
        r#"{"password":"","secret":null,"token":"<token>","api_key":"${API_KEY}","has_password":true}"#,
        "[redacted:github-token:7f3a] password=[redacted:assignment:0a1b] [redacted:unresolved]",
    ] {
        assert_eq!(redactor.redact_str(text), text);
    }
}
