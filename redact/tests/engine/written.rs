//! Secrets as people and programs write them down, and what only looks like that.

use serde_json::{Value, json};

use crate::{clean, gate, redactor, refusal};

/// Redactor and gate both know it, and what is left is whole.
fn assert_known(text: &str, secret: &str) {
    let out = clean(&redactor(), text);
    assert!(!out.contains(secret), "{text}: {out}");
    assert_ne!(refusal(gate(), text), Vec::<String>::new(), "{text}");
    assert_eq!(refusal(gate(), &out), Vec::<String>::new(), "{text}: {out}");
    assert_eq!(clean(&redactor(), &out), out, "{text}");
    if serde_json::from_str::<Value>(text).is_ok() {
        serde_json::from_str::<Value>(&out).expect("JSON stays JSON");
    }
}

fn assert_innocent(text: &str) {
    assert_eq!(clean(&redactor(), text), text);
    assert_eq!(refusal(gate(), text), Vec::<String>::new(), "{text}");
}

#[test]
fn in_pairs_turns_and_options() {
    const SECRET: &str = "hunter2hunter2";
    for value in [
        json!({"headers": [["X-Api-Key", SECRET], ["Accept", "*/*"]]}),
        json!(["X-Api-Key", SECRET]),
        json!({"rawHeaders": ["Accept", "*/*", "X-Api-Key", SECRET]}),
        json!({"argv": ["mysql", "--password", SECRET, "db"]}),
        json!({"db_password": {"sensitive": true, "type": "string", "value": SECRET}}),
        json!({"passwords": [{"value": SECRET}]}),
        json!([{"ParameterKey": "DbPassword", "ParameterValue": SECRET}]),
    ] {
        assert_known(&value.to_string(), SECRET);
    }
    for value in [
        json!({"required": ["password", "email"]}),
        json!(["Authorization", "Content-Type"]),
        json!({"exposedHeaders": ["Authorization", "Content-Type", "Cookie", "Accept"]}),
        json!({"argv": ["cargo", "--token", "--all-features", "x1y2"]}),
        json!({"password": {"label": "Your password", "value": ""}}),
        json!([["password", "username"], ["token", "sha256"]]),
        json!({"key": {"value": "an ordinary text of 16"}}),
    ] {
        assert_innocent(&value.to_string());
    }
}

#[test]
fn as_numbers() {
    assert_known(r#"{"db_password":-12345678}"#, "12345678");
    assert_known(r#"{"db_password":1234.5678}"#, "1234.5678");
    assert_known(r#"{"card":4111111111111111.0}"#, "4111111111111111");
    assert_innocent(r#"{"n":[4111111111111111.5,1e15,-0.0,0.0,123.0]}"#);
}

#[test]
fn on_command_lines_and_in_configurations() {
    for (text, secret) in [
        ("postgres://svc:hunter2pw@/x?host=/tmp", "hunter2pw"),
        ("postgres://svc:hunter2pw@%2Ftmp/x", "hunter2pw"),
        (
            "machine github.com\n  login ada\n  password hunter2pw\n",
            "hunter2pw",
        ),
        ("mysqldump -h db -u root -p'hunter2pw' x", "hunter2pw"),
        (
            r#"<add key="ApiSecret" value="hunter2pwhunter"/>"#,
            "hunter2pwhunter",
        ),
        ("<password><![CDATA[hunter2pw]]></password>", "hunter2pw"),
        (
            "SECRET_KEY_BASE=abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789",
            "abcdef0123456789",
        ),
    ] {
        assert_known(text, secret);
    }
    for text in [
        "mysql -h db -P 3306 -p < dump.sql",
        "login to the page and set a new password there",
        r#"<input name="password" value="" placeholder="your password"/>"#,
        "SELECT password \"p\" FROM t",
        "https://acme.io:8080/a@/b",
    ] {
        assert_innocent(text);
    }
}
