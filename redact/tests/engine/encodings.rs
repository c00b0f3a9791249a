//! Forms of secrets beyond the rules' samples: keys, separators, encodings in encodings.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::cases::{PAT, gzip, pem};
use crate::{clean, gate, redactor, refusal};

fn assert_gone(text: &str, secret: &str) {
    let out = clean(&redactor(), text);
    assert!(
        !out.contains(secret) && out.contains("[redacted:"),
        "{text}\n{out}"
    );
    assert_eq!(refusal(gate(), &out), Vec::<String>::new(), "{out}");
    assert_ne!(refusal(gate(), text), Vec::<String>::new(), "{text}");
    assert_eq!(clean(&redactor(), &out), out);
}

#[test]
fn values_of_sensitive_keys() {
    for text in [
        r#"{"password":"hunter2hunter2"}"#,
        r#"{"password":"hunter2hunter2","n":1.50}"#,
        r#"{"db":{"DB_PASSWORD":"pre hunter2hunter2"}}"#,
        r#"{"passwords":["hunter2hunter2"]}"#,
        r#"{"env":[{"name":"API_KEY","value":"hunter2hunter2"}]}"#,
        r#"{"out":"{\"client_secret\":\"hunter2hunter2\"}"}"#,
        r#"see: {"password": "hunter2hunter2"} there"#,
        r#"{\"password\": \"hunter2hunter2\"}"#,
        "log\n{\"secret\":\"hunter2hunter2\"}\nend",
        "password: hunter2hunter2",
        "PGPASSWORD=hunter2hunter2 psql",
        "smtp.password=hunter2hunter2&x=1",
        "db_password := \"hunter2hunter2\"",
        "'password' => 'hunter2hunter2'",
        "https://x.io/cb?access_token=hunter2hunter2",
        "Authorization: Token hunter2hunter2",
        "?q=%7B%22password%22%3A%22hunter2hunter2%22%7D",
        "redis://:hunter2hunter2@cache:6379/0",
        "password=\x1b[1mhunter2hunter2\x1b[0m",
    ] {
        assert_gone(text, "hunter2hunter2");
    }
    assert_gone("AWS_KEY=Zk93hfQ8vLq2RtWm71", "Zk93hfQ8vLq2RtWm71");
    assert_gone(&format!("{PAT}{PAT}"), &PAT[4..]);
    let out = clean(
        &redactor(),
        r#"{"pin_password":123456,"n":123456,"big":123456789012345678901234567890,"n":1e400}"#,
    );
    assert!(
        out.starts_with(r#"{"pin_password":"[redacted:sensitive-key:"#)
            && out.ends_with(r#"]","n":123456,"big":123456789012345678901234567890,"n":1e400}"#),
        "{out}"
    );
    let inner = json!({"out": r#"{"api_secret":12345678}"#}).to_string();
    let out: serde_json::Value = serde_json::from_str(&clean(&redactor(), &inner)).unwrap();
    let out: serde_json::Value =
        serde_json::from_str(out["out"].as_str().unwrap()).expect("JSON in JSON stays JSON");
    assert!(
        out["api_secret"]
            .as_str()
            .unwrap()
            .starts_with("[redacted:")
    );
}

#[test]
fn encodings_within_encodings() {
    let line = format!("token {PAT} end");
    let base64 = STANDARD.encode(&line);
    let twice = STANDARD.encode(&base64);
    let packed_hex: String = gzip(&line).iter().map(|b| format!("{b:02x}")).collect();
    for text in [
        base64.clone(),
        twice.clone(),
        packed_hex.clone(),
        format!("data:text/plain;base64,{base64}"),
        format!("x{base64}"),
        format!("KEY={twice}"),
    ] {
        assert_gone(&text, &text[text.len() / 3..text.len() / 2]);
        assert_gone(
            &json!({"o": json!({"p": text}).to_string()}).to_string(),
            &text[text.len() / 3..text.len() / 2],
        );
    }
    // wrapped as `base64` and `xxd -p` do it
    let long = STANDARD.encode(pem());
    let wrapped: Vec<String> = long
        .as_bytes()
        .chunks(76)
        .map(|l| String::from_utf8_lossy(l).into_owned())
        .collect();
    assert_gone(&format!("out:\n{}\n$ ", wrapped.join("\n")), &wrapped[3]);
    let mut text = line;
    for depth in 0..8 {
        text = json!({ "in": text }).to_string();
        assert_gone(&text, PAT);
        assert!(depth < 8);
    }
}

#[test]
fn what_cannot_be_unpacked_within_bounds_goes() {
    let bomb = STANDARD.encode(gzip(&"a".repeat(5 * 1024 * 1024)));
    let out = clean(&redactor(), &json!({"o": bomb}).to_string());
    assert_eq!(out, r#"{"o":"[redacted:unresolved]"}"#);
    assert_eq!(refusal(gate(), &format!("see {bomb}")), ["gate-bytes"]);
}

#[test]
fn deep_json_is_no_danger() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(clean(&redactor(), &deep), deep);
    assert_eq!(refusal(gate(), &deep), Vec::<String>::new());
    let secret = format!("{}\"{PAT}\"{}", "[".repeat(2000), "]".repeat(2000));
    assert_gone(&secret, PAT);
}

#[test]
fn personal_data() {
    for (text, secret) in [
        ("mail ada.lovelace@acme.io", "ada.lovelace@acme.io"),
        (r#"{"ada@acme.io":1}"#, "ada@acme.io"),
        ("call +49 30 901820 today", "901820"),
        ("card 4111-1111-1111-1111", "4111-1111"),
        (r#"{"n":4111111111111111}"#, "4111111111111111"),
        ("IBAN: DE89370400440532013000", "DE89370400440532013000"),
    ] {
        assert_gone(text, secret);
    }
    let local = "a".repeat(64);
    assert!(!clean(&redactor(), &format!("{local}@acme.io")).contains('@'));
    assert!(clean(&redactor(), &format!("a{local}@acme.io")).contains('@'));
}

#[test]
fn digits_behind_a_prefix() {
    let hex: String = PAT.bytes().map(|b| format!("{b:02x}")).collect();
    for text in [
        format!("0x{hex}"),
        format!("SELECT '\\x{hex}'::bytea"),
        format!("blob-{}", hex.to_uppercase()),
        json!({"blob": format!("\\x{hex}")}).to_string(),
    ] {
        assert_gone(&text, &text[text.len() / 3..text.len() / 2]);
    }
}

#[test]
fn what_shows_nothing_hides_nothing() {
    for sign in [
        '\u{ad}', '\u{200b}', '\u{200e}', '\u{202e}', '\u{2060}', '\u{2066}', '\u{feff}',
    ] {
        let text = format!("it is {}{sign}{}", &PAT[..20], &PAT[20..]);
        assert_gone(&text, &PAT[4..20]);
        assert_gone(&text, &PAT[20..]);
    }
}

#[test]
fn texts_of_two_bytes_a_letter() {
    use base64::Engine;
    let text = format!("token: {PAT}\r\n");
    let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    for bytes in [little, big] {
        let packed = base64::engine::general_purpose::STANDARD.encode(&bytes);
        assert_gone(&packed, &packed[40..60]);
        let raw = String::from_utf8(bytes).unwrap();
        assert_gone(&raw, &raw[40..60]);
        let quoted = json!({"out": raw}).to_string();
        assert_gone(&quoted, &quoted[100..140]);
    }
    // zeroes between words join nothing
    let list = "DB_USER=ada\0HOME=/home/ada\0";
    assert_eq!(clean(&redactor(), list), list);
}

#[test]
fn markup() {
    assert_gone(
        "<div data-props=\"{&quot;password&quot;:&quot;hunter2hunter2&quot;}\">",
        "hunter2",
    );
    assert_gone("password&#61;hunter2hunter2", "hunter2");
    let page = "<a href=\"?a=1&amp;token=&lt;token&gt;\">&quot;no secrets&quot;</a>";
    assert_eq!(clean(&redactor(), page), page);
}

#[test]
fn arrays_of_bytes() {
    let bytes = format!("export GITHUB_TOKEN={PAT}\n").into_bytes();
    let piece = serde_json::to_string(&bytes[30..50])
        .unwrap()
        .replace(['[', ']'], "");
    assert_gone(
        &json!({"type": "Buffer", "data": bytes}).to_string(),
        &piece,
    );
    let pretty =
        serde_json::to_string_pretty(&json!({"n": 1, "data": bytes, "z": [1, 2]})).unwrap();
    let out = clean(&redactor(), &pretty);
    let read: serde_json::Value = serde_json::from_str(&out).expect("JSON stays JSON");
    assert_eq!((&read["n"], &read["z"]), (&json!(1), &json!([1, 2])));
    assert_eq!(read["data"].as_array().map(Vec::len), Some(1));
    let rows = json!([[1, 2], PAT.as_bytes(), [300, 4]]).to_string();
    let out = clean(&redactor(), &rows);
    assert!(
        out.starts_with("[[1,2],[\"[redacted:") && out.ends_with("],[300,4]]"),
        "{out}"
    );
    let numbers = json!((0..200).collect::<Vec<u8>>()).to_string();
    assert_eq!(clean(&redactor(), &numbers), numbers);
}

#[test]
fn keys_over_lines_that_are_elements() {
    let lines: Vec<String> = ["-----BEGIN PRIVATE KEY-----"]
        .into_iter()
        .chain(std::iter::repeat_n("MIIEowIBAAKCAQEAtn5vcm1hbAk93hf", 4))
        .chain(["ab==", "-----END PRIVATE KEY-----", "print(1)"])
        .map(|line| format!("{line}\n"))
        .collect();
    let notebook = json!({"cells": [{"source": lines, "outputs": []}]}).to_string();
    assert_gone(&notebook, "MIIEow");
    let out = clean(&redactor(), &notebook);
    assert!(out.contains("print(1)") && !out.contains("ab=="), "{out}");
}

/// An archive is no text, but tokens in it are told by what they begin with.
#[test]
fn tokens_in_binary_data() {
    for secret in [PAT.to_owned(), "AKIAZ5QWERTYUIOPASDF".to_owned(), pem()] {
        let mut archive = vec![0u8; 512];
        archive.extend_from_slice(secret.as_bytes());
        archive.extend_from_slice(&[0u8; 512]);
        let text = STANDARD.encode(&archive);
        assert_gone(&json!({ "data": text }).to_string(), &text[..1000]);
        let packed = STANDARD.encode(gzip(&String::from_utf8(archive).expect("ASCII")));
        assert_gone(&json!({ "data": packed }).to_string(), &packed[4..]);
    }
}
