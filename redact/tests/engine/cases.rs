//! The cases of planted secrets: each in one form that other tools miss some of.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// A text with one secret in it.
pub struct Case {
    pub name: &'static str,
    pub text: String,
    /// What must be gone: the secret as it stands in the text, in pieces where it is split.
    pub gone: Vec<String>,
}

pub const PAT: &str = "ghp_b7Zk93hfQ8vLq2RtWm71kdT5xNe9Yp1aB3cD";

pub fn pem() -> String {
    let lines: Vec<String> = (0..25u32)
        .map(|line| {
            STANDARD.encode(
                (0..48u32)
                    .map(|at| ((line * 48 + at) * 167 + 13) as u8)
                    .collect::<Vec<u8>>(),
            )
        })
        .collect();
    format!(
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----\n",
        lines.join("\n")
    )
}

pub fn jwt() -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let head = encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let body = encode(r#"{"sub":"1234567890","name":"ada","iat":1716239022,"exp":4102444800}"#);
    format!("{head}.{body}.kT5xNe9Yp1aB3cDZk93hfQ8vLq2RtWm71kdT5xNe9Y")
}

const URL: &str = "postgres://svc_writer:Zk93hfQ8vLq2Rt@db-7.prod.internal.acme.io:5432/ledger";

/// A record as the store keeps it.
pub fn record(index: usize, part: &Value) -> String {
    format!(
        "{}\n",
        json!({"session": "ags-1", "turn": 1, "part_index": index, "part": part})
    )
}

pub fn output(text: &str) -> Value {
    json!({"type": "tool-output-available", "output": text})
}

pub fn delta(text: &str) -> Value {
    json!({"type": "text-delta", "id": "t1", "delta": text})
}

pub fn gzip(text: &str) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(text.as_bytes()).unwrap();
    out.finish().unwrap()
}

/// The 21 cases.
pub fn all() -> Vec<Case> {
    let assigned = format!("GITHUB_TOKEN={PAT}");
    let (pem, jwt) = (pem(), jwt());
    let pem_lines: Vec<String> = pem
        .lines()
        .filter(|l| !l.starts_with('-'))
        .map(str::to_owned)
        .collect();
    let case = |name, text: String, gone: &[&str]| Case {
        name,
        text,
        gone: gone.iter().map(|&g| g.to_owned()).collect(),
    };
    let packed = STANDARD.encode(gzip(&assigned));
    let hex: String = assigned.bytes().map(|b| format!("{b:02x}")).collect();
    let with_pem = |name, text: String| Case {
        name,
        text,
        gone: pem_lines.clone(),
    };
    let base64_pem = STANDARD.encode(&pem);
    vec![
        case("plain line", format!("export {assigned}\n"), &[PAT]),
        case(
            "json value",
            record(0, &json!({"type": "tool-output", "token": PAT})),
            &[PAT],
        ),
        case(
            "json in json",
            record(0, &output(&json!({"token": PAT}).to_string())),
            &[PAT],
        ),
        case(
            "json three deep",
            record(
                0,
                &output(&json!({"a": json!({"token": PAT}).to_string()}).to_string()),
            ),
            &[PAT],
        ),
        case(
            "base64",
            record(0, &output(&STANDARD.encode(&assigned))),
            &[&STANDARD.encode(&assigned)],
        ),
        case(
            "unicode escape",
            record(0, &json!({"type": "text", "text": assigned}))
                .replace("ghp_", r"\u0067\u0068p_"),
            &[&PAT[4..]],
        ),
        case(
            "split over two parts",
            record(0, &delta(&format!("token is {}", &PAT[..14])))
                + &record(1, &delta(&format!("{} ok", &PAT[14..]))),
            &[&PAT[..14], &PAT[14..]],
        ),
        case(
            "percent",
            record(
                0,
                &json!({"type": "text", "text": format!("https://x.io/?t={}", PAT.replace('_', "%5F"))}),
            ),
            &[&PAT[4..]],
        ),
        case("gzip in base64", record(0, &output(&packed)), &[&packed]),
        case("hex", record(0, &output(&hex)), &[&hex]),
        case(
            "json key",
            json!({"part": {"type": "x", PAT: "v"}}).to_string() + "\n",
            &[PAT],
        ),
        case(
            "broken by colours",
            record(
                0,
                &output(&format!("tok \x1b[31m{}\x1b[0m{}", &PAT[..20], &PAT[20..])),
            ),
            &[&PAT[..20], &PAT[20..]],
        ),
        with_pem("pem file", pem.clone()),
        with_pem("pem in json", record(0, &output(&pem))),
        with_pem(
            "pem twice escaped",
            record(0, &output(&json!({"private_key": pem}).to_string())),
        ),
        with_pem(
            "pem by line",
            pem.lines()
                .enumerate()
                .map(|(at, line)| record(at, &delta(&format!("{line}\n"))))
                .collect(),
        ),
        case(
            "pem in base64",
            record(0, &output(&base64_pem)),
            &[&base64_pem],
        ),
        case(
            "jwt",
            record(0, &output(&format!("Authorization: Bearer {jwt}"))),
            &[&jwt],
        ),
        case(
            "jwt split",
            record(0, &delta(&format!("Bearer {}", &jwt[..40]))) + &record(1, &delta(&jwt[40..])),
            &[&jwt[..40], &jwt[40..]],
        ),
        case(
            "database url",
            record(0, &output(&format!("DATABASE_URL={URL}"))),
            &["Zk93hfQ8vLq2Rt"],
        ),
        case(
            "database url, slashes escaped",
            record(0, &output(&format!("DATABASE_URL={URL}"))).replace('/', r"\/"),
            &["Zk93hfQ8vLq2Rt"],
        ),
    ]
}

/// The control, in which nothing is.
pub fn control() -> String {
    record(
        0,
        &json!({"type": "text", "text": "hello, nothing here; sha 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 uuid 3f2504e0-4f89-11d3-9a0c-0305e82c3301"}),
    )
}
