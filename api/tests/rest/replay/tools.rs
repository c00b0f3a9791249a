//! Packages as files: the program that builds, looks into, checks and keeps them.

use std::process::{Command, Output};

use serde_json::json;

use super::*;

fn program(arguments: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bex-api"))
        .arg("package")
        .args(arguments)
        .env_clear()
        .envs(env.iter().copied())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_package_becomes_a_case_byte_for_byte() {
    let world = world(Place::here()).await;
    let session = world.spoken(PARTS).await;
    let package = world.package(&by("conversation", &session)).await;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("p.json"), &package.bytes).unwrap();
    let (name, sum) = (
        package.answer["packageId"].as_str().unwrap(),
        package.answer["sha256"].as_str().unwrap(),
    );

    let inspected = program(&["inspect", &path("p.json")], &[]);
    assert!(inspected.status.success(), "{}", said(&inspected));
    for part in [
        name,
        sum,
        session.as_str(),
        "messages    2",
        "tools       1\n",
        "findings    0",
    ] {
        assert!(
            said(&inspected).contains(part),
            "{part}: {}",
            said(&inspected)
        );
    }
    let verified = program(&["verify", &path("p.json"), "--sha256", sum], &[]);
    assert!(verified.status.success(), "{}", said(&verified));

    std::fs::create_dir(path("cases")).unwrap();
    for _ in 0..2 {
        let promoted = program(
            &[
                "promote",
                &path("p.json"),
                "--sha256",
                sum,
                "--to",
                &path("cases"),
            ],
            &[],
        );
        assert!(promoted.status.success(), "{}", said(&promoted));
        let case = path(&format!("cases/{name}.json"));
        assert_eq!(said(&promoted).trim(), case);
        assert_eq!(std::fs::read(&case).unwrap(), package.bytes);
    }
    assert_eq!(std::fs::read_dir(path("cases")).unwrap().count(), 1);
    let case = path(&format!("cases/{name}.json"));
    std::fs::write(&case, "something else").unwrap();
    let promoted = program(&["promote", &path("p.json"), "--to", &path("cases")], &[]);
    assert_eq!(promoted.status.code(), Some(1), "{}", said(&promoted));
    assert_eq!(std::fs::read(&case).unwrap(), b"something else");

    let schema = program(&["schema"], &[]);
    assert_eq!(said(&schema), schema::PUBLISHED.last().unwrap().1);
}

#[tokio::test]
async fn what_is_not_good_is_neither_verified_nor_kept() {
    let world = world(Place::here()).await;
    let session = world.spoken(PARTS).await;
    let package = world.package(&by("conversation", &session)).await;
    let text = String::from_utf8(package.bytes).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let cases = dir.path().join("cases");
    std::fs::create_dir(&cases).unwrap();
    let token = "ghp_canary0123456789abcdefghijklmnopqrst";
    // with a name that fits again
    let named = |text: &str| {
        let (content, _) = text.split_at(text.len() - naming::TRAILER_BYTES);
        let mut namer = naming::Namer::default();
        namer.update(content.as_bytes());
        content.to_owned() + &naming::trailer(jiff::Timestamp::UNIX_EPOCH, &namer.name())
    };
    assert_eq!(named(&text).len(), text.len());
    for (bad, code, word) in [
        (
            text.replace("Two lines.", "Ten lines."),
            1,
            "not what the package's name says",
        ),
        (named(&text.replace("Two lines.", token)), 3, "github-token"),
        (
            named(&text.replace("\"orgId\":\"demo\",", "")),
            1,
            "orgId is missing",
        ),
        (
            named(&text.replace("\"1.1.0\"", "\"2.0.0\"")),
            1,
            "version 2.0.0",
        ),
        (text.replace("\n", ""), 1, "does not end as a package"),
        (text[..text.len() / 2].to_owned(), 1, "no package"),
        (json!({"a": 1}).to_string(), 1, "version"),
    ] {
        let path = dir.path().join("p.json");
        std::fs::write(&path, &bad).unwrap();
        let path = path.to_str().unwrap();
        for arguments in [
            vec!["verify", path],
            vec!["promote", path, "--to", cases.to_str().unwrap()],
        ] {
            let output = program(&arguments, &[]);
            assert_eq!(
                output.status.code(),
                Some(code),
                "{word}: {}",
                said(&output)
            );
            assert!(!said(&output).contains(token));
        }
        let output = program(&["verify", path], &[]);
        assert!(said(&output).contains(word), "{word}: {}", said(&output));
    }
    std::fs::write(dir.path().join("p.json"), &text).unwrap();
    let path = dir.path().join("p.json");
    let output = program(
        &[
            "verify",
            path.to_str().unwrap(),
            "--sha256",
            &"0".repeat(64),
        ],
        &[],
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(std::fs::read_dir(&cases).unwrap().count(), 0);
}

#[tokio::test]
async fn the_store_is_asked_without_a_service() {
    let world = world(Place::here()).await;
    let session = world.spoken(PARTS).await;
    let package = world.package(&by("conversation", &session)).await;
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("p.json");
    let out = out.to_str().unwrap();
    let env = [
        ("BEX_DATABASE_URL", world.database.url.as_str()),
        ("BEX_PACKAGES_TOKEN_KEY", &"12".repeat(32)),
        ("COMMIT_SHA", "abc1234"),
    ];
    let id = session.as_str();
    let build = [
        "build",
        "--workspace",
        "demo",
        "--conversation",
        id,
        "--out",
        out,
    ];
    let built = program(&build, &env);
    assert!(built.status.success(), "{}", said(&built));
    let name = package.answer["packageId"].as_str().unwrap();
    assert!(
        said(&built).starts_with(name),
        "the same content has the same name: {}",
        said(&built)
    );
    assert_eq!(
        naming::check(&std::fs::read(out).unwrap())
            .unwrap()
            .name
            .as_str(),
        name
    );
    // what is there is not overwritten
    assert_eq!(program(&build, &env).status.code(), Some(1));
    let elsewhere = [
        "build",
        "--workspace",
        "other",
        "--conversation",
        id,
        "--out",
        "never",
    ];
    assert_eq!(program(&elsewhere, &env).status.code(), Some(1));
    assert!(!std::path::Path::new("never").exists());
    for (arguments, env) in [
        (&build[..], &env[..1]),
        (&build[..], &env[1..]),
        (
            &[
                "build",
                "--workspace",
                "demo",
                "--run",
                id,
                "--out",
                "never",
            ][..],
            &env[..],
        ),
    ] {
        assert_eq!(program(arguments, env).status.code(), Some(64));
    }
    assert_eq!(
        program(&["build", "--workspace", "demo", "--out", "x"], &env)
            .status
            .code(),
        Some(64)
    );
}

/// A file from somebody else says nothing to the terminal, and no line of its own.
#[tokio::test]
async fn what_a_file_says_is_shown_as_text() {
    let world = world(Place::here()).await;
    let session = world.spoken(PARTS).await;
    let package = world.package(&by("conversation", &session)).await;
    let text = String::from_utf8(package.bytes).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.json");
    let path = path.to_str().unwrap();
    let hostile = r"\u001b]0;t\u0007\nsha256      0000";
    for (from, field) in [
        (session.as_str(), "correlationId"),
        ("1.1.0", "schemaVersion"),
    ] {
        let said_so = format!("\"{field}\":\"{from}\"");
        assert!(text.contains(&said_so), "{said_so}");
        let bad = text.replace(&said_so, &format!("\"{field}\":\"{hostile}\""));
        std::fs::write(path, bad).unwrap();
        for what in ["inspect", "verify"] {
            let output = said(&program(&[what, path], &[]));
            assert!(!output.contains(['\u{1b}', '\u{7}']), "{what} {field}");
            assert!(!output.contains("\nsha256      0000"), "{what} {field}");
        }
    }
}
